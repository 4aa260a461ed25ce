//! The author's loop with the real program and a real TLS registry: init, add, validate, build, push, and reading back. Each
//! command also gets an input that it must refuse.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step of a test ends it")]

mod publishing;
mod refusals;
mod workshop;
