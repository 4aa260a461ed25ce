//! `olm render`, `olm diff` and `olm rbac` with the real binary on small bundles, real bundles, a registry and an API
//! server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod cluster;
mod diff;
#[path = "../program/mod.rs"]
mod program;
mod rbac;
mod real;
mod render;
mod setting;
