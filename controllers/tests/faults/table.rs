//! Faults between operator-controller and the API server, one per extension. The condition names the cause, the
//! number of calls remains small during the fault, and the outcome is correct afterwards.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_servers::{Answer, Call, Fault, PATIENCE, Rule, RuleId, Verdict, Webhook};
use serde_json::json;

use crate::fixture::{Change, Fixture};
use crate::rows::{Disturbance, Row, rows};
use crate::sample::Sampler;
use crate::snapshot::{Snapshot, take};

/// Duration of a fault after its cause is reported.
const WINDOW: Duration = Duration::from_secs(4);
/// Limit of calls about one extension in that time. More are a hot loop.
const MAX_CALLS: usize = 150;
/// Duration without writes required at the end.
const QUIET: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of rows tested at a time, besides slow ones.
const PARALLEL: usize = 10;

/// Outcome of each change without a fault.
type Clean = BTreeMap<Change, Snapshot>;

/// Tests all rows, several at a time, then faults that affect all extensions.
pub(crate) async fn run() -> Result<()> {
    let fixture = Fixture::start().await?;
    let rows = rows();
    let mut names = (0..rows.len() + 3 + GLOBAL).map(name);
    fixture.serve(names.clone()).await?;
    let clean: Vec<String> = names.by_ref().take(3).collect();
    let clean = undisturbed(&fixture, &clean).await?;
    let started = Instant::now();
    let (slow, fast): (Vec<_>, Vec<_>) = rows.iter().zip(names.by_ref()).partition(|(row, _)| row.is_slow());
    let names: Vec<String> = names.collect();
    let all = |rows: Vec<(_, String)>| {
        let rows = rows.into_iter().map(|(row, name)| one(&fixture, &clean, row, name));
        stream::iter(rows).buffer_unordered(PARALLEL).try_collect::<()>()
    };
    let slow = all(slow);
    let others = async {
        all(fast).await?;
        println!("rows: {} ms", started.elapsed().as_millis());
        everything(&fixture, &clean, &names).await
    };
    tokio::try_join!(slow, others)?;
    let writes = fixture.servers.proxy.mutations_within(QUIET).await;
    let lines: Vec<String> = writes.iter().map(Call::line).collect();
    ensure!(lines.is_empty(), "writes after the end:\n{}", lines.join("\n"));
    Ok(())
}

/// Returns a name of fixed length, so that no name is a prefix of another.
fn name(number: usize) -> String {
    format!("f{number:04}")
}

async fn undisturbed(fixture: &Fixture, names: &[String]) -> Result<Clean> {
    let mut clean = Clean::new();
    for (change, name) in [Change::Install, Change::Upgrade, Change::Uninstall].into_iter().zip(names) {
        fixture.prepare(name, change).await?;
        fixture.begin(change, name).await?;
        fixture.until_done(change, name).await?;
        fixture.until_silent(name).await?;
        clean.insert(change, take(&fixture.servers.client(), name).await?);
    }
    Ok(clean)
}

async fn one(fixture: &Fixture, clean: &Clean, row: &Row, name: String) -> Result<()> {
    try_one(fixture, clean, row, &name).await.with_context(|| format!("{} ({name})", row.what))
}

async fn try_one(fixture: &Fixture, clean: &Clean, row: &Row, name: &str) -> Result<()> {
    if !matches!(row.disturbance, Disturbance::NoNamespace) {
        fixture.prepare(name, row.change).await?;
    }
    let disturbance = row.disturbance.begin(fixture, name).await?;
    fixture.begin(row.change, name).await?;
    let started = Instant::now();
    if !row.cause.is_empty() {
        until_named(fixture, name, row.cause).await?;
    }
    let named = started.elapsed();
    let before = fixture.servers.proxy.count();
    tokio::time::sleep(WINDOW).await;
    let calls = fixture.servers.proxy.calls(before).iter().filter(|call| call.mentions(name)).count();
    ensure!(calls <= MAX_CALLS, "{calls} calls within {WINDOW:?} during the fault");
    disturbance.end(fixture, name).await?;
    let ended = Instant::now();
    let expected = clean.get(&row.change).context("no clean run")?;
    fixture.until_like(name, expected).await?;
    fixture.foreign_is_untouched(name).await?;
    println!(
        "{}: reported after {} ms, {calls} calls in {WINDOW:?}, recovered {} ms after its end",
        row.what,
        named.as_millis(),
        ended.elapsed().as_millis()
    );
    Ok(())
}

/// Waits until the condition Progressing of the extension or of one of its revisions contains the cause.
async fn until_named(fixture: &Fixture, name: &str, cause: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A different fault may affect the calls of the test for a while.
        let messages = fixture.progress(name).await.unwrap_or_default();
        if messages.iter().any(|message| message.contains(cause)) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{cause:?} is not reported, only:\n{}", messages.join("\n"));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Handle that ends a started fault.
enum ActiveDisturbance {
    Rules(Vec<RuleId>),
    Webhook(Webhook),
    Nothing,
}

impl Disturbance {
    async fn begin(&self, fixture: &Fixture, name: &str) -> Result<ActiveDisturbance> {
        let client = fixture.servers.client();
        match self {
            Self::Calls(rules) => {
                let rules = rules(name.to_owned());
                Ok(ActiveDisturbance::Rules(
                    rules.into_iter().map(|rule| fixture.servers.proxy.add(rule)).collect(),
                ))
            }
            Self::Webhook(verdict) => {
                let webhook = Webhook::start(Verdict::Admit).await?;
                let configuration: ValidatingWebhookConfiguration =
                    serde_json::from_value(webhook.configuration(name, name))?;
                Api::all(client).create(&PostParams::default(), &configuration).await?;
                webhook.say(verdict.clone());
                fixture.until_refused(name).await?;
                Ok(ActiveDisturbance::Webhook(webhook))
            }
            Self::NoNamespace => Ok(ActiveDisturbance::Nothing),
            Self::Terminating => {
                let hold = Patch::Merge(json!({"metadata": {"finalizers": ["servers.example/hold"]}}));
                let foreign = format!("{name}-foreign");
                fixture.config_maps(name).patch(&foreign, &PatchParams::default(), &hold).await?;
                Api::<Namespace>::all(client).delete(name, &DeleteParams::default()).await?;
                Ok(ActiveDisturbance::Nothing)
            }
            Self::Quota => {
                let quota: ResourceQuota = serde_json::from_value(
                    json!({"metadata": {"name": "full"}, "spec": {"hard": {"configmaps": "1"}}}),
                )?;
                Api::namespaced(client, name).create(&PostParams::default(), &quota).await?;
                fixture.until_refused(name).await?;
                Ok(ActiveDisturbance::Nothing)
            }
        }
    }
}

impl ActiveDisturbance {
    async fn end(self, fixture: &Fixture, name: &str) -> Result<()> {
        let client = fixture.servers.client();
        match self {
            Self::Rules(rules) => {
                for rule in rules {
                    fixture.servers.proxy.remove(rule);
                }
            }
            Self::Webhook(webhook) => {
                let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
                configurations.delete(name, &DeleteParams::default()).await?;
                // Only a hanging call delays the end.
                webhook.say(Verdict::Admit);
                drop(webhook);
            }
            Self::Nothing => fixture.give_room(name).await?,
        }
        Ok(())
    }
}

/// Number of extensions in the test of faults that affect all.
const GLOBAL: usize = 4;

/// Watches break and expire during installs and upgrades. Then the API server is killed.
async fn everything(fixture: &Fixture, clean: &Clean, names: &[String]) -> Result<()> {
    let proxy = &fixture.servers.proxy;
    let all = [Change::Install, Change::Upgrade, Change::Install, Change::Upgrade];
    let both: Vec<(&String, Change)> = names.iter().zip(all).collect();
    for (name, change) in &both {
        fixture.prepare(name, *change).await?;
    }
    let (first, second) = both.split_at(GLOBAL / 2);

    let expired = Rule::new(Fault::Answer(Answer::expired()), {
        let sampler = std::sync::Mutex::new(Sampler::new(11));
        move |call: &Call| call.is_watch() && sampler.lock().is_ok_and(|mut sampler| sampler.below(2) == 0)
    });
    let rule = proxy.add(expired);
    for (name, change) in first {
        fixture.begin(*change, name).await?;
    }
    let started = Instant::now();
    let before = proxy.count();
    while started.elapsed() < WINDOW {
        proxy.break_watches();
        tokio::time::sleep(POLL_INTERVAL).await;
        proxy.expire_watches();
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    println!("{} calls while watches break for {WINDOW:?}", proxy.calls(before).len());
    proxy.remove(rule);
    for (name, change) in first {
        fixture.until_like(name, &clean[change]).await.context("after broken watches")?;
    }

    for (name, change) in second {
        fixture.begin(*change, name).await?;
    }
    tokio::time::sleep(POLL_INTERVAL).await;
    fixture.servers.plane.kill_apiserver();
    let before = proxy.count();
    tokio::time::sleep(WINDOW / 2).await;
    println!("{} calls without an API server for {:?}", proxy.calls(before).len(), WINDOW / 2);
    fixture.servers.plane.start_apiserver().await?;
    for (name, change) in second {
        fixture.until_like(name, &clean[change]).await.context("after a restart of the API server")?;
    }
    // The watches work again: a deleted object is restored.
    let name = &names[0];
    fixture.config_maps(name).delete(&format!("{name}-settings"), &DeleteParams::default()).await?;
    fixture.until_like(name, &clean[&Change::Install]).await.context("repair after a restart")
}
