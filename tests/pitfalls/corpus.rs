//! Finding and reading the cases.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::case::Case;

pub struct Corpus {
    pub cases: Vec<Case>,
    /// Whether it is the full set, which the self-checks are made for, and not a part or another one.
    pub is_whole: bool,
}

/// `None`, with a loud line, when there is no corpus. Under `CI=true` that is a failure.
pub fn find() -> Option<Corpus> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/pitfalls/cases");
    let folder = std::env::var_os("ZIDANE_PITFALLS_DIR").map_or(default, PathBuf::from);
    if !folder.is_dir() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "no cases at {}: set ZIDANE_PITFALLS_DIR",
            folder.display()
        );
        eprintln!("SKIPPED: no cases at {} (set ZIDANE_PITFALLS_DIR)", folder.display());
        return None;
    }
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        path.extension().is_some_and(|extension| extension == "json")
            && path.file_stem().is_some_and(|stem| stem != "index")
    });
    files.sort();
    let cases: Vec<_> = files.iter().map(|file| read(file)).collect();
    let is_whole = listed(&folder.join("index.json")).is_some_and(|ids| {
        for id in &ids {
            assert!(cases.iter().any(|case| case.id == *id), "case {id} is in the index but has no file");
        }
        ids.len() >= 100
    });
    Some(Corpus { cases, is_whole })
}

fn read(file: &Path) -> Case {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    Case::new(json, &file.file_stem().unwrap_or_default().to_string_lossy())
}

fn listed(index: &Path) -> Option<Vec<String>> {
    let json: Value = serde_json::from_str(&std::fs::read_to_string(index).ok()?).ok()?;
    Some(json.as_array()?.iter().filter_map(|entry| entry["id"].as_str().map(str::to_owned)).collect())
}
