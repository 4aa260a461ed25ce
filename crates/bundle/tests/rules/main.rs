//! Tests of the rules in docs/design/bundles.md with small bundles through the public API. They name the acceptance
//! cases (docs/design/cases.md) that they cover.

#![allow(clippy::unwrap_used, clippy::panic)]

mod aggregated;
mod certificates;
mod config_warnings;
mod configuring;
mod fixture;
mod install_checks;
mod interception;
mod loading;
mod rendering;
mod selecting;
mod validating;
