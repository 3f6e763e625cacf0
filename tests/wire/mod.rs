//! Recorded traffic against the crate's decoders and request builders.
//!
//! `corpus` reads the recordings; `expect` says, per wire and without the crate's decoders, what a recorded answer
//! means; `got` collects what the crate makes of it; `compare` names the differences; `cuts` re-cuts a body.

pub mod answer;
pub mod compare;
pub mod corpus;
pub mod cuts;
pub mod decode;
pub mod expect;
pub mod got;
pub mod runs;
