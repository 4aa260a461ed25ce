//! `olm install`, `olm upgrade` and `olm uninstall` with the real binary, an API server, and bundles in a registry.

mod approve;
mod fixture;
mod for_platform;
mod install;
mod uninstall;
mod upgrade;
mod upgrade_all;
mod waiting;
mod with_dependencies;
