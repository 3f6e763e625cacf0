//! Time and random ids have one source: whatever lands in a session must come through a `Clock`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

const HOME: &str = "clock.rs";
const WORDS: [&str; 3] = ["SystemTime::now", "UNIX_EPOCH", "new_v4"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The words of `WORDS` in each line of code; comments do not count.
fn calls(source: &str) -> Vec<(usize, &'static str)> {
    let lines = source.lines().enumerate().map(|(at, line)| (at + 1, line.split("//").next().unwrap_or_default()));
    lines
        .flat_map(|(at, code)| WORDS.into_iter().filter(move |word| code.contains(word)).map(move |word| (at, word)))
        .collect()
}

#[test]
fn only_the_system_clock_reads_the_time_and_draws_ids() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut elsewhere = Vec::new();
    for file in &files {
        let found = calls(&fs::read_to_string(file).unwrap());
        let name = file.strip_prefix(&root).unwrap();
        if name == Path::new(HOME) {
            for word in WORDS {
                let count = found.iter().filter(|(_, found)| *found == word).count();
                // `UNIX_EPOCH` is imported too.
                assert_eq!(count, if word == "UNIX_EPOCH" { 2 } else { 1 }, "{word} in {HOME}");
            }
        } else {
            elsewhere.extend(found.into_iter().map(|(line, word)| format!("src/{}:{line}: {word}", name.display())));
        }
    }
    assert!(files.iter().any(|file| file.ends_with(HOME)), "the search finds the clock");
    assert!(elsewhere.is_empty(), "ask a `Clock` instead:\n{}", elsewhere.join("\n"));
}

#[test]
fn the_search_sees_calls_and_skips_comments() {
    let source = "let a = SystemTime::now();\n// SystemTime::now()\nlet b = uuid::Uuid::new_v4(); // id\n";
    assert_eq!(calls(source), [(1, "SystemTime::now"), (3, "new_v4")]);
}
