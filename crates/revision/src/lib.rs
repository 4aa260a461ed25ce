//! Revisions: application of rendered bundles to the cluster, and their maintenance (docs/design/apply.md).
//!
//! Pure parts: [`phases`] sorts objects, [`generate`] creates and compares ClusterObjectSets, [`packing`] and
//! [`content`] store and resolve their objects, [`digest`] detects changes, [`validation`], [`plan`] and [`probes`]
//! check objects, [`fields`] decides who owns each of their fields, [`blocked_pods`] explains unready ones,
//! [`result`] and the collision report contain the texts of the outcome. [`observed_versions`] holds
//! the versions that watches observed, to avoid reads. With I/O: [`engine`] applies and [`teardown`] removes objects
//! through the trait of [`cluster`]. Its implementation for an API server is [`kube_cluster`]. A removal needs only
//! the [`mod@record`] of a revision's objects. [`losses`] counts the custom resources that it would delete.
//!
//! The crate sets no conditions, runs no watches and decides about no retries. The controllers do.

pub mod blocked_pods;
pub mod canonical;
pub mod cluster;
pub mod content;
pub mod contention;
pub mod digest;
pub mod engine;
pub mod error;
pub mod fields;
pub mod generate;
pub mod immutable;
pub mod kube_cluster;
pub mod losses;
mod managed_fields;
mod memory;
pub mod object;
pub mod observed_versions;
pub mod ordering;
pub mod packing;
pub mod phases;
pub mod plan;
pub mod probes;
mod recent_objects;
pub mod record;
mod refused_names;
pub mod report;
pub mod result;
mod storage_version;
pub mod teardown;
pub mod validation;
