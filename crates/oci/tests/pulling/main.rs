//! Resolving and pulling against a real registry in this process, over TLS.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step of a test ends it")]

mod faults;
mod setting;
mod working;
