//! The crate's own decoders, one per protocol.

use bytes::Bytes;
use zidane::provider::openai_chat::{ChatProfile, OpenAiChat};
use zidane::provider::openai_responses::{OpenAi, ResponsesProfile};
use zidane::provider::{Anthropic, Gemini, RawResponse};
use zidane::{Agent, AgentBuilder};

use super::corpus::{Exchange, Protocol};
use super::got::{self, Got};

pub fn is_built(protocol: Protocol) -> bool {
    match protocol {
        Protocol::Anthropic | Protocol::Chat | Protocol::Responses | Protocol::Gemini => true,
        Protocol::Left => false,
    }
}

/// Decodes a body given in these reads.
pub fn decode(protocol: Protocol, vendor: &str, exchange: &Exchange, pieces: Vec<Bytes>) -> Got {
    let model = exchange.model();
    let response = RawResponse::recorded(exchange.status, exchange.headers.clone(), pieces);
    got::collect(|| match protocol {
        Protocol::Chat => chat(vendor, "http://127.0.0.1:9/v1").decode(&model, response),
        Protocol::Anthropic => anthropic(vendor, "http://127.0.0.1:9").decode(&model, response),
        Protocol::Responses => responses(vendor, "http://127.0.0.1:9/v1").decode(&model, response),
        Protocol::Gemini => gemini(vendor, "http://127.0.0.1:9").decode(&model, response),
        Protocol::Left => unreachable!("not built"),
    })
}

/// An agent on the crate's provider for that protocol, with a server at `url`.
pub fn agent(protocol: Protocol, vendor: &str, url: &str) -> AgentBuilder {
    match protocol {
        Protocol::Chat => Agent::builder().provider(chat(vendor, &format!("{url}/v1"))),
        Protocol::Anthropic => Agent::builder().provider(anthropic(vendor, url)),
        Protocol::Responses => Agent::builder().provider(responses(vendor, &format!("{url}/v1"))),
        Protocol::Gemini => Agent::builder().provider(gemini(vendor, url)),
        Protocol::Left => unreachable!("not built"),
    }
}

fn responses(vendor: &str, url: &str) -> OpenAi {
    let profile = ResponsesProfile::by_vendor(vendor).unwrap_or_else(|| ResponsesProfile::custom(url.to_owned()));
    OpenAi::builder().profile(profile).base_url(url).api_key("test").build().unwrap()
}

fn anthropic(vendor: &str, url: &str) -> Anthropic {
    Anthropic::builder().id(vendor).base_url(url).api_key("test").build().unwrap()
}

fn gemini(vendor: &str, url: &str) -> Gemini {
    Gemini::builder().id(vendor).base_url(url).api_key("test").build().unwrap()
}

/// The provider as a host would set it up for a vendor; one without a profile of its own gets the plain one.
fn chat(vendor: &str, url: &str) -> OpenAiChat {
    let profile = ChatProfile::by_vendor(vendor).unwrap_or_else(|| ChatProfile::custom(url.to_owned()));
    OpenAiChat::builder().profile(profile).base_url(url).api_key("test").build().unwrap()
}
