//! What a case expects of its scenario.

use std::time::Duration;

use serde_json::{Value, json};
use zidane::control::QueueKind;
use zidane::testing::Reply;
use zidane::types::{
    Role, SessionContentBlock, SessionTurn, ToolResultBlock, TurnOrigin, tool_result_to_text, validate_transcript,
};
use zidane::{RunErrorKind, StopCause};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::super::outcome::{compare_error, compare_results};
use super::events::{self, Event};
use super::host::{Host, RunEnd, prompt_text};
use super::log::Log;

pub async fn compare(host: &mut Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    if host.runs.iter().any(|run| run.hung) {
        return findings.wrong("it hangs");
    }
    for wrong in host.log.entries().wrong {
        findings.wrong(wrong);
    }
    // Whatever ends a run, what it stored can be gone on from. Dropping it leaves the repair to the next run.
    let was_dropped = host.last().result.is_none();
    if !was_dropped {
        let history = host.agent.history();
        if let Err(error) = validate_transcript(history.iter()) {
            findings.wrong(format!("the stored conversation is broken: {error}"));
        }
    }
    for run in host.runs.iter().filter(|run| run.result.is_some()) {
        findings.equal("disorder of events", &Vec::<String>::new(), &events::disorder(&run.events));
    }
    end(host, expect, findings);
    calls(host, expect, findings);
    conversation(host, expect, findings);
    state(host, expect, findings);
    requests(host, expect, findings);
    event_log(host, expect, findings);
    messages(host, expect, findings);
    if let Some(limit) = expect.number("no_child_process_after_ms") {
        no_process(&host.log, Duration::from_millis(limit), findings).await;
    }
    afterwards(host, expect, findings).await;
}

fn came_to(run: &RunEnd) -> &'static str {
    match &run.result {
        None => "dropped",
        Some(Err(_)) => "error",
        Some(Ok(outcome)) if outcome.stop == StopCause::Aborted => "aborted",
        Some(Ok(_)) => "done",
    }
}

fn end(host: &Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    let run = host.last();
    if let Some(expected) = expect.text("run") {
        // A run that is dropped tells nothing; that it ended is all there is.
        let got = came_to(run);
        findings.ensure(got == expected || got == "dropped", || format!("expected {expected}, got {got}"));
    }
    if let Some(expected) = expect.text("result") {
        let got = came_to(run);
        let got = if got == "done" { "ok" } else { got };
        findings.equal("result", expected, got);
    }
    if let Some(limit) = expect.number("within_ms") {
        findings.within(Duration::from_millis(limit), host.runs.iter().map(|run| run.elapsed).sum());
    }
    if let Some(expected) = expect.text("finish") {
        let history = host.agent.history();
        let last = history.iter().rfind(|turn| turn.role == Role::Assistant);
        let finish = last.and_then(|turn| turn.finish_reason).map(|reason| reason.as_str());
        findings.equal("finish", &Some(expected), &finish);
    }
    if let Some(mut error) = expect.object("error") {
        let failure = match &run.result {
            Some(Err(error)) => match &error.kind {
                RunErrorKind::Provider(error) => Some(&**error),
                _ => None,
            },
            _ => None,
        };
        compare_error(&mut error, failure, findings);
        error.finish(findings);
    }
    if let Some(expected) = expect.take("runs") {
        runs(host, expected, findings);
    }
    if let Some(expected) = expect.take("run_result.denials") {
        let denials = match &run.result {
            Some(Ok(outcome)) => outcome.denials.as_slice(),
            _ => &[],
        };
        let got: Vec<_> = denials.iter().map(|denial| json!([denial.call_id, denial.reason])).collect();
        let expected: Vec<_> = expected.as_array().into_iter().flatten().collect();
        let expected: Vec<_> = expected.iter().map(|denial| json!([denial["call_id"], denial["reason"]])).collect();
        findings.equal("denials", &expected, &got);
    }
}

fn runs(host: &Host, expected: &Value, findings: &mut Findings) {
    let expected = expected.as_array().cloned().unwrap_or_default();
    findings.equal("number of runs", &expected.len(), &host.runs.len());
    let requests = host.model.requests();
    for (number, (expected, run)) in expected.iter().zip(&host.runs).enumerate() {
        let mut expected = Fields::new("runs", expected);
        if let Some(state) = expected.text("state") {
            findings.equal(format!("state of run {}", number + 1), state, came_to(run));
        }
        if let Some(text) = expected.text("request_contains") {
            let end = host.runs.get(number + 1).map_or(requests.len(), |next| next.first_request);
            let mut own = requests[run.first_request..end].iter();
            let contains = own.any(|request| request.turns.iter().any(|turn| turn.text().contains(text)));
            findings.ensure(contains, || format!("no request of run {} contains {text:?}", number + 1));
        }
        expected.finish(findings);
    }
}

fn results(host: &Host) -> Vec<ToolResultBlock> {
    let history = host.agent.history();
    history.iter().flat_map(|turn| turn.tool_results().cloned().collect::<Vec<_>>()).collect()
}

fn calls(host: &Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    let log = host.log.entries();
    if let Some(expected) = expect.take("results_order") {
        let order: Vec<_> = results(host).into_iter().map(|result| result.call_id).collect();
        findings.equal("order of results", expected, &json!(order));
    }
    if let Some(expected) = expect.take("outputs") {
        let outputs: Vec<_> = results(host).iter().map(|r| tool_result_to_text(&r.output).into_owned()).collect();
        findings.equal("outputs", expected, &json!(outputs));
    }
    if let Some(expected) = expect.take("executed") {
        let executed: Vec<_> = log.spans.iter().map(|span| span.call.as_str()).collect();
        findings.equal("executed calls", expected, &json!(executed));
    }
    for pair in expect.list("no_overlap") {
        let span = |index: usize| log.spans.iter().find(|span| pair[index] == span.call.as_str());
        let apart = match (span(0), span(1)) {
            (Some(a), Some(b)) => a.end.is_some_and(|end| end <= b.start) || b.end.is_some_and(|end| end <= a.start),
            _ => false,
        };
        findings.ensure(apart, || format!("{pair} overlap or did not run"));
    }
    if let Some(expected) = expect.take("tool_saw_cancel") {
        findings.equal("calls that saw the abort", expected, &json!(log.cancelled));
    }
    if let Some(expected) = expect.take("effects") {
        match expected.as_u64() {
            Some(expected) => findings.equal("effects", &expected, &(log.effects as u64)),
            None => findings.need(format!("an adapter for effects `{expected}`")),
        }
    }
    if let Some(expected) = expect.text("busy_error_from") {
        findings.equal("refused as busy", &vec![expected.to_owned()], &log.busy);
        // What the hook queued was said.
        let said: Vec<_> = host.agent.history().iter().map(SessionTurn::text).collect();
        for text in ["steered", "followed up"] {
            findings.ensure(said.iter().any(|turn| turn == text), || format!("{text:?} was never delivered"));
        }
    }
}

fn conversation(host: &Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    let history = host.agent.history();
    if let Some(expected) = expect.take("results") {
        compare_results(expected, history.turns(), findings);
    }
    if let Some(mut inner) = expect.object("history") {
        if let Some(expected) = inner.take("results") {
            compare_results(expected, history.turns(), findings);
        }
        if inner.flag("every_call_answered_once_or_turn_absent") {
            let valid = validate_transcript(history.iter());
            findings.ensure(valid.is_ok(), || format!("{valid:?}"));
            let calls: usize = history.iter().map(|turn| turn.tool_calls().count()).sum();
            findings.equal("answers", &calls, &results(host).len());
        }
        inner.finish(findings);
    }
    if let Some(expected) = expect.take("history_tail") {
        let expected: Vec<_> = expected.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let lines: Vec<_> = history.iter().flat_map(lines).collect();
        let tail = &lines[lines.len().saturating_sub(expected.len())..];
        findings.equal("end of the conversation", expected.as_slice(), tail);
    }
    if expect.flag("session_unchanged") {
        // The prompt of the run that failed was said, and stays.
        let stored: Vec<_> = history.iter().cloned().collect();
        let (kept, added) = stored.split_at(host.before.len().min(stored.len()));
        findings.equal("turns from before", host.before.as_slice(), kept);
        let added: Vec<_> = added.iter().map(SessionTurn::text).collect();
        findings.equal("turns added", &["Go"][..], added.as_slice());
    }
    for key in expect.keys().filter_map(|key| key.strip_prefix("history_contains_")).collect::<Vec<_>>() {
        let expected = expect.take(&format!("history_contains_{key}")) == Some(&Value::Bool(true));
        let contains = history.iter().any(|turn| turn.text().contains(key));
        findings.equal(format!("whether the conversation contains {key:?}"), &expected, &contains);
    }
}

/// A turn in the words of `history_tail`.
fn lines(turn: &SessionTurn) -> Vec<String> {
    let mut lines = Vec::new();
    let calls: Vec<_> = turn.tool_calls().map(|call| call.id.as_str()).collect();
    let who = if turn.role == Role::Assistant { "assistant" } else { "user" };
    if !calls.is_empty() {
        lines.push(format!("{who} {}", calls.join(",")));
    }
    for block in &turn.content {
        match block {
            SessionContentBlock::Text(text) => lines.push(format!("{who} {}", text.text)),
            SessionContentBlock::ToolResult(result) if result.is_error => {
                lines.push(format!("result {} {} is_error", result.call_id, result.status.as_str()));
            }
            SessionContentBlock::ToolResult(result) => {
                lines.push(format!("result {} {}", result.call_id, tool_result_to_text(&result.output)));
            }
            _ => {}
        }
    }
    lines
}

fn state(host: &Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    let log = host.log.entries();
    let window = host.agent.tool_state();
    if let Some(expected) = expect.take("committed").and_then(Value::as_object) {
        for (key, value) in expected {
            match value {
                // A list is a key for each of its items, see the behaviour.
                Value::Array(items) => {
                    let prefix = format!("{key}/");
                    let keys = window.keys(&prefix);
                    let got: Vec<_> = keys.iter().filter_map(|key| key.strip_prefix(&prefix)).collect();
                    findings.equal(format!("items of {key}"), &Value::from(items.clone()), &json!(got));
                }
                value => findings.equal(format!("state of {key}"), &Some(value), &window.get(key).as_deref()),
            }
        }
    }
    for name in expect.list("not_committed").iter().filter_map(Value::as_str) {
        let item = format!("/{name}");
        let kept = window.keys("").iter().any(|key| &**key == name || key.ends_with(&item));
        let sent = log.commits.iter().any(|(_, keys)| keys.iter().any(|key| key == name || key.ends_with(&item)));
        findings.ensure(!kept && !sent, || format!("{name} was committed"));
    }
    if let Some(expected) = expect.number("commit_calls") {
        findings.equal("commits", &expected, &(log.commits.len() as u64));
    }
    if let Some(expected) = expect.take("commit_order") {
        let order: Vec<_> = log.commits.iter().map(|(call, _)| call).collect();
        findings.equal("order of commits", expected, &json!(order));
    }
    for key in expect.keys().filter(|key| key.starts_with("visible_to_")).collect::<Vec<_>>() {
        let call = key.trim_start_matches("visible_to_").trim_end_matches("_while_running");
        match expect.text(key).unwrap_or_default() {
            prose if log.commits.iter().any(|(other, _)| prose == format!("nothing staged by {other}")) => {
                let read = log.reads.iter().find(|(id, _)| id == call).map(|(_, read)| read);
                let Some(read) = read else { return findings.wrong(format!("{call} read nothing")) };
                // Nothing before it wrote, and afterwards its own item only.
                let own = read[1].as_array().map(Vec::len);
                findings.equal(format!("what {call} saw at first"), &json!([]), &read[0]);
                findings.equal(format!("number of items {call} saw later"), &Some(1), &own);
            }
            other => findings.need(format!("an adapter for {key} `{other}`")),
        }
    }
}

fn requests(host: &Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    let count = host.model.requests().len() as u64;
    if let Some(expected) = expect.number("requests") {
        findings.equal("requests", &expected, &count);
    }
    if let Some(most) = expect.number("requests_at_most") {
        let count = count + host.writer.requests().len() as u64;
        findings.ensure(count <= most, || format!("{count} requests and not at most {most}"));
    }
    if let Some(least) = expect.number("compactions_at_least") {
        let begins = |turn: Option<&SessionTurn>| turn.is_some_and(|turn| turn.origin == TurnOrigin::Summary);
        let mut firsts: Vec<_> = host.model.requests().iter().map(|request| request.turns.first().cloned()).collect();
        firsts.dedup();
        let made = firsts.iter().filter(|first| begins(first.as_ref())).count() as u64;
        findings.ensure(made >= least, || format!("{made} compactions and not {least}"));
    }
    if expect.flag("every_request_pair_safe") {
        for (number, request) in host.model.requests().iter().enumerate() {
            let valid = validate_transcript(&request.turns);
            findings.ensure(valid.is_ok(), || format!("request {}: {valid:?}", number + 1));
        }
    }
}

fn event_log(host: &Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    let run = host.last();
    if let Some(expected) = expect.text("event_log") {
        let mut aborted = false;
        for part in expected.split("; ") {
            let words: Vec<_> = part.split(' ').collect();
            match words.as_slice() {
                ["balanced", "brackets", "per", "id"] | ["one", "run-end,", "last"] => {
                    // Compared for every run.
                    aborted = came_to(run) == "aborted";
                }
                ["per", "call", count, "updates", "between", "start", "and", "end"] => {
                    let count: usize = count.parse().unwrap_or(0);
                    for call in results(host).iter().filter(|_| !aborted) {
                        let updates = Event::ToolUpdate(call.call_id.clone());
                        let got = run.events.iter().filter(|event| **event == updates).count();
                        findings.equal(format!("updates of {}", call.call_id), &count, &got);
                    }
                }
                _ => findings.need(format!("an adapter for the event log `{part}`")),
            }
        }
    }
    if let Some(expected) = expect.text("last_event") {
        let last = run.events.last();
        match expected {
            "run-end with error" => findings.equal("last event", &Some(&Event::Done { ok: false }), &last),
            "run-end" => findings.ensure(matches!(last, Some(Event::Done { .. })), || format!("{last:?} is last")),
            other => findings.need(format!("an adapter for the last event `{other}`")),
        }
    }
}

fn messages(host: &Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    if let Some(expected) = expect.take("queue_after") {
        let mut queued = host.agent.handle().queued(QueueKind::Steering);
        queued.extend(host.agent.handle().queued(QueueKind::FollowUp));
        let texts: Vec<_> = queued.iter().map(|message| prompt_text(&message.prompt)).collect();
        findings.equal("queue", expected, &json!(texts));
    }
    let ways: Vec<_> = expect.list("either").iter().filter_map(Value::as_str).collect();
    if ways.is_empty() {
        return;
    }
    let held: Vec<_> = ways.iter().map(|way| holds(host, way)).collect();
    for (way, held) in ways.iter().zip(&held) {
        if held.is_none() {
            findings.need(format!("an adapter for `{way}`"));
        }
    }
    if held.iter().all(Option::is_some) {
        findings.ensure(held.contains(&Some(true)), || format!("none holds: {}", ways.join("; ")));
    }
}

/// `request 2 contains 'x'` and `result.undelivered == ['x'] and history does not contain it`.
fn holds(host: &Host, way: &str) -> Option<bool> {
    let quoted = way.split('\'').nth(1)?;
    if let Some(rest) = way.strip_prefix("request ") {
        let (number, _) = rest.split_once(" contains ")?;
        let number: usize = number.parse().ok()?;
        if way != format!("request {number} contains '{quoted}'") {
            return None;
        }
        let requests = host.model.requests();
        let request = requests.get(number.checked_sub(1)?);
        return Some(request.is_some_and(|request| request.turns.iter().any(|turn| turn.text().contains(quoted))));
    }
    if way == format!("result.undelivered == ['{quoted}'] and history does not contain it") {
        let undelivered: Vec<_> = match &host.last().result {
            Some(Ok(outcome)) => outcome.undelivered.iter().map(|message| prompt_text(&message.prompt)).collect(),
            _ => Vec::new(),
        };
        let stored = host.agent.history().iter().any(|turn| turn.text().contains(quoted));
        return Some(undelivered == [quoted] && !stored);
    }
    None
}

async fn no_process(log: &Log, within: Duration, findings: &mut Findings) {
    let processes = log.entries().processes;
    findings.ensure(!processes.is_empty(), || "no process was started".to_owned());
    let deadline = tokio::time::Instant::now() + within;
    for process in processes {
        while is_alive(process) && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        findings.ensure(!is_alive(process), || format!("the child process still runs after {within:?}"));
    }
}

/// A process that ended and was not waited for yet does nothing any more.
fn is_alive(process: u32) -> bool {
    let status = std::process::Command::new("ps").args(["-o", "stat=", "-p", &process.to_string()]).output();
    status.is_ok_and(|output| {
        let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        !state.is_empty() && !state.starts_with('Z')
    })
}

/// What a further run on the same agent does.
async fn afterwards(host: &mut Host, expect: &mut Fields<'_>, findings: &mut Findings) {
    if let Some(text) = expect.text("next_run_request_contains") {
        host.model.push(Reply::text("next"));
        let first = host.run("And now?").await.first_request;
        let requests = host.model.requests();
        let mut own = requests[first..].iter();
        let contains = own.any(|request| request.turns.iter().any(|turn| turn.text().contains(text)));
        findings.ensure(contains, || format!("no request of the next run contains {text:?}"));
    }
    if let Some(expected) = expect.text("second_run") {
        host.model.push(Reply::text("again"));
        let got = came_to(host.run("Again").await);
        findings.equal("second run", expected, if got == "done" { "ok" } else { got });
    }
}
