//! Random sequences of edits, catalog changes, deletions, intrusions, restarts, restores of etcd and API errors against
//! real servers and a real kube-apiserver, compared with a model. A second writer, the adversary, edits, scales, reverts
//! and denies at the same time.
//!
//! ```text
//! seed ─ steps ► actor ── applies ────► cluster ◄── operator-controller (through a proxy that injects errors)
//!                  │                       │
//!                intent                recorder ─┬► snapshot ─┐
//!                  └───────── the model ─────────┼─► settled ─┴► settled: does the state equal the prediction?
//!                                                └► history ──► on the way: did every change keep the invariants?
//! ```
//!
//! Several extensions share the servers, each with its own sequence. They meet only when etcd is backed up and restored,
//! once in 2,500 steps. A failure prints its seed and its steps.
//!
//! Environment, set by `hack/model`:
//! - `OLM_MODEL_STEPS`: total number of steps (default 1,000).
//! - `OLM_SEED`: seed of the sequences.
//! - `OLM_MODEL_REPLAY`: a file with steps to apply instead, as a failure prints them.
//! - `OLM_MODEL_SHRINK=1`: search for a shorter sequence that fails too.
//! - `OLM_PROGRAMS`: a folder with servers to test instead of the ones just built.

// A failed step ends the test.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod actor;
mod admission;
mod adversary;
mod denials;
mod fixture;
mod history;
mod instances;
mod intent;
mod intruder;
mod objects;
mod random;
mod recorder;
mod resolving;
mod rest;
mod settled;
mod snapshot;
mod steps;
mod universe;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use olm_servers::Call;
use tokio::task::JoinSet;

use actor::Actor;
use fixture::Fixture;
use random::Random;
use steps::{Cascade, Step, burst, repairs, shorter, turns};

/// Name prefix of the extensions of the model. No other object has it.
pub(crate) const PREFIX: &str = "xm";
/// Number of concurrent extensions.
const EXTENSIONS: usize = 14;
const STEPS: usize = 1_000;
/// Duration without writes required once everything has settled. Longer than the poll intervals.
const SILENCE: Duration = Duration::from_secs(12);

/// Failed sequence.
struct FailedSequence {
    name: String,
    steps: Vec<Step>,
    fault: String,
    description: String,
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number"))
}

/// Seeds up to this one have no adversary.
const WITHOUT_ADVERSARY: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_steps_converge_to_the_model() {
    let seed = number("OLM_SEED", 1);
    let count = usize::try_from(number("OLM_MODEL_STEPS", STEPS as u64)).unwrap();
    let fixture = Arc::new(Fixture::start(count).await);
    let started = Instant::now();
    if let Ok(path) = std::env::var("OLM_MODEL_REPLAY") {
        fixture.set_parties(1);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let steps: Vec<Step> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        if let Err(failure) = replay(&fixture, &format!("{PREFIX}replay"), &steps).await {
            report(&fixture, seed, failure).await;
        }
        return;
    }
    let mut running = JoinSet::new();
    for index in 0..EXTENSIONS {
        running.spawn(live(Arc::clone(&fixture), seed, index, turns(count)));
    }
    let mut done = BTreeMap::<String, usize>::new();
    while let Some(ended) = running.join_next().await {
        match ended.unwrap() {
            Ok(kinds) => kinds.into_iter().for_each(|(kind, count)| *done.entry(kind).or_default() += count),
            Err(failure) => {
                running.abort_all();
                return report(&fixture, seed, *failure).await;
            }
        }
    }
    let total: usize = done.values().sum();
    println!(
        "seed {seed}: {total} steps in {:?}, {} restarts: {done:?}",
        started.elapsed(),
        fixture.restarts()
    );
    let writes = fixture.servers.proxy.mutations_within(SILENCE).await;
    let lines: Vec<String> = writes.iter().filter(|call| !call.is_event()).map(Call::line).collect();
    assert!(lines.is_empty(), "seed {seed}: writes after settling:\n{}", lines.join("\n"));
    println!("seed {seed}: no writes after settling in {SILENCE:?}");
}

/// Runs the sequence of one extension. Returns the number of steps of each kind.
async fn live(
    fixture: Arc<Fixture>,
    seed: u64,
    index: usize,
    turns: Vec<(usize, Step)>,
) -> Result<BTreeMap<String, usize>, Box<FailedSequence>> {
    let mut random = Random::new(seed, index as u64);
    let name = format!("{PREFIX}{index:03}");
    let mut actor = Actor::start(Arc::clone(&fixture), &name).await;
    actor.intent.has_adversary = seed > WITHOUT_ADVERSARY;
    let mut steps: Vec<Step> = Vec::new();
    let mut kinds = BTreeMap::new();
    let mut turns = turns.into_iter().peekable();
    let end = [
        Step::Calm,
        Step::NamespaceBack,
        Step::Settle,
        Step::NoInstances,
        Step::Delete(Cascade::Background),
        Step::Settle,
    ];
    loop {
        let left = fixture.left.load(Ordering::Relaxed);
        let next = match turns.next_if(|(at, _)| left <= *at) {
            Some((_, step)) => vec![step, Step::Settle],
            None if left == 0 => [repairs(&actor.intent), end.to_vec()].concat(),
            None => burst(&mut random, &actor.intent),
        };
        for step in next {
            *kinds.entry(word(&step)).or_default() += 1;
            fixture.count_step(&step);
            steps.push(step.clone());
            if let Err(fault) = with_check(&fixture, &mut actor, &step).await {
                let description = actor.describe().await;
                return Err(Box::new(FailedSequence { name, steps, fault, description }));
            }
        }
        if index == 0 {
            // The proxy records calls for failure reports. Old ones are useless.
            fixture.servers.proxy.forget();
        }
        if steps.ends_with(&end) {
            return Ok(kinds);
        }
    }
}

async fn with_check(fixture: &Fixture, actor: &mut Actor, step: &Step) -> Result<(), String> {
    actor.step(step).await?;
    fixture.check().await
}

fn word(step: &Step) -> String {
    let text = step.to_string();
    text.trim_start_matches(['"', '{']).split('"').next().unwrap_or_default().to_owned()
}

async fn replay(fixture: &Arc<Fixture>, name: &str, steps: &[Step]) -> Result<(), FailedSequence> {
    let mut actor = Actor::start(Arc::clone(fixture), name).await;
    let rest = [Step::Calm, Step::Settle];
    for (index, step) in steps.iter().chain(&rest).enumerate() {
        if let Err(fault) = with_check(fixture, &mut actor, step).await {
            let steps = steps[..steps.len().min(index + 1)].to_vec();
            let description = actor.describe().await;
            return Err(FailedSequence { name: name.to_owned(), steps, fault, description });
        }
    }
    Ok(())
}

/// Fails the test with the information required to repeat it.
async fn report(fixture: &Arc<Fixture>, seed: u64, failure: FailedSequence) {
    let failure = match std::env::var_os("OLM_MODEL_SHRINK") {
        Some(_) => shrunk(fixture, failure).await,
        None => failure,
    };
    let FailedSequence { name, steps, fault, description } = failure;
    let all = fixture.steps.load(Ordering::Relaxed);
    let steps = steps.iter().map(Step::to_string).collect::<Vec<_>>().join("\n");
    panic!(
        "seed {seed}, extension {name}, after {all} steps of all: {fault}\n\n{description}\n\nOLM_MODEL_REPLAY takes a file with these steps:\n{steps}\n\
         seed {seed}, extension {name}: {fault}"
    );
}

/// Shortest sequence found that still fails. Each candidate runs on a new extension.
async fn shrunk(fixture: &Arc<Fixture>, mut failure: FailedSequence) -> FailedSequence {
    let mut attempt = 0;
    fixture.set_parties(1);
    'shorter: loop {
        for steps in shorter(&failure.steps) {
            attempt += 1;
            let name = format!("{PREFIX}s{attempt}");
            let outcome = replay(fixture, &name, &steps).await;
            fixture.recorder.forget(&name);
            if let Err(other) = outcome {
                println!(
                    "fails with {} steps as well: {}",
                    other.steps.len(),
                    other.fault.lines().next().unwrap_or_default()
                );
                failure = other;
                continue 'shorter;
            }
        }
        return failure;
    }
}
