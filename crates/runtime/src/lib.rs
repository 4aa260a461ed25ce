//! Runtime of the controllers of both servers: the connection to the API server, reconciles with backoff, background
//! work, the Lease, Events, status writes, metrics and feature gates.
//!
//! `olm-serving` builds the server processes on it. This crate knows no catalog and no extension.

pub mod api_warnings;
pub mod background;
pub mod backoff;
pub mod cluster;
pub mod component;
pub mod controller;
pub mod events;
pub mod gates;
pub mod go_value;
pub mod installations;
pub mod leadership;
pub mod lease;
pub mod listing;
pub mod message;
pub mod metrics;
pub mod pod;
mod process;
pub mod pull_secrets;
pub mod reconcile;
pub mod samples;
pub mod status;
pub mod traces;
pub mod watches;
pub mod workers;

pub use component::Component;
