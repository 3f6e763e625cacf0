//! What running a case showed.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Findings {
    wrong: Vec<String>,
    needs: BTreeSet<String>,
    /// Comparisons made.
    pub checks: usize,
    /// Something took too long; on a busy machine that may be chance.
    late: usize,
    /// What happens depends on what is slower, which on a busy machine may be chance as well.
    pub is_a_race: bool,
    /// What is being compared, e.g. one of several ways to run the case.
    place: String,
}

pub enum Verdict {
    Passed,
    Failed(Vec<String>),
    Left(Vec<String>),
}

impl Findings {
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let mut findings = Self::default();
        findings.wrong(format!("panicked: {}", text.unwrap_or("no text")));
        findings
    }

    pub fn verdict(&self) -> Verdict {
        if !self.wrong.is_empty() {
            Verdict::Failed(self.wrong.clone())
        } else if !self.needs.is_empty() {
            Verdict::Left(self.needs.iter().cloned().collect())
        } else if self.checks == 0 {
            Verdict::Failed(vec!["it expects nothing that was compared".to_owned()])
        } else {
            Verdict::Passed
        }
    }

    /// Says where the differences found from now on are.
    pub fn at(&mut self, place: impl Into<String>) {
        self.place = place.into();
    }

    /// Takes over what one way to run the case showed.
    pub fn merge(&mut self, place: &str, other: Self) {
        self.checks += other.checks;
        self.late += other.late;
        self.needs.extend(other.needs);
        for wrong in other.wrong {
            self.wrong(format!("{place}: {wrong}"));
        }
    }

    pub fn wrong(&mut self, difference: impl Display) {
        let difference =
            if self.place.is_empty() { difference.to_string() } else { format!("{}: {difference}", self.place) };
        if !self.wrong.contains(&difference) {
            self.wrong.push(difference);
        }
    }

    /// The case, or a part of it, has to wait for something.
    pub fn need(&mut self, what: impl Into<String>) {
        self.needs.insert(what.into());
    }

    pub fn equal<E, G>(&mut self, what: impl Display, expected: &E, got: &G)
    where
        E: PartialEq<G> + Debug + ?Sized,
        G: Debug + ?Sized,
    {
        self.checks += 1;
        if expected != got {
            self.wrong(format!("{what}: expected {}, got {}", short(expected), short(got)));
        }
    }

    pub fn within(&mut self, limit: Duration, took: Duration) {
        self.checks += 1;
        if took > limit {
            self.late += 1;
            self.wrong(format!("took {took:?} and not at most {limit:?}"));
        }
    }

    /// Whether what was wrong may be the fault of a busy machine.
    pub fn may_be_chance(&self) -> bool {
        !self.wrong.is_empty() && (self.is_a_race || self.wrong.len() <= self.late)
    }

    pub fn ensure(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.wrong(otherwise());
        }
    }
}

/// A value in few words.
pub fn short<T: Debug + ?Sized>(value: &T) -> String {
    let text = format!("{value:?}");
    if text.chars().count() <= 300 {
        return text;
    }
    let start: String = text.chars().take(300).collect();
    format!("{start}…")
}
