mod decoding;
mod encoding;
mod provider;
