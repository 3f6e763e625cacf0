/// The call that a `tool:*` event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCallInfo {
    /// The call's id, as the provider gave it.
    pub call_id: String,
    /// The assistant turn that made it.
    pub turn_id: String,
    /// The canonical name: match policies against this.
    pub name: String,
    /// The name the model saw: show this.
    pub display_name: String,
    /// The model's argument text, unchanged.
    pub raw_arguments: String,
}
