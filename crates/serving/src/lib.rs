//! The process of a server: command line, logs, life cycle, HTTPS with its certificates, probes and the metrics
//! endpoint.
//!
//! A server's `main` parses its flags with [`command_line::from_command_line`] and passes an async body to
//! [`run`]. This crate knows no catalog and no extension. Servers run on Linux only.

pub mod builtin;
#[cfg(target_os = "linux")]
pub mod ca_pool;
pub mod certificate;
#[cfg(target_os = "linux")]
mod client_authority;
pub mod command_line;
mod connection;
pub mod ephemeral;
pub mod flags;
pub mod https;
pub mod issue;
#[cfg(target_os = "linux")]
pub mod logs;
#[cfg(target_os = "linux")]
pub mod metrics_access;
pub mod probes;
#[cfg(target_os = "linux")]
pub mod service;
pub mod serving_certificate;
pub mod tls_profile;
#[cfg(target_os = "linux")]
mod traces;

#[cfg(target_os = "linux")]
pub use service::{Service, run};
