//! Upgrades with rules of approval against real servers: approvals and upgrade windows over time, and writes at rest.

// A failed step ends the test.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

#[path = "../model/random.rs"]
mod random;
mod rest;
mod week;

use olm_servers::{Programs, Server, ServerFixture};

async fn start() -> ServerFixture {
    let programs = Programs::beside(env!("CARGO_BIN_EXE_operator-controller")).unwrap();
    ServerFixture::start(programs).await.unwrap()
}

/// Starts operator-controller and waits until it is ready.
async fn launch(servers: &ServerFixture, environment: &[(&str, String)], flags: &[&str]) -> Server {
    let mut controller = servers.launch_controller_in(environment, flags).unwrap();
    controller.ready().await.unwrap();
    controller
}
