//! Faults that others met, as cases: what each does to the crate, held against what should happen.
//!
//! The cases are read from `ZIDANE_PITFALLS_DIR`, by default `../shared/pitfalls/cases` beside the crate; any folder
//! laid out like it will do. A case that asks for something not built yet, or in words that no adapter here knows, is
//! counted as left and never as passed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "pitfalls/mod.rs"]
mod pitfalls;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pitfalls::case::Case;
use pitfalls::corpus;
use pitfalls::findings::{Findings, Verdict};

/// Cases of each form that must have been compared when the whole set is there.
const MUST_RUN: [(&str, usize); 8] = [
    ("stream", 27),
    ("http", 5),
    ("wire", 7),
    ("schema", 4),
    ("usage", 1),
    ("scenario", 15),
    ("text", 3),
    ("compile", 1),
];

#[test]
fn known_pitfalls_are_avoided() {
    let Some(corpus) = corpus::find() else { return };
    let next = AtomicUsize::new(0);
    let judged = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).min(4);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = corpus.cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let findings = catch_unwind(AssertUnwindSafe(|| pitfalls::judge(case)))
                        .unwrap_or_else(|panic| Findings::panicked(&*panic));
                    judged.lock().unwrap().push((case, findings));
                }
            });
        }
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

fn report(judged: &[(&Case, Findings)]) -> (usize, usize) {
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
fn check_whole(judged: &[(&Case, Findings)]) {
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
