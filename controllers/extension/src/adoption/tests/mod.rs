//! Adoption against a real API server and the real revision controller.

mod fixture;
mod helm;
mod revisions;

pub(crate) use fixture::Release;
