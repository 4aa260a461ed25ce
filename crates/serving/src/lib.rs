//! The process of a server: command line, logs, life cycle, HTTPS with its certificates, probes and the metrics
//! endpoint.
//!
//! A server's `main` parses its flags with [`command_line::from_command_line`] and passes an async body to
//! [`service::run`]. This crate knows no catalog and no extension.

pub mod builtin;
pub mod ca_pool;
pub mod certificate;
mod client_authority;
pub mod command_line;
mod connection;
pub mod flags;
pub mod https;
pub mod issue;
pub mod logs;
pub mod metrics_access;
pub mod probes;
pub mod service;
pub mod serving_certificate;
pub mod tls_profile;

pub use service::{Service, run};
