//! The fuzz targets' stored inputs, and inputs made of them, in ordinary tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(all(feature = "anthropic", feature = "openai", feature = "gemini"))]

#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// What is done to a stored input.
#[derive(Clone, Debug)]
enum Change {
    Flip(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<u16>().prop_map(usize::from);
    let length = 1..64usize;
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, to)| Change::Flip(at, to)),
        at.clone().prop_map(Change::Cut),
        (at.clone(), length.clone()).prop_map(|(at, length)| Change::Remove(at, length)),
        (at, length).prop_map(|(at, length)| Change::Repeat(at, length)),
    ]
}

fn changed(mut input: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if input.is_empty() {
            break;
        }
        let place = |at: usize| at % input.len();
        let span = |at: usize, length: usize| place(at)..(place(at) + length).min(input.len());
        match *change {
            Change::Flip(at, to) => {
                let at = place(at);
                input[at] = to;
            }
            Change::Cut(at) => input.truncate(place(at)),
            Change::Remove(at, length) => drop(input.drain(span(at, length))),
            Change::Repeat(at, length) => {
                let span = span(at, length);
                let again = input[span.clone()].to_vec();
                input.splice(span.start..span.start, again);
            }
        }
    }
    input
}

fn replay(target: &str, body: fn(&[u8]), cases: u32) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut inputs: Vec<Vec<u8>> =
        std::fs::read_dir(&folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs.sort();
    inputs.iter().for_each(|input| body(input));
    let of = (prop::sample::select(inputs), prop::collection::vec(change(), 1..6));
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) });
    runner
        .run(&of, |(input, changes)| {
            body(&changed(input, &changes));
            Ok(())
        })
        .unwrap();
}

#[test]
fn sse() {
    replay("sse", bodies::sse, 2_000);
}

#[test]
fn anthropic() {
    replay("anthropic", bodies::anthropic, 1_000);
}

#[test]
fn chat() {
    replay("chat", bodies::chat, 1_000);
}

#[test]
fn responses() {
    replay("responses", bodies::responses, 1_000);
}

#[test]
fn gemini() {
    replay("gemini", bodies::gemini, 1_000);
}

#[test]
fn session() {
    replay("session", bodies::session, 1_000);
}

#[test]
fn arguments() {
    replay("arguments", bodies::arguments, 500);
}
