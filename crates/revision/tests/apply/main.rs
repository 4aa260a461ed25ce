//! The engine against a real API server, which alone decides about server-side apply, dry runs and owner references.
//! The tests reuse a control plane.

#![allow(clippy::unwrap_used, reason = "a test fails at the first error")]

extern crate olm_tokio as tokio;

mod conversion;
mod derived;
mod fields;
mod fixture;
mod fresh;
mod namespaces;
mod nulls;
mod others;
mod ownership;
mod removal;
mod replacement;
mod rollout;
