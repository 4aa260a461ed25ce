//! Adoption against a real API server and the real revision controller.

mod helm;
mod revisions;
mod world;

pub(crate) use world::Release;
