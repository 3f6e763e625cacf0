mod decoding;
mod encoding;
mod provider;
mod turns;
