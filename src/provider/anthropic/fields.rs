//! Fields of the request's head, as they are written.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::super::RequestHead;
use super::super::names::NameRule;
use super::super::prefix_digest::PrefixDigest;
use super::schema::{fits_strict, lowered};

/// The API refuses a request with more; the arguments of the others are checked here all the same.
const MAX_STRICT_TOOLS: usize = 20;

#[derive(Clone, Copy, Serialize)]
pub(super) struct CacheControl {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
}

impl CacheControl {
    pub(super) const EPHEMERAL: Self = Self { kind: "ephemeral" };

    pub(super) fn when(wanted: bool) -> Option<Self> {
        wanted.then_some(Self::EPHEMERAL)
    }
}

#[derive(Serialize)]
pub(super) struct System<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    pub(super) name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: &'a str,
    pub(super) input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

pub(super) fn tools(head: &RequestHead, marks: bool) -> Vec<Tool<'_>> {
    let last = head.tools.len().saturating_sub(1);
    let mut strict_left = MAX_STRICT_TOOLS;
    head.tools
        .iter()
        .enumerate()
        .map(|(place, tool)| Tool {
            name: NameRule::PORTABLE.wire_name(head.names.display(&tool.name)),
            description: tool.description.trim(),
            input_schema: lowered(&tool.input_schema),
            strict: tool.strict && fits_strict(&tool.input_schema) && take_one(&mut strict_left),
            cache_control: CacheControl::when(marks && place == last),
        })
        .collect()
}

#[derive(Serialize)]
pub(super) struct Choice<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
pub(super) struct ThinkingField {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget_tokens: Option<u32>,
}

impl ThinkingField {
    pub(super) const fn of(kind: &'static str) -> Self {
        Self { kind, budget_tokens: None }
    }
}

#[derive(Serialize)]
pub(super) struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) format: Option<Format>,
}

#[derive(Serialize)]
pub(super) struct Format {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) schema: Value,
}

fn take_one(left: &mut usize) -> bool {
    let taken = *left > 0;
    *left = left.saturating_sub(1);
    taken
}

/// What reasoning is bound to before the first message. Cache marks are no part of it.
///
/// # Errors
/// Of tools that are no JSON.
pub(super) fn digest(head: &RequestHead) -> serde_json::Result<PrefixDigest> {
    let mut digest = PrefixDigest::new();
    match (head.extra.get("system"), &head.system) {
        (Some(own), _) => digest.add(&serde_json::to_vec(own)?),
        (None, Some(system)) if !system.trim().is_empty() => digest.add(system.as_bytes()),
        (None, _) => digest.add(b""),
    }
    match head.extra.get("tools") {
        Some(own) => digest.add(&serde_json::to_vec(own)?),
        None => digest.add(&serde_json::to_vec(&tools(head, false))?),
    }
    Ok(digest)
}
