//! Cases of operator-controller: duration and cost of installs and upgrades, and their growth.
//!
//! - Pods: a cluster with a node, where every extension has a Deployment. The servers are processes of this machine.
//!   The limit is the time of `kubectl apply` of the same objects.
//! - Growth: etcd and kube-apiserver only, extensions without Deployments, so that the figures are the controller's.
//! - Hanging: the same, with additional extensions on a registry that accepts connections and never responds.

mod content;
mod fleet;
mod limit;
mod requests;

use std::net::TcpListener;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::ControllerArguments;
use crate::process::{memory, processor_time};
use crate::table::{Table, Target, Unit};
use fleet::{Fleet, Spent};

/// Cases of operator-controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// With Deployments, on a cluster with a node
    Pods,
    /// Without Deployments, on an API server without nodes
    Growth,
    /// Requests per install and upgrade, on an API server without nodes
    Requests,
    /// With additional extensions on a registry that never responds
    Hanging,
}

/// Number of extensions in the case `pods`.
const PODS: usize = 50;
/// Number of extensions in the case `requests`.
const COUNTED: usize = 50;
/// Number of extensions on the registry that never responds.
const HANGING: usize = 40;
/// Duration of the idle measurement.
const IDLE: Duration = Duration::from_secs(60);
/// Steps of the growth: the extensions up to each number are installed together. Figures of the reference where
/// known: CPU seconds per extension, seconds, peak MB.
const GROWTH: [(usize, Option<[f64; 3]>); 5] = [
    (49, Some([0.40, 34.0, 139.0])),
    (99, Some([0.53, 41.0, 154.0])),
    (199, Some([0.64, 100.0, 188.0])),
    (499, None),
    (999, None),
];
/// CPU seconds per extension of the reference at 200.
const AT_200: f64 = 0.64;
/// Target ratio of the most to the least expensive step from 50 extensions on: 20 % above to 20 % below the middle.
const FLAT: f64 = 1.2 / 0.8;
/// Memory target of the controller with all extensions, in MB.
const MEMORY: f64 = 60.0;

/// Measures the selected cases.
pub(crate) async fn measure(arguments: &ControllerArguments) -> Result<Table> {
    let mut table = Table::default();
    let cases = if arguments.cases.is_empty() { Case::value_variants() } else { &arguments.cases };
    for case in cases {
        match case {
            Case::Pods => pods(&mut table, arguments).await?,
            Case::Growth => growth(&mut table, arguments).await?,
            Case::Requests => requests_each(&mut table, arguments).await?,
            Case::Hanging => hanging(&mut table, arguments).await?,
        }
    }
    Ok(table)
}

async fn pods(table: &mut Table, arguments: &ControllerArguments) -> Result<()> {
    let Some(kubeconfig) = &arguments.kubeconfig else {
        table.remarks.push("no KUBECONFIG: the cases with pods are skipped".to_owned());
        return Ok(());
    };
    eprintln!("bundles and catalog");
    let mut fleet = Fleet::on(arguments, Some(kubeconfig), PODS, Some(&arguments.operand), None).await?;
    eprintln!("the limit: kubectl apply of the objects of {} extensions", PODS - 1);
    let limit = limit::measure(&fleet, kubeconfig, 1..PODS, &arguments.operand).await?;
    let started = fleet.start_controller(arguments).await?;
    let case = "start, nothing installed: memory";
    table.add(case, started, Unit::Megabytes, None, Target::Limit(40.0), "");

    eprintln!("one install");
    let one = fleet.install(0..1).await?;
    table.add("one install", one.time, Unit::Seconds, 1.9, Target::AtMost(0.6), "until its pod runs");
    eprintln!("{} installs at once", PODS - 1);
    let many = fleet.install(1..PODS).await?;
    let case = "49 installs at once";
    spent(table, case, &many, [46.0, 25.0, 134.0], (0.55, 48.0));
    let target = Target::AtMost(1.25);
    table.add(case, many.time, Unit::Seconds, limit.install, target, "against kubectl apply");
    idle(table, &fleet, 50, (0.06, 40.0), None).await?;
    eprintln!("{PODS} upgrades at once");
    let upgraded = fleet.upgrade(0..PODS).await?;
    let case = "50 upgrades at once";
    spent(table, case, &upgraded, [80.0, 40.0, 143.0], (0.5, 48.0));
    let limit = limit.upgrade * PODS as f64 / (PODS - 1) as f64;
    let target = Target::AtMost(1.2);
    table.add(case, upgraded.time, Unit::Seconds, limit, target, "against kubectl apply");
    Ok(())
}

/// Adds the rows of a concurrent operation. Reference and targets are time, CPU time and memory.
fn spent(table: &mut Table, case: &str, spent: &Spent, reference: [f64; 3], (time, memory): (f64, f64)) {
    let [slow, busy, large] = reference;
    let per = format!("{:.3} s each", spent.processor / spent.extensions as f64);
    let name = |what: &str| format!("{case}: {what}");
    table.add(name("time"), spent.time, Unit::Seconds, slow, Target::AtMost(time), "");
    table.add(name("processor"), spent.processor, Unit::Seconds, busy, Target::AtMost(0.2), per);
    table.add(name("peak memory"), spent.memory, Unit::Megabytes, large, Target::Limit(memory), "");
}

async fn growth(table: &mut Table, arguments: &ControllerArguments) -> Result<()> {
    let all = GROWTH.last().map_or(0, |(last, _)| last + 1);
    eprintln!("bundles and catalog of {all} extensions without Deployments");
    let mut fleet = Fleet::on(arguments, None, all, None, None).await?;
    fleet.start_controller(arguments).await?;
    fleet.install(0..1).await?;
    let (mut first, mut flat) = (1, Vec::new());
    for (last, reference) in GROWTH {
        eprintln!("installs {first} to {last}");
        let spent = fleet.install(first..last + 1).await?;
        let each = spent.processor / spent.extensions as f64;
        let name = |what: &str| format!("growth, {first}-{last}: {what}");
        let [busy, slow, large] = reference.map_or([None; 3], |reference| reference.map(Some));
        let limit = Target::Limit(AT_200 * 0.1);
        table.add(name("processor each"), each, Unit::Seconds, busy, limit, "");
        let (time, memory) = match reference {
            Some(_) => (Target::AtMost(0.3), Target::AtMost(1.0)),
            None => (Target::Shown, Target::Limit(MEMORY)),
        };
        table.add(name("time"), spent.time, Unit::Seconds, slow, time, "");
        table.add(name("peak memory"), spent.memory, Unit::Megabytes, large, memory, "");
        if last > 49 {
            flat.push(each);
        }
        if last == 199 {
            idle(table, &fleet, 200, (0.12, 40.0), Some("no write but leases")).await?;
        }
        first = last + 1;
    }
    let (low, high) =
        flat.iter().fold((f64::MAX, 0.0_f64), |(low, high), each| (low.min(*each), high.max(*each)));
    let case = "growth, from 50 on: dearest against cheapest";
    table.add(case, high, Unit::Seconds, low, Target::AtMost(FLAT), "");
    idle(table, &fleet, all, (0.12, MEMORY), Some("no write but leases")).await?;
    fleet.stop_controller().await?;
    let took = fleet.restart(arguments).await?;
    let case = format!("{all} extensions: restart to quiet");
    table.add(case, took, Unit::Seconds, None, Target::Limit(20.0), "");
    Ok(())
}

async fn requests_each(table: &mut Table, arguments: &ControllerArguments) -> Result<()> {
    let mut fleet = Fleet::on(arguments, None, COUNTED, None, None).await?;
    fleet.start_controller(arguments).await?;
    fleet.install(0..1).await?;
    eprintln!("{} installs, {COUNTED} upgrades", COUNTED - 1);
    let done = [("install", fleet.install(1..COUNTED).await?), ("upgrade", fleet.upgrade(0..COUNTED).await?)];
    for (what, spent) in done {
        let each = |all: f64| all / spent.extensions as f64;
        let mut add = |name: &str, value: f64, unit: Unit| {
            table.add(format!("{what}: {name} each"), each(value), unit, None, Target::Shown, "");
        };
        add("writes", spent.requests.writes, Unit::Count);
        add("reads", spent.requests.reads, Unit::Count);
        add("processor", spent.processor, Unit::Seconds);
    }
    Ok(())
}

async fn hanging(table: &mut Table, arguments: &ControllerArguments) -> Result<()> {
    // Connections remain in the backlog.
    let registry = TcpListener::bind("127.0.0.1:0")?;
    let elsewhere = Some((7, registry.local_addr()?.to_string()));
    let mut fleet = Fleet::on(arguments, None, 7 + HANGING, None, elsewhere).await?;
    fleet.start_controller(arguments).await?;
    eprintln!("three installs, quiet and beside {HANGING} on a registry that never answers");
    fleet.install(0..1).await?;
    let quiet = fleet.install(1..4).await?.time;
    fleet.create(7..7 + HANGING).await?;
    fleet.settle().await?;
    let beside = fleet.install(4..7).await?.time;
    let case = format!("beside {HANGING} hanging pulls: three installs");
    let target = Target::AtMost(1.2);
    table.add(case, beside, Unit::Seconds, quiet, target, "against quiet ones");
    let case = format!("beside {HANGING} hanging pulls: SIGTERM");
    table.add(case, fleet.stop_controller().await?, Unit::Seconds, None, Target::Limit(3.0), "");
    Ok(())
}

/// Adds the rows of an idle controller: CPU seconds of the reference, and the memory target in MB. `quiet` is the
/// case without other writers on the API server.
async fn idle(
    table: &mut Table,
    fleet: &Fleet,
    extensions: usize,
    (reference, limit): (f64, f64),
    quiet: Option<&str>,
) -> Result<()> {
    eprintln!("{extensions} extensions, idle");
    fleet.settle().await?;
    let pid = fleet.controller()?;
    let (processor, asked) = (processor_time(pid)?, requests::count(fleet.setup.client()).await?);
    tokio::time::sleep(IDLE).await;
    let used = processor_time(pid)? - processor;
    let asked = requests::count(fleet.setup.client()).await? - asked;
    let name = |what: &str| format!("idle, {extensions} extensions: {what}");
    let target = Target::AtMost(1.0);
    table.add(name("processor a minute"), used, Unit::Seconds, reference, target, "");
    let memory = memory(pid, "RssAnon")?;
    table.add(name("memory"), memory, Unit::Megabytes, None, Target::Limit(limit), "");
    if let Some(note) = quiet {
        table.add(name("writes"), asked.writes, Unit::Count, None, Target::Limit(0.0), note);
    }
    Ok(())
}
