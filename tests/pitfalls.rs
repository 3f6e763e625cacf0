//! Faults that others met, as cases: what each does to the crate, held against what should happen.
//!
//! The cases are read from `ZIDANE_PITFALLS_DIR`, by default `../shared/pitfalls/cases` beside the crate; any folder
//! laid out like it will do. A case that asks for something not built yet, or in words that no adapter here knows, is
//! counted as left and never as passed.
#![cfg(all(feature = "anthropic", feature = "openai", feature = "gemini", feature = "json-schema"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "harness/folder.rs"]
mod folder;
#[path = "pitfalls/mod.rs"]
mod pitfalls;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pitfalls::case::Case;
use pitfalls::findings::{Findings, Verdict};
use pitfalls::{corpus, mutate};

/// Cases of each form that must have been compared when the whole set is there.
const MUST_RUN: [(&str, usize); 9] = [
    ("stream", 27),
    ("http", 5),
    ("wire", 8),
    ("schema", 4),
    ("usage", 1),
    ("scenario", 25),
    ("text", 5),
    ("compile", 1),
    ("session", 4),
];

/// Cases that take too long to be run once for each of their expectations.
const SLOW: [&str; 3] = ["B010", "B043", "B104"];

/// Expectations that a change does not make wrong: paused time takes none, and the bytes of media say what they are.
const UNNOTICED: [(&str, &str); 3] = [
    ("B072", "/expect/within_ms"),
    ("B025", "/history/2/blocks/0/output/1/media_type"),
    ("B094", "/history/0/blocks/1/media_type"),
];

/// Expectations to be changed when the whole set is there.
const LEAST_CHANGED: usize = 100;

#[test]
fn known_pitfalls_are_avoided() {
    let Some(corpus) = corpus::find() else { return };
    let judged = Mutex::new(Vec::new());
    each(&corpus.cases, |case| {
        let findings = catch_unwind(AssertUnwindSafe(|| pitfalls::judge(case)))
            .unwrap_or_else(|panic| Findings::panicked(&*panic));
        judged.lock().unwrap().push((case.clone(), findings));
    });
    let mut judged = judged.into_inner().unwrap();
    judged.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    let (passed, failed) = report(&judged);
    assert!(passed + failed > 0, "nothing was compared");
    if corpus.is_whole {
        check_whole(&judged);
    }
    assert_eq!(failed, 0, "cases fell short, see above");
}

/// Each expectation of each case is looked at: with it changed the case does not pass any more.
#[test]
fn a_changed_expectation_is_noticed() {
    let Some(corpus) = corpus::find() else { return };
    let unnoticed = Mutex::new(Vec::new());
    let tried = AtomicUsize::new(0);
    each(&corpus.cases, |case| {
        if SLOW.contains(&case.id.as_str()) || !matches!(pitfalls::judge(case).verdict(), Verdict::Passed) {
            return;
        }
        for (place, changed) in mutate::mutations(case) {
            tried.fetch_add(1, Ordering::Relaxed);
            let judged = catch_unwind(AssertUnwindSafe(|| pitfalls::judge(&changed)));
            let passed = judged.is_ok_and(|findings| matches!(findings.verdict(), Verdict::Passed));
            if passed && !UNNOTICED.iter().any(|(id, known)| *id == case.id && place.starts_with(known)) {
                unnoticed.lock().unwrap().push(format!("{}{place}", case.id));
            }
        }
    });
    let unnoticed = unnoticed.into_inner().unwrap();
    let tried = tried.into_inner();
    println!("pitfalls: {tried} expectations changed, {} of them unnoticed", unnoticed.len());
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
    assert!(!corpus.is_whole || tried >= LEAST_CHANGED, "only {tried} expectations were changed");
}

/// Does something with every case, on a few threads.
fn each(cases: &[Case], work: impl Fn(&Case) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).min(4);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(case);
                }
            });
        }
    });
}

fn report(judged: &[(Case, Findings)]) -> (usize, usize) {
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    for (case, findings) in judged {
        let title = format!("{} ({}) {}", case.id, case.form, case.title);
        match findings.verdict() {
            Verdict::Passed => passed += 1,
            Verdict::Failed(differences) => {
                failed += 1;
                println!("failed {title}: {}", differences.join("; "));
            }
            Verdict::Left(needs) => {
                left += 1;
                let part = if findings.checks > 0 { " (the rest passed)" } else { "" };
                println!("left {title}: needs {}{part}", needs.join(", "));
            }
        }
    }
    println!("pitfalls: {passed} passed, {failed} failed, {left} left");
    (passed, failed)
}

/// The whole set is known, so that running less of it than there is cannot go unnoticed.
fn check_whole(judged: &[(Case, Findings)]) {
    let mut ran: BTreeMap<&str, usize> = BTreeMap::new();
    for (case, findings) in judged {
        if findings.checks > 0 {
            *ran.entry(case.form.as_str()).or_default() += 1;
        }
    }
    for (form, least) in MUST_RUN {
        let count = ran.get(form).copied().unwrap_or(0);
        assert!(count >= least, "only {count} of at least {least} cases of form {form} were compared");
    }
}
