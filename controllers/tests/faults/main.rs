//! Faults between operator-controller and the API server, and of the process itself. Everything converges once the
//! fault is over.
//!
//! The tests use real processes on a real control plane, see `olm-servers`. Environment: `OLM_FAULTS=all` kills at
//! every call instead of at 20 that the seed `OLM_SEED` chooses.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

extern crate olm_tokio as tokio;

mod fixture;
mod kills;
mod rows;
mod sample;
mod snapshot;
mod table;

use sample::Sampler;

const PROGRAM: &str = env!("CARGO_BIN_EXE_operator-controller");

fn sampler() -> Sampler {
    let seed = std::env::var("OLM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(1);
    println!("OLM_SEED={seed}");
    Sampler::new(seed)
}

// Case apply-66
#[tokio::test(flavor = "multi_thread")]
async fn kill_at_any_api_call_converges_to_the_undisturbed_outcome() {
    let all = std::env::var("OLM_FAULTS").is_ok_and(|chosen| chosen == "all");
    kills::run(all, &mut sampler()).await.map_err(|error| format!("{error:#}")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn api_fault_is_reported_and_converges_afterwards() {
    table::run().await.map_err(|error| format!("{error:#}")).unwrap();
}
