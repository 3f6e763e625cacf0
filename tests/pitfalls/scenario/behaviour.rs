//! Tools by what they do, e.g. `sleep:20 return:x`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use zidane::tool::{
    Concurrency, NoInput, Repeat, ToolContext, ToolError, ToolFn, ToolOutput, tool_fn_blocking, tool_fn_value,
};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::log::Log;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Return(String),
    Err(String),
    Panic(String),
    Sleep(Duration),
    BlockingSleep(Duration),
    Never,
    WaitForCancel,
    Effect,
    Progress(usize),
    Subprocess(Vec<String>),
    /// Adds the argument of that name to a list in the tool state.
    Append {
        list: String,
        argument: String,
    },
    /// Sets the key that the argument of that name says.
    Set {
        argument: String,
    },
    ErrIf {
        argument: String,
    },
    /// On the first call only.
    FirstTime(Box<Step>),
}

/// Whether something outside of tokio has to be waited for.
pub fn needs_real_time(tools: Option<&Value>) -> bool {
    let tools = tools.and_then(Value::as_object).into_iter().flatten();
    tools.filter_map(|(_, tool)| steps(text(tool))).flatten().any(|step| {
        let step = if let Step::FirstTime(step) = step { *step } else { step };
        matches!(step, Step::BlockingSleep(_) | Step::Subprocess(_))
    })
}

fn text(tool: &Value) -> &str {
    tool.as_str().or_else(|| tool["behaviour"].as_str()).unwrap_or_default()
}

/// The tools of a case. `None` when one does what is not known here.
pub fn tools(tools: Option<&Value>, log: &Arc<Log>, findings: &mut Findings) -> Option<Vec<ToolFn>> {
    let mut all = Vec::new();
    for (name, tool) in tools.and_then(Value::as_object).into_iter().flatten() {
        let mut fields = Fields::new("tools", tool);
        fields.take("behaviour");
        let sequential = fields.switch("sequential");
        let once = fields.take("idempotent") == Some(&Value::Bool(false));
        fields.finish(findings);
        let Some(steps) = steps(text(tool)) else {
            findings.need(format!("an adapter for the behaviour `{}`", text(tool)));
            return None;
        };
        let made = make(name, steps, log).repeat(if once { Repeat::Never } else { Repeat::Safe });
        all.push(if sequential { made.concurrency(Concurrency::Exclusive) } else { made });
    }
    Some(all)
}

fn make(name: &str, steps: Vec<Step>, log: &Arc<Log>) -> ToolFn {
    let calls = Arc::new(AtomicUsize::new(0));
    let log = Arc::clone(log);
    if steps.iter().any(|step| matches!(step, Step::BlockingSleep(_))) {
        return tool_fn_blocking(name, "A tool", move |_: NoInput, cx: ToolContext| {
            let _span = log.span(cx.call_id());
            for step in &steps {
                match step {
                    Step::BlockingSleep(time) => std::thread::sleep(*time),
                    Step::Return(text) => return Ok(text.clone()),
                    _ => {}
                }
            }
            Ok("ok".to_owned())
        });
    }
    let steps: Arc<[Step]> = steps.into();
    tool_fn_value(name, "A tool", json!({ "type": "object" }), move |input, cx| {
        let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
        let (steps, log) = (Arc::clone(&steps), Arc::clone(&log));
        async move {
            let _span = log.span(cx.call_id());
            for step in steps.iter() {
                let step = match step {
                    Step::FirstTime(step) if first => step,
                    Step::FirstTime(_) => continue,
                    step => step,
                };
                if let Some(output) = perform(step, &input, &cx, &log).await? {
                    return Ok(output);
                }
            }
            Ok("ok".into())
        }
    })
}

async fn perform(step: &Step, input: &Value, cx: &ToolContext, log: &Log) -> Result<Option<ToolOutput>, ToolError> {
    let argument = |name: &String| input[name.as_str()].as_str().unwrap_or_default().to_owned();
    match step {
        Step::Return(text) => return Ok(Some(text.as_str().into())),
        Step::Err(text) => return Err(text.clone().into()),
        // As a panic unwinds, but without its message on the test's output.
        Step::Panic(text) => std::panic::resume_unwind(Box::new(text.clone())),
        Step::Sleep(time) => tokio::time::sleep(*time).await,
        Step::Never => std::future::pending().await,
        Step::WaitForCancel => {
            cx.cancelled().await;
            log.add(|entries| entries.cancelled.push(cx.call_id().to_owned()));
        }
        Step::Effect => log.add(|entries| entries.effects += 1),
        Step::Progress(times) => {
            for number in 0..*times {
                cx.progress(number.to_string()).await?;
            }
        }
        Step::Subprocess(words) => {
            let mut command = tokio::process::Command::new(&words[0]);
            let mut child = command.args(&words[1..]).kill_on_drop(true).spawn()?;
            log.add(|entries| entries.processes.extend(child.id()));
            child.wait().await?;
        }
        // The state has keys and values and merges nothing: a list that calls may add to at the same time is a key for
        // each of its items.
        Step::Append { list, argument: name } => {
            let prefix = format!("{list}/");
            let seen: Vec<_> = cx.state().keys(&prefix).iter().map(ToString::to_string).collect();
            cx.state().set(format!("{prefix}{}", argument(name)), true)?;
            // The others stage theirs meanwhile.
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            let later: Vec<_> = cx.state().keys(&prefix).iter().map(ToString::to_string).collect();
            log.add(|entries| entries.reads.push((cx.call_id().to_owned(), json!([seen, later]))));
        }
        Step::Set { argument: name } => cx.state().set(argument(name), true)?,
        Step::ErrIf { argument } if input[argument.as_str()] == Value::Bool(true) => return Err("failed".into()),
        Step::BlockingSleep(_) | Step::ErrIf { .. } | Step::FirstTime(_) => {}
    }
    Ok(None)
}

fn steps(behaviour: &str) -> Option<Vec<Step>> {
    if let Some(rest) = behaviour.strip_prefix("blocking sleep:") {
        let time = rest.strip_suffix(" via the sync-tool adapter")?.parse().ok()?;
        return Some(vec![Step::BlockingSleep(Duration::from_millis(time))]);
    }
    let mut all = Vec::new();
    for part in behaviour.split(" then ").flat_map(|part| part.split(';')) {
        let part = part.trim().trim_end_matches(',');
        let (part, first) = part.strip_suffix(" first time").map_or((part, false), |part| (part, true));
        let mut rest = part;
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            all.push(if first { Step::FirstTime(Box::new(step)) } else { step });
            rest = after.trim_start();
        }
    }
    (!all.is_empty()).then_some(all)
}

type Make = fn(&str) -> Step;

/// The first step of a text, and the rest.
fn step(text: &str) -> Option<(Step, &str)> {
    let whole: [(&str, Make); 4] = [
        ("return:", |rest| Step::Return(rest.to_owned())),
        ("err:", |rest| Step::Err(rest.to_owned())),
        ("panic:", |rest| Step::Panic(rest.to_owned())),
        ("subprocess:", |rest| Step::Subprocess(rest.split_whitespace().map(str::to_owned).collect())),
    ];
    if let Some((prefix, make)) = whole.iter().find(|(prefix, _)| text.starts_with(prefix)) {
        return Some((make(&text[prefix.len()..]), ""));
    }
    let argument = |text: &str| Some(text.trim().strip_prefix('<')?.strip_suffix('>')?.to_owned());
    if let Some(rest) = text.strip_prefix("state.append ") {
        let (list, name) = rest.split_once(' ')?;
        return Some((Step::Append { list: list.to_owned(), argument: argument(name)? }, ""));
    }
    if let Some(rest) = text.strip_prefix("state.set ") {
        return Some((Step::Set { argument: argument(rest)? }, ""));
    }
    if let Some(rest) = text.strip_prefix("err if ") {
        return Some((Step::ErrIf { argument: rest.trim().to_owned() }, ""));
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let step = match word.split_once(':') {
        Some(("sleep", time)) => Step::Sleep(Duration::from_millis(time.parse().ok()?)),
        Some(("progress", times)) => Step::Progress(times.parse().ok()?),
        None if word == "never" => Step::Never,
        None if word == "wait_for_cancel" => Step::WaitForCancel,
        None if word == "effect" => Step::Effect,
        _ => return None,
    };
    Some((step, rest))
}

#[test]
fn behaviours_are_read() {
    let ms = Duration::from_millis;
    assert_eq!(steps("sleep:20 return:a b"), Some(vec![Step::Sleep(ms(20)), Step::Return("a b".into())]));
    assert_eq!(steps("effect then return:ok"), Some(vec![Step::Effect, Step::Return("ok".into())]));
    assert_eq!(
        steps("panic:boom first time, then return:ok"),
        Some(vec![Step::FirstTime(Box::new(Step::Panic("boom".into()))), Step::Return("ok".into())])
    );
    assert_eq!(
        steps("state.append items <item>; state.set <key>; err if fail"),
        Some(vec![
            Step::Append { list: "items".into(), argument: "item".into() },
            Step::Set { argument: "key".into() },
            Step::ErrIf { argument: "fail".into() },
        ])
    );
    assert_eq!(steps("dance"), None);
    assert_eq!(steps("sleep:20 dance"), None);
}
