mod binding;
mod decoding;
mod encoding;
mod provider;
