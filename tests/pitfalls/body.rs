//! The body of a response, as cases write it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::Value;
use zidane::provider::{ProviderError, ProviderErrorKind, RawResponse};
use zidane::testing::{HttpEnd, HttpReply};

use super::fields::Fields;
use super::findings::Findings;

#[derive(Clone, Debug)]
pub struct Body {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub steps: Vec<Step>,
    pub end: End,
}

#[derive(Clone, Debug)]
pub enum Step {
    Read(Bytes),
    Delay(Duration),
    /// This text must have been delivered before the next read.
    Checkpoint(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Eof,
    Reset,
    Stall,
}

/// What a consumer has been given so far, for checkpoints.
pub type Seen = Arc<Mutex<String>>;

impl Body {
    /// Reads `http`, `chunks` and `end`; for a variant, from `base` where it has none of its own.
    pub fn read(fields: &mut Fields<'_>, base: Option<&Value>, findings: &mut Findings) -> Self {
        let inherited = |own: Option<&Value>, key: &str| own.cloned().or_else(|| base.map(|base| base[key].clone()));
        let http = inherited(fields.take("http"), "http").unwrap_or_default();
        let mut http = Fields::new("http", &http);
        let status = http.number("status").and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
        let headers = headers(http.take("headers"));
        http.finish(findings);
        let chunks = inherited(fields.take("chunks"), "chunks").unwrap_or_default();
        let end = match inherited(fields.take("end"), "end").unwrap_or_default().as_str() {
            None | Some("eof") => End::Eof,
            Some("reset") => End::Reset,
            Some("stall") => End::Stall,
            Some(other) => {
                findings.need(format!("an adapter for the end `{other}`"));
                End::Eof
            }
        };
        Self { status, headers, steps: steps(&chunks, findings), end }
    }

    /// The same bytes in reads of `size` bytes.
    pub fn recut(&self, size: usize) -> Self {
        let steps = self.steps.iter().flat_map(|step| match step {
            Step::Read(bytes) => cut(bytes.clone(), size).into_iter().map(Step::Read).collect(),
            other => vec![other.clone()],
        });
        Self { steps: steps.collect(), ..self.clone() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for step in &self.steps {
            if let Step::Read(bytes) = step {
                all.extend_from_slice(bytes);
            }
        }
        all
    }

    /// The response, read by read. Missed checkpoints are noted in `missed`.
    pub fn raw(&self, seen: Seen, missed: Arc<Mutex<Vec<String>>>) -> RawResponse {
        let (steps, end) = (self.steps.clone(), self.end);
        let body = futures::stream::unfold((steps.into_iter(), false), move |(mut steps, over)| {
            let (seen, missed) = (Arc::clone(&seen), Arc::clone(&missed));
            async move {
                if over {
                    return None;
                }
                loop {
                    match steps.next() {
                        Some(Step::Read(bytes)) => return Some((Ok(bytes), (steps, false))),
                        Some(Step::Delay(time)) => tokio::time::sleep(time).await,
                        Some(Step::Checkpoint(text)) => {
                            let seen = seen.lock().unwrap().clone();
                            if seen != text {
                                missed.lock().unwrap().push(format!("{text:?} was to be delivered, {seen:?} was"));
                            }
                        }
                        None => match end {
                            End::Eof => return None,
                            End::Reset => {
                                let kind = ProviderErrorKind::Transport;
                                let error = ProviderError::new(kind, "test", "connection reset");
                                return Some((Err(error), (steps, true)));
                            }
                            End::Stall => std::future::pending().await,
                        },
                    }
                }
            }
        });
        RawResponse::new(self.status, self.headers.clone(), body.boxed())
    }

    /// The response over a connection.
    pub fn reply(&self) -> HttpReply {
        let mut reply = HttpReply::new(self.status);
        for (name, value) in &self.headers {
            reply = reply.header(name, value);
        }
        for step in &self.steps {
            reply = match step {
                Step::Read(bytes) => reply.chunk(bytes.clone()),
                Step::Delay(time) => reply.delay(*time),
                Step::Checkpoint(_) => reply,
            };
        }
        reply.end(match self.end {
            End::Eof => HttpEnd::Complete,
            End::Reset => HttpEnd::Reset,
            End::Stall => HttpEnd::Stall,
        })
    }
}

pub fn headers(value: Option<&Value>) -> Vec<(String, String)> {
    let headers = value.and_then(Value::as_object).into_iter().flatten();
    headers.map(|(name, value)| (name.clone(), plain(value))).collect()
}

/// A JSON string as its text, anything else as JSON.
pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn steps(chunks: &Value, findings: &mut Findings) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut size = None;
    for chunk in chunks.as_array().into_iter().flatten() {
        if let Some(text) = chunk.as_str() {
            steps.push(Step::Read(text.to_owned().into()));
            continue;
        }
        let mut fields = Fields::new("chunk", chunk);
        if let Some(text) = fields.text("b64") {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
            steps.push(Step::Read(bytes.into()));
        } else if let Some(text) = fields.text("repeat") {
            let times = fields.number("times").and_then(|times| usize::try_from(times).ok()).unwrap_or(1);
            steps.push(Step::Read(text.repeat(times).into()));
        } else if let Some(delay) = fields.number("delay_ms") {
            steps.push(Step::Delay(Duration::from_millis(delay)));
        } else if let Some(bytes) = fields.number("rechunk") {
            size = usize::try_from(bytes).ok();
        } else if let Some(mut checkpoint) = fields.object("checkpoint") {
            if let Some(text) = checkpoint.text("text_so_far") {
                steps.push(Step::Checkpoint(text.to_owned()));
            }
            checkpoint.finish(findings);
        }
        fields.finish(findings);
    }
    let Some(size) = size else { return steps };
    rechunk(&steps, size)
}

/// Reads of `size` bytes across the borders of the chunks; what stands between chunks stays where it is.
fn rechunk(steps: &[Step], size: usize) -> Vec<Step> {
    let mut out = Vec::new();
    let mut run = Vec::new();
    for step in steps {
        match step {
            Step::Read(bytes) => run.extend_from_slice(bytes),
            other => {
                out.extend(cut(std::mem::take(&mut run).into(), size).into_iter().map(Step::Read));
                out.push(other.clone());
            }
        }
    }
    out.extend(cut(run.into(), size).into_iter().map(Step::Read));
    out
}

fn cut(mut bytes: Bytes, size: usize) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        pieces.push(bytes.split_to(size.clamp(1, bytes.len())));
    }
    pieces
}
