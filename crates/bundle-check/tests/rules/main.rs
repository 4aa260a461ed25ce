//! Each rule on a bundle that breaks it, and on one that does not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod dependencies;
mod fixture;
mod hostile;
mod loading;
mod manifests;
mod metadata;
mod rendering;
mod service_version;
