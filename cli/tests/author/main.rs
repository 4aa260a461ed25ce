//! End-to-end tests of the authoring commands with the real binary and a TLS registry: init, add, validate, build,
//! push, and reading back. Each command also gets an input that it must reject.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step of a test ends it")]

mod publishing;
mod refusals;
mod workshop;
