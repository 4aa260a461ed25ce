//! The rules of spec 04 on small bundles, through the public interface. Tests name the acceptance cases
//! (spec 04 §18) that they cover.

#![allow(clippy::unwrap_used, clippy::panic)]

mod certificates;
mod configuring;
mod fixture;
mod loading;
mod obstacles;
mod rendering;
mod validating;
