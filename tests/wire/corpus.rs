//! Finding and reading the recordings.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub struct Corpus {
    pub folder: PathBuf,
    /// Whether it is the full set, which the self-checks are made for, and not a part or another one.
    pub is_whole: bool,
    pub files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Anthropic,
    Chat,
    Responses,
    Gemini,
    /// Recorded, but not built yet.
    Left,
}

#[derive(Clone, Debug)]
pub struct Recording {
    pub protocol: Protocol,
    pub vendor: String,
    pub tags: Vec<String>,
    pub exchanges: Vec<Exchange>,
    pub is_run: bool,
}

#[derive(Clone, Debug)]
pub struct Exchange {
    pub path: String,
    /// `Null` when no request was recorded.
    pub request: Value,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// `None`, with a loud line, when there is no corpus. Under `CI=true` that is a failure.
pub fn find() -> Option<Corpus> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/wire");
    let folder = std::env::var_os("ZIDANE_WIRE_DIR").map_or(default, PathBuf::from);
    if !folder.is_dir() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "no recorded traffic at {}: set ZIDANE_WIRE_DIR",
            folder.display()
        );
        // Not by `eprintln!`, which libtest holds back when a test passes.
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: no recorded traffic at {} (set ZIDANE_WIRE_DIR)", folder.display());
        return None;
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let is_whole = folder.join("index.json").is_file() && files.len() >= 400;
    Some(Corpus { folder, is_whole, files })
}

impl Corpus {
    pub fn name(&self, file: &Path) -> String {
        let name = file.strip_prefix(&self.folder).unwrap_or(file).with_extension("");
        name.to_string_lossy().into_owned()
    }

    pub fn read(&self, file: &Path) -> Result<Recording, String> {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let folder = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let protocol = json["protocol"].as_str().map_or(folder.as_str(), |name| name).to_owned();
        let exchanges = match &json["exchanges"] {
            Value::Array(all) => all.iter().map(exchange).collect(),
            _ => vec![exchange(&json)],
        };
        Ok(Recording {
            protocol: match protocol.as_str() {
                "anthropic-messages" => Protocol::Anthropic,
                "openai-chat" => Protocol::Chat,
                "openai-responses" => Protocol::Responses,
                "gemini" => Protocol::Gemini,
                _ => Protocol::Left,
            },
            vendor: string(&json["vendor"]),
            tags: json["tags"].as_array().into_iter().flatten().map(string).collect(),
            exchanges,
            is_run: json["exchanges"].is_array(),
        })
    }
}

fn exchange(json: &Value) -> Exchange {
    let response = &json["response"];
    let headers = response["headers"].as_object().into_iter().flatten();
    Exchange {
        path: string(&json["request"]["path"]),
        request: json["request"]["body"].clone(),
        status: response["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0),
        headers: headers.map(|(name, value)| (name.clone(), string(value))).collect(),
        body: string(&response["body"]),
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Exchange {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The model that was asked for. Azure and Gemini have it in the path.
    pub fn model(&self) -> String {
        let deployment = self.path.split_once("/deployments/").and_then(|(_, rest)| rest.split('/').next());
        let gemini = self.path.split_once("/models/").and_then(|(_, rest)| rest.split(':').next());
        gemini.or(self.request["model"].as_str()).or(deployment).unwrap_or_default().to_owned()
    }
}
