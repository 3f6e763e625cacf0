//! Encodes requests, or decodes an answer, without a network: what an instruction counter is pointed at.
//!
//! ```text
//! bench_wire anthropic decode 100       # an answer of 100 text deltas, a chunk of the body each, decoded as many times
//! bench_wire openai append 1000         # a conversation that grows by a call and its result, encoded at each turn
//! bench_wire anthropic cold 10          # a conversation of 1,000 turns, encoded from nothing as many times
//! bench_wire gemini arguments 100000    # an answer with a call whose arguments are so long, decoded once
//! bench_wire responses call 100000      # a conversation with such a call, encoded once
//! ```
//!
//! The wires: anthropic, openai (Chat), responses, gemini.

#[path = "../../benches/support/traffic.rs"]
mod traffic;
#[path = "../../benches/support/wires.rs"]
mod wires;

use std::process::ExitCode;

use self::traffic::Failure;
use self::wires::Wire;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(checked) => {
            println!("{checked}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_wire: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<usize, Failure> {
    let [wire, work, count] = words else { return Err("give a wire, what to do, and how often".into()) };
    let wire = Wire::new(wire)?;
    let count: usize = count.parse()?;
    match work.as_str() {
        "decode" => {
            let answer = wire.answer(100);
            let mut bytes = 0;
            for _ in 0..count {
                bytes += futures::executor::block_on(wire.decode(answer.clone()))?;
            }
            Ok(bytes)
        }
        "append" => wire.append(count),
        "cold" => {
            let conversation = traffic::conversation(1_000);
            let mut bytes = 0;
            for _ in 0..count {
                bytes = wire.encode(&traffic::request(conversation.clone()))?;
            }
            Ok(bytes)
        }
        "arguments" => futures::executor::block_on(wire.decode(wire.long_answer(count))),
        "call" => wire.encode(&traffic::request(traffic::long_call(count))),
        _ => Err(format!("unknown work {work}").into()),
    }
}
