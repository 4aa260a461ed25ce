//! `olm status`, `olm history` and `olm rollback`, as users run them: the real binary on a real API server, where revisions are
//! made by the engine that operator-controller uses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod help;
mod history;
#[path = "../program/mod.rs"]
mod program;
mod rollback;
mod setting;
mod status;
