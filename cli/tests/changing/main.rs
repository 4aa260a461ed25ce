//! `olm install`, `olm upgrade` and `olm uninstall`, as users run them: the real binary, a real API server, bundles in a registry.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod install;
#[path = "../program/mod.rs"]
mod program;
mod together;
mod uninstall;
mod upgrade;
mod waiting;
mod world;
