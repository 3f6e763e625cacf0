use std::io::{self, Write};

use super::tool_step::ToolOut;
use crate::types::ToolStatus;

/// What a record has beside what its step returned: its key and times.
const ENVELOPE: usize = 1024;

/// Keeps a result within what an engine records: one that is larger is replaced by one that says so. What the call
/// staged goes with it where that is what is too large.
pub(super) fn fit(out: &mut ToolOut, limit: usize) {
    let limit = limit.saturating_sub(ENVELOPE);
    let bytes = size(out);
    if bytes <= limit {
        return;
    }
    let text = format!(
        "The call was made, but its result cannot be kept: it is {bytes} bytes on record, more than the {limit} that can \
         be. Ask for less at a time."
    );
    out.error = Some(format!("result_too_large: {bytes} bytes on record, the limit is {limit}"));
    out.result.status = ToolStatus::Error;
    out.result.is_error = true;
    out.result.output = text.into();
    out.result.structured = None;
    if size(out) > limit {
        out.ops = Vec::new();
        out.result.output = format!("{} What it wrote to the tool state is lost too.", text_of(out)).into();
    }
}

fn text_of(out: &ToolOut) -> String {
    crate::types::tool_result_to_text(&out.result.output).into_owned()
}

fn size(out: &ToolOut) -> usize {
    let mut counter = Counter(0);
    // Neither the counter nor these types fail; a failure would come up again where it is recorded.
    let _ = serde_json::to_writer(&mut counter, out);
    counter.0
}

struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
