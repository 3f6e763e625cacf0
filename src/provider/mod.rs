//! Floor 2: model providers.
//!
//! In comes a [`ModelRequest`], out comes a [`ProviderStream`] of [`StreamEvent`]s or a [`ProviderError`]. A provider
//! knows its wire and nothing of agents, tools, hooks or sessions' storage.

mod answer_json;
#[cfg(feature = "anthropic")]
mod anthropic;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod arguments;
mod capabilities;
mod context_window;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod delay;
#[cfg(feature = "openai")]
mod delta_shape;
mod error;
mod event;
#[cfg(feature = "gemini")]
mod gemini;
mod history;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
pub(crate) mod http;
#[cfg(feature = "http")]
mod idle_body;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod json_string;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod lenient;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod limits;
#[cfg(feature = "http")]
mod link;
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
pub(crate) mod media;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod media_fit;
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod names;
#[cfg(feature = "openai")]
pub mod openai_chat;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
pub(crate) mod openai_error;
#[cfg(feature = "openai")]
pub mod openai_responses;
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod outgoing;
mod output_schema;
#[cfg_attr(not(feature = "anthropic"), allow(dead_code, reason = "the one wire that binds uses it"))]
mod prefix_digest;
mod prices;
mod request;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
pub(crate) mod response;
mod retry;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod root_schema;
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod secret;
pub mod sse;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod vendor_words;
#[cfg(feature = "http")]
#[cfg_attr(
    not(all(feature = "anthropic", feature = "openai", feature = "gemini")),
    allow(dead_code, reason = "each wire uses its part")
)]
mod wire;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::Stream;

pub(crate) use answer_json::json_of;
#[cfg(feature = "anthropic")]
pub use anthropic::{Anthropic, AnthropicBuilder};
pub use capabilities::Capabilities;
pub use error::{ProviderError, ProviderErrorKind};
pub use event::{StreamEvent, UsageSnapshot};
#[cfg(feature = "gemini")]
pub use gemini::{Gemini, GeminiBuilder};
pub use history::{BodyCache, EncodedBody, History, HistoryTurn};
#[cfg(feature = "http")]
pub use http::HttpOptions;
#[cfg(feature = "openai")]
pub use openai_chat::{ChatProfile, OpenAiChat};
#[cfg(feature = "openai")]
pub use openai_responses::{OpenAi, ResponsesProfile};
pub use output_schema::OutputSchema;
pub use prices::{PriceBook, Rates};
pub use request::{
    ModelRequest, ReaderAway, RequestContext, RequestHead, ThinkingLevel, ToolChoice, ToolDefinition, ToolNames,
    WireObserver, WireRequest, WireResponse,
};
#[cfg(feature = "http")]
pub use response::RawResponse;
pub use retry::RetryPolicy;
pub use secret::Secret;

use crate::types::{SessionContentBlock, SessionTurn};

/// A model behind an API.
///
/// `stream` sends one request and gives the answer as it arrives. It never retries: the loop does. Dropping the
/// future or the stream closes the connection.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The name under which usage and errors are filed, e.g. `anthropic`.
    fn id(&self) -> &str;

    /// What a model takes and gives. Default: text and tools only.
    fn capabilities(&self, model: &str) -> Capabilities {
        let _ = model;
        Capabilities::TEXT
    }

    /// The most tokens that a conversation with a model may have. Default: what a built-in table knows of the model, by
    /// the provider's id; `None` where it knows nothing.
    fn context_window(&self, model: &str) -> Option<u64> {
        context_window::context_window(self.id(), model)
    }

    /// Sends the request.
    ///
    /// Media of earlier turns that `model` cannot take are no error, or a conversation would be stuck with what it once
    /// held: a text stands for them, the same at every request.
    ///
    /// # Errors
    /// Anything that went wrong before the answer began; later errors come through the stream, as its last item.
    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError>;

    /// How a turn that finished with `pause` is continued. Decided from the stored turn alone.
    fn resume(&self, turn: &SessionTurn) -> Resume {
        let _ = turn;
        Resume::UserText
    }

    /// Checks that the blocks of a new user turn can be sent to `model`, before anything is stored or sent.
    ///
    /// # Errors
    /// `Unsupported`, naming the index and type of the first block that cannot.
    fn check(&self, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        let _ = (model, content);
        Ok(())
    }
}

#[async_trait]
impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn id(&self) -> &str {
        (**self).id()
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        (**self).capabilities(model)
    }

    fn context_window(&self, model: &str) -> Option<u64> {
        (**self).context_window(model)
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        (**self).stream(request, cx).await
    }

    fn resume(&self, turn: &SessionTurn) -> Resume {
        (**self).resume(turn)
    }

    fn check(&self, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        (**self).check(model, content)
    }
}

/// How a paused turn is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resume {
    /// By a user turn `Please continue.`
    UserText,
    /// By sending the conversation again as it is, ending in the paused turn.
    AsIs,
    /// By a token that the provider gave; the wire builder finds it in the paused turn.
    Token,
    /// By the host alone: an approval or an item of its side is missing, which no text stands for. The run ends.
    Host,
}

impl Resume {
    /// Whether the conversation is sent again with the paused turn at its end.
    #[must_use]
    pub const fn is_sent_again(self) -> bool {
        matches!(self, Self::AsIs | Self::Token)
    }
}

/// The answer as it arrives. Pull based: nothing runs while nobody polls.
pub struct ProviderStream {
    inner: Pin<Box<dyn Stream<Item = Result<StreamEvent, ProviderError>> + Send>>,
}

impl ProviderStream {
    /// Wraps a stream. It ends after a `Finish` event or an error.
    pub fn new(stream: impl Stream<Item = Result<StreamEvent, ProviderError>> + Send + 'static) -> Self {
        Self { inner: Box::pin(stream) }
    }
}

impl Stream for ProviderStream {
    type Item = Result<StreamEvent, ProviderError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.as_mut().poll_next(cx)
    }
}

impl std::fmt::Debug for ProviderStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderStream").finish_non_exhaustive()
    }
}
