//! Shared frame of the two servers: flags, logs, certificates, probes, metrics, leader election, backoff, status
//! writes and shutdown.
//!
//! A server's `main` parses its flags with [`command_line::from_command_line`] and passes an async body to
//! [`service::run`]. This crate knows no catalog and no extension.

pub mod api_warnings;
pub mod background;
pub mod backoff;
pub mod builtin;
pub mod ca_pool;
pub mod certificate;
mod client_authority;
pub mod cluster;
pub mod command_line;
pub mod component;
mod connection;
pub mod controller;
pub mod events;
pub mod flags;
pub mod gates;
pub mod go_value;
pub mod https;
mod installations;
pub mod issue;
pub mod lease;
pub mod logs;
pub mod message;
pub mod metrics;
pub mod metrics_access;
pub mod pod;
pub mod probes;
mod process;
pub mod pull_secrets;
pub mod reconcile;
pub mod samples;
pub mod service;
pub mod status;
pub mod tls_profile;
pub mod workers;

pub use component::Component;
pub use service::{Service, run};
