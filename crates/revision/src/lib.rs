//! Revisions: how a rendered bundle gets onto the cluster and stays there (docs/design/apply.md).
//!
//! Pure parts: [`phases`] sorts objects, [`generate`] makes and compares ClusterObjectSets, [`packing`] and
//! [`content`] store and resolve their objects, [`digest`] guards them, [`validation`], [`plan`] and
//! [`probes`] judge objects, [`result`] and the collision report word the outcome.
//! [`sightings`] holds what watches have told, so that nothing is read without reason.
//! With I/O: [`engine`] applies and [`teardown`] removes objects through the small trait of [`cluster`], whose
//! implementation for a real API server is [`kube_cluster`]. A removal needs no more than the [`mod@record`] of a revision's
//! objects.
//!
//! The crate sets no conditions, keeps no watches and decides about no retries; that is the controllers' part.

pub mod canonical;
pub mod cluster;
pub mod content;
pub mod digest;
pub mod engine;
mod failure;
pub mod generate;
pub mod kube_cluster;
pub mod managed_fields;
mod memory;
pub mod object;
pub mod packing;
pub mod phases;
pub mod plan;
pub mod probes;
pub mod record;
mod report;
pub mod result;
pub mod sightings;
pub mod teardown;
pub mod validation;
