//! Resolving and pulling against a registry in this process, over TLS, with faults on demand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step of a test ends it")]

mod archives;
mod bundles;
mod faults;
mod network;
mod registries;
mod setting;
mod working;
