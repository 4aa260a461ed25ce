//! `olm install`, `olm upgrade` and `olm uninstall` with the real binary, an API server, and bundles in a registry.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod install;
#[path = "../program/mod.rs"]
mod program;
mod together;
mod uninstall;
mod upgrade;
mod waiting;
mod world;
