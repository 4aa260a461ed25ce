//! Our servers as real processes on a real control plane, for tests and measurements.
//!
//! ```text
//! Bundle ─ publish ► Registry ◄ pull ─ operator-controller ─ calls ► Proxy ─► kube-apiserver ◄─ Workloads, the test
//!   Catalog ─ serve ►    │                    ▲ content                           ▲
//!                        └────── pull ─── catalogd ───────────────────────────────┘
//! ```
//!
//! [`World`] holds everything around the servers; a [`Server`] is the process of one of them. Between
//! operator-controller and the API server stands a [`Proxy`] that counts its calls and spoils those that a test names.
//! Nothing runs pods: [`Workloads`] says for a kubelet that Deployments are available.
//!
//! This is a library for tests and measurements; everything that it starts ends when it is dropped.

mod bundle;
mod catalog;
mod process;
mod proxy;
mod webhook;
mod workloads;
mod world;

pub use bundle::Bundle;
pub use catalog::{Catalog, Published};
pub use olm_control_plane::{PATIENCE, eventually};
pub use process::{Programs, Server};
pub use proxy::{Answer, Call, Fault, Proxy, Rule, RuleId, When};
pub use webhook::{Converter, Verdict, Webhook};
pub use workloads::Workloads;
pub use world::{NAMESPACE, World, extension};
