//! Tests of resolving and pulling against an in-process TLS registry with fault injection.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step of a test ends it")]

mod archives;
mod bundles;
mod faults;
mod fixture;
mod inspection;
mod local;
mod network;
mod registries;
mod working;
