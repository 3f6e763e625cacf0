use super::{Failure, Said};

const WORDS: [&str; 8] = ["the ", "model ", "adds ", "two ", "small ", "numbers ", "and ", "so "];

/// What a scripted model says, named by the model: `loop-TURNS-DELTAS`, `par-CALLS` or `text-BYTES-CHUNK`.
#[derive(Debug)]
pub(crate) struct Script {
    kind: Kind,
    /// Model turns of one run.
    pub(crate) turns: usize,
    /// Tool calls of one run.
    pub(crate) calls: usize,
    deltas: usize,
    bytes: usize,
    ending: String,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Loop { turns: usize, deltas: usize },
    Other,
}

/// The arguments of call `k` are `k` and `2k + 1`.
pub(crate) fn operands(call: usize) -> (usize, usize) {
    (call, 2 * call + 1)
}

impl Script {
    pub(crate) fn parse(model: &str) -> Result<Self, Failure> {
        // What follows an underscore tells the server how to send it.
        let name = model.split('_').next().unwrap_or_default();
        let parts: Vec<_> = name.split('-').collect();
        match *parts.as_slice() {
            ["loop", turns, deltas] => Ok(Self::tool_loop(turns.parse()?, deltas.parse()?)),
            ["par", calls] => {
                let calls = calls.parse()?;
                let ending = format!("done:{calls}");
                let bytes = ending.len() + 8;
                Ok(Self { kind: Kind::Other, turns: 2, calls, deltas: 2, bytes, ending })
            }
            ["text", bytes, chunk] => {
                let (bytes, chunk) = (size(bytes)?, size(chunk)?.max(1));
                let deltas = bytes.div_ceil(chunk);
                Ok(Self { kind: Kind::Other, turns: 1, calls: 0, deltas, bytes, ending: String::new() })
            }
            _ => Err(format!("unknown script {model}").into()),
        }
    }

    fn tool_loop(turns: usize, deltas: usize) -> Self {
        let ending = format!("done:{turns}");
        let words: usize = (0..=turns).flat_map(|turn| words(turn, deltas)).map(str::len).sum();
        Self {
            kind: Kind::Loop { turns, deltas },
            turns: turns + 1,
            calls: turns,
            deltas: (turns + 1) * deltas + 1,
            bytes: words + ending.len(),
            ending,
        }
    }

    /// Turns with a call, and deltas a turn, of a loop.
    pub(crate) fn loop_shape(&self) -> Option<(usize, usize)> {
        match self.kind {
            Kind::Loop { turns, deltas } => Some((turns, deltas)),
            Kind::Other => None,
        }
    }

    /// What the results of a run's calls add up to.
    pub(crate) fn sum(&self) -> usize {
        (0..self.calls).map(operands).map(|(a, b)| a + b).sum()
    }

    pub(crate) fn check(&self, said: &Said) -> Result<(), Failure> {
        let loop_deltas = self.loop_shape().map(|_| self.deltas as u64);
        if said.bytes != self.bytes as u64 || loop_deltas.is_some_and(|deltas| said.deltas != deltas) {
            let (bytes, deltas) = (self.bytes, self.deltas);
            let Said { bytes: got_bytes, deltas: got_deltas, .. } = said;
            return Err(format!(
                "{got_bytes} bytes of text in {got_deltas} deltas, the script has {bytes} in {deltas}"
            )
            .into());
        }
        let whole = self.turns == 1 && said.answer.len() != self.bytes;
        if whole || !said.answer.ends_with(&self.ending) {
            return Err(format!("the answer does not end with {:?}, or is not whole", self.ending).into());
        }
        Ok(())
    }
}

/// The text deltas of one turn of a loop, but for the ending of the last.
pub(crate) fn words(turn: usize, deltas: usize) -> impl Iterator<Item = &'static str> {
    WORDS.iter().cycle().skip(turn % WORDS.len()).take(deltas).copied()
}

fn size(text: &str) -> Result<usize, Failure> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..) {
        Some("K" | "KB") => 1 << 10,
        Some("M" | "MB") => 1 << 20,
        Some("") => 1,
        _ => return Err(format!("{text} is no size").into()),
    };
    digits.parse::<usize>()?.checked_mul(factor).ok_or_else(|| format!("{text} is too large").into())
}
