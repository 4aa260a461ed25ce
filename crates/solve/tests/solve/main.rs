//! Plans and conflicts of small worlds, and random worlds compared with brute force.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod conflicts;
mod field;
mod fixture;
mod plans;
mod random;
