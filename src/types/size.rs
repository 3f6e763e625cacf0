use std::borrow::Cow;

use super::ToolResultBody;

/// Wire size.
#[must_use]
pub fn tool_output_byte_length(_output: &ToolResultBody) -> usize {
    0
}

/// Reading size.
#[must_use]
pub fn tool_output_budget_byte_length(_output: &ToolResultBody) -> usize {
    0
}

/// Flattener.
#[must_use]
pub fn tool_result_to_text(_output: &ToolResultBody) -> Cow<'_, str> {
    Cow::Borrowed("")
}
