//! `olm install`, `olm upgrade`, `olm uninstall` and `olm rbac` with the real binary, an API server, and bundles in a registry.

mod access;
mod approve;
mod bundle_run;
mod catalogs;
pub(crate) mod fixture;
mod for_platform;
mod install;
mod shared_crds;
mod uninstall;
mod upgrade;
mod upgrade_all;
mod waiting;
mod with_dependencies;
