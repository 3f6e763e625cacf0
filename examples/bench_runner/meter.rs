use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::Failure;
use super::script::Script;

/// Counts what the tool is called for, and when the first text came.
#[derive(Default)]
pub(crate) struct Meter {
    calls: AtomicUsize,
    sum: AtomicI64,
    first_text_ns: AtomicU64,
    marking: AtomicBool,
    marks: Mutex<Vec<Mark>>,
}

/// CPU and wall time in milliseconds at a tool call.
#[derive(Clone, Copy)]
struct Mark {
    cpu: f64,
    wall: f64,
}

impl Meter {
    /// Forgets the calls so far. With `marks`, as many calls to come are each marked with the time.
    pub(crate) fn reset(&self, marks: Option<usize>) {
        self.calls.store(0, Relaxed);
        self.sum.store(0, Relaxed);
        if let Some(calls) = marks {
            self.marks.lock().unwrap_or_else(PoisonError::into_inner).reserve(calls);
            self.marking.store(true, Relaxed);
        }
    }

    pub(crate) fn call(&self, sum: i64) {
        self.calls.fetch_add(1, Relaxed);
        self.sum.fetch_add(sum, Relaxed);
        if self.marking.load(Relaxed) {
            let mark = Mark { cpu: cpu_ms(), wall: nanos(ClockId::Monotonic) as f64 / 1e6 };
            self.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
        }
    }

    pub(crate) fn first_text(&self) {
        _ = self.first_text_ns.compare_exchange(0, nanos(ClockId::Monotonic), Relaxed, Relaxed);
    }

    /// How many calls there were, when they are those of the script.
    pub(crate) fn check(&self, script: &Script, runs: usize) -> Result<usize, Failure> {
        let (calls, sum) = (self.calls.load(Relaxed), self.sum.load(Relaxed));
        let (want_calls, want_sum) = (script.calls * runs, i64::try_from(script.sum() * runs)?);
        if (calls, sum) != (want_calls, want_sum) {
            let message = format!("{calls} calls that add up to {sum}, the script has {want_calls} and {want_sum}");
            return Err(message.into());
        }
        Ok(calls)
    }

    /// What was asked for beyond the totals.
    pub(crate) fn add_to(&self, line: &mut Value) {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if let ([_, begin, .., _], true) = (marks.as_slice(), marks.len() > 110)
            && let (Some(begun), Some(before), Some(end)) = (marks.get(51), marks.get(marks.len() - 51), marks.last())
        {
            line["cpu_first50_ms"] = (begun.cpu - begin.cpu).into();
            line["cpu_last50_ms"] = (end.cpu - before.cpu).into();
            line["wall_first50_ms"] = (begun.wall - begin.wall).into();
            line["wall_last50_ms"] = (end.wall - before.wall).into();
        }
        let origin = std::env::var("BENCH_T0_NS").ok().and_then(|nanos| nanos.parse::<u64>().ok());
        let first = self.first_text_ns.load(Relaxed);
        if let Some(elapsed) = origin.and_then(|origin| first.checked_sub(origin)) {
            line["first_delta_ms"] = (elapsed as f64 / 1e6).into();
        }
    }
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// User and system time of the process, in milliseconds. Resolution: nanoseconds.
pub(crate) fn cpu_ms() -> f64 {
    nanos(ClockId::ProcessCPUTime) as f64 / 1e6
}

/// Resident memory now, in KiB.
pub(crate) fn rss_kb() -> u64 {
    status_kb("VmRSS:")
}

/// The most resident memory there was, in KiB.
pub(crate) fn peak_rss_kb() -> u64 {
    status_kb("VmHWM:")
}

/// A field of `/proc/self/status`; 0 where that is not to be had.
fn status_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(field));
    value.and_then(|value| value.trim().trim_end_matches("kB").trim_end().parse().ok()).unwrap_or(0)
}
