//! Commands of `olm`, with the real binary. One program for all, because linking takes longer than most tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

extern crate olm_tokio as tokio;

mod author;
mod bundle_generate;
mod bundle_validate;
mod bundles;
mod changing;
mod cluster_check;
mod console;
mod doctor;
mod fixture;
mod hardened;
mod migrate;
mod reading;
mod revisions;
mod system;
