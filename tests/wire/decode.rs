//! The crate's own decoders, one per protocol.

use bytes::Bytes;

use super::corpus::{Exchange, Protocol};
use super::got::Got;

pub fn is_built(protocol: Protocol) -> bool {
    match protocol {
        Protocol::Anthropic | Protocol::Chat => true,
        Protocol::Left => false,
    }
}

/// Decodes a body given in these reads.
pub fn decode(protocol: Protocol, vendor: &str, exchange: &Exchange, pieces: Vec<Bytes>) -> Got {
    let _ = (protocol, vendor, exchange, pieces);
    Got::default()
}
