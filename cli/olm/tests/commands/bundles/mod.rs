//! `olm render`, `olm diff` and `olm rbac` with the real binary on small bundles, real bundles, a registry and an API
//! server.

mod cluster;
mod config;
mod diff;
mod fixture;
mod rbac;
mod real;
mod render;
