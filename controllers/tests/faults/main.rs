//! What breaks on the way to the API server, and the process itself: everything converges once the fault is over.
//!
//! Real processes on a real control plane; see `olm-servers`. Environment: `OLM_FAULTS=all` kills at every call instead of 20
//! that the seed `OLM_SEED` chooses.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod kills;
mod sample;
mod setting;
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
async fn killed_at_a_call_it_goes_on_as_if_nothing_had_been() {
    let all = std::env::var("OLM_FAULTS").is_ok_and(|chosen| chosen == "all");
    kills::run(all, &mut sampler()).await.map_err(|error| format!("{error:#}")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_named_and_pass() {
    table::run().await.map_err(|error| format!("{error:#}")).unwrap();
}
