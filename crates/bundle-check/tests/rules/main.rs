//! Tests of each rule with a bundle that violates it and one that does not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod conversion;
mod csv;
mod dependencies;
mod files;
mod fixture;
mod hostile;
mod loading;
mod manifests;
mod metadata;
mod rendering;
mod traps;
