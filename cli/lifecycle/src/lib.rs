//! The commands of `olm` about extensions, one module each: from the choice of a bundle to the uninstallation. They
//! share [`rendering`], the wait for a [`rollout`], and the rights of operator-controller with the file [`hardened`].

pub mod apis;
pub mod cluster_check;
pub mod config;
pub mod crd_check;
pub mod diff;
pub mod hardened;
pub mod history;
pub mod install;
pub mod install_files;
pub mod plan;
pub mod rbac;
pub mod render;
pub mod rendering;
pub mod resolve;
pub mod rollback;
pub mod rollout;
pub mod status;
pub mod uninstall;
pub mod upgrade;
