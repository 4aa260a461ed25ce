//! Controllers of the library against a real API server.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;
mod platform;
mod revision;
