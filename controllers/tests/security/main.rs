//! Security of a cluster with real servers and a real kube-apiserver: accounts with minimal rights
//! (docs/design/additions.md#service-account-impersonation, docs/design/operations.md#hardened-rights), admission
//! policies (docs/design/operations.md#admission-policies), and confidentiality of secrets
//! (docs/design/operations.md#hardening).

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod catalog_policy;
#[allow(dead_code)]
#[path = "../../../catalogd/tests/fixture/cgroup.rs"]
mod cgroup;
mod delegated_installers;
mod extension_authors;
mod field;
mod fixture;
mod hardened;
mod hardened_policies;
mod hardened_roles;
mod hardened_updates;
mod hostile;
mod impersonation;
mod memory;
mod plan_policies;
mod policies;
mod reserved_groups;
mod secrets;
mod stolen;
mod stolen_rights;
mod webhooks;

const PROGRAM: &str = env!("CARGO_BIN_EXE_operator-controller");
