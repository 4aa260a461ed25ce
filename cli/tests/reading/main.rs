//! Commands that read catalogs, with the real binary on small catalogs, images and a cluster.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod cluster;
mod crd_check;
mod exit_codes;
mod field_data;
mod golden;
mod hostile;
mod images;
#[path = "../program/mod.rs"]
mod program;
mod resolve;
mod resolve_vectors;
mod run;
