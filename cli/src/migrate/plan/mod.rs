//! `olm migrate plan`: how each package of classic OLM becomes a ClusterExtension (docs/design/migration.md).

pub(crate) mod model;
