//! What protects a cluster, on real servers and a real kube-apiserver: accounts with exactly the rights that they need
//! (spec 08 R-8, spec 06 §1.6), admission policies (spec 06 §1.12), and secrets that stay secret (spec 06 §10.2).

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

mod field;
mod hardened;
mod hostile;
mod impersonation;
mod policies;
mod secrets;
mod setting;
mod stolen;

const PROGRAM: &str = env!("CARGO_BIN_EXE_operator-controller");
