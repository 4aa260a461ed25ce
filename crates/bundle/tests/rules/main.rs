//! The rules of docs/design/bundles.md on small bundles, through the public interface. Tests name the acceptance cases
//! (docs/design/cases.md) that they cover.

#![allow(clippy::unwrap_used, clippy::panic)]

mod certificates;
mod configuring;
mod fixture;
mod loading;
mod obstacles;
mod rendering;
mod validating;
