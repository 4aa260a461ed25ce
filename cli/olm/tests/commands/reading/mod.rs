//! Commands that read catalogs, with the real binary on small catalogs, images and a cluster.

pub(crate) mod cluster;
mod crd_check;
mod duplicates;
mod exit_codes;
mod field_data;
mod fixture;
mod golden;
mod hostile;
mod images;
mod resolve;
mod resolve_vectors;
mod seeds;
mod template_check;
