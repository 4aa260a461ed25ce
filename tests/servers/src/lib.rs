//! Our servers as real processes on a real control plane, for tests and measurements.
//!
//! ```text
//! Bundle ─ publish ► Registry ◄ pull ─ operator-controller ─ calls ► Proxy ─► kube-apiserver ◄─ Workloads, the test
//!   Catalog ─ serve ►    │                    ▲ content                           ▲
//!                        └────── pull ─── catalogd ───────────────────────────────┘
//! ```
//!
//! [`ServerFixture`] contains the environment of the servers. A [`Server`] is the process of one of them.
//! operator-controller connects to the API server through a [`Proxy`] that records its calls and injects faults. No
//! pods run: [`Workloads`] writes the status of Deployments. A [`RunningController`] runs in the process of the test.
//!
//! This is a library for tests and measurements. It stops everything that it starts on drop.

mod bundle;
mod catalog;
mod clock;
mod controller;
mod fixture;
mod process;
mod proxy;
mod webhook;
mod workloads;

pub use bundle::Bundle;
pub use catalog::{Catalog, Published};
pub use clock::WallClock;
pub use controller::RunningController;
pub use fixture::{NAMESPACE, ServerFixture, extension};
pub use olm_control_plane::{PATIENCE, eventually};
pub use process::{Programs, Server};
pub use proxy::{ADMINISTRATORS, Answer, Call, Fault, PROCESS_USER, Proxy, Rule, RuleId, When};
pub use webhook::{Converter, Verdict, Webhook};
pub use workloads::Workloads;
