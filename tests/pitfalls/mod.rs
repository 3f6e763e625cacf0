//! One adapter per form of case.

pub mod body;
pub mod case;
pub mod compile;
pub mod corpus;
pub mod fields;
pub mod findings;
pub mod http;
pub mod images;
pub mod json_path;
pub mod mutate;
pub mod neutral;
pub mod outcome;
pub mod scenario;
pub mod schema;
pub mod secrets;
pub mod session;
pub mod stream;
pub mod text;
pub mod usage;
pub mod wire;
pub mod wires;

use case::Case;
use fields::Fields;
use findings::Findings;

/// A case that fails by what may be chance is tried this often.
const TRIES: usize = 3;

/// Runs a case against the crate.
pub fn judge(case: &Case) -> Findings {
    let mut findings = judge_once(case);
    for _ in 1..TRIES {
        if !findings.may_be_chance() {
            break;
        }
        findings = judge_once(case);
    }
    findings
}

fn judge_once(case: &Case) -> Findings {
    let mut findings = Findings::default();
    let mut fields = Fields::new("", &case.json);
    for known in ["id", "kind", "title", "source", "case", "note", "notes", "links"] {
        fields.take(known);
    }
    let run = match case.form.as_str() {
        "stream" => stream::judge,
        "http" => http::judge,
        "wire" => wire::judge,
        "schema" => schema::judge,
        "usage" => usage::judge,
        "scenario" => scenario::judge,
        "text" => text::judge,
        "compile" => compile::judge,
        "session" => session::judge,
        other => {
            findings.need(match other {
                "mcp" => "the MCP client".to_owned(),
                "fs" => "the built-in tools".to_owned(),
                _ => format!("an adapter for form `{other}`"),
            });
            return findings;
        }
    };
    run(&mut fields, &mut findings);
    fields.finish(&mut findings);
    findings
}
