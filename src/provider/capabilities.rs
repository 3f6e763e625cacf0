/// What a model takes and gives on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Images in user turns.
    pub images: bool,
    /// PDF documents in user turns, natively.
    pub documents: bool,
    /// Images inside tool results. Without it they follow in a user message after all results.
    pub images_in_tool_results: bool,
    /// PDF documents inside tool results.
    pub documents_in_tool_results: bool,
    /// Reasoning can be asked for.
    pub thinking: bool,
    /// The wire has a decisions endpoint.
    pub decisions: bool,
    /// Output can be held to a JSON schema by the provider.
    pub native_structured_output: bool,
}

impl Capabilities {
    /// Text and tools only.
    pub const TEXT: Self = Self {
        images: false,
        documents: false,
        images_in_tool_results: false,
        documents_in_tool_results: false,
        thinking: false,
        decisions: false,
        native_structured_output: false,
    };
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::TEXT
    }
}
