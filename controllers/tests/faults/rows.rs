//! Rows of the table of faults.

use std::time::Duration;

use olm_servers::{Answer, Call, Fault, Rule, Verdict, When};

use self::Disturbance::Calls;
use crate::fixture::Change::{self, Install, Uninstall, Upgrade};
use crate::sample::Sampler;

/// Kind of fault.
pub(crate) enum Disturbance {
    /// Failing calls. The function returns the rules for an extension name.
    Calls(fn(String) -> Vec<Rule>),
    /// Response of an admission webhook for the namespace.
    Webhook(Verdict),
    /// The namespace does not exist.
    NoNamespace,
    /// The namespace is being deleted and blocked by a finalizer.
    Terminating,
    /// A quota rejects ConfigMaps in the namespace.
    Quota,
}

/// Row of the table.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) change: Change,
    pub(crate) disturbance: Disturbance,
    /// Part of the message that reports the fault. Empty if the fault ends too soon to be reported.
    pub(crate) cause: &'static str,
}

impl Row {
    /// `true` if a deadline of the process must expire before the fault is noticed.
    pub(crate) fn is_slow(&self) -> bool {
        self.cause.contains("did not answer")
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let tables =
        [answers(), lost_answers(), failed_steps(), failed_writes(), random_faults(), cluster_faults()];
    tables.into_iter().flatten().collect()
}

fn row(what: &'static str, change: Change, cause: &'static str, disturbance: Disturbance) -> Row {
    Row { what, change, disturbance, cause }
}

/// Errors in place of the creation or change of an object.
fn answers() -> Vec<Row> {
    vec![
        row(
            "429 for writes of objects",
            Install,
            "too many requests",
            Calls(|name| {
                vec![Rule::new(
                    Fault::Answer(Answer::too_many_requests(1)),
                    objects(name, "PATCH", "/configmaps"),
                )]
            }),
        ),
        row(
            "500 for a new object",
            Install,
            "etcdserver: leader changed",
            Calls(|name| {
                let answer = Answer::internal_error("etcdserver: leader changed");
                vec![Rule::new(Fault::Answer(answer), objects(name, "PATCH", "/services"))]
            }),
        ),
        row(
            "503 for a new object",
            Install,
            "currently unable to handle the request",
            Calls(|name| {
                vec![Rule::new(Fault::Answer(Answer::unavailable()), objects(name, "PATCH", "/deployments"))]
            }),
        ),
        row(
            "409 for changes of an object",
            Install,
            "the object has been modified",
            Calls(|name| {
                vec![Rule::new(Fault::Answer(Answer::conflict()), objects(name, "PATCH", "/configmaps"))]
            }),
        ),
        row(
            "403 for a new object",
            Install,
            "deployments.apps is forbidden: nobody may",
            Calls(|name| {
                let answer = Answer::forbidden("deployments.apps is forbidden: nobody may");
                vec![Rule::new(Fault::Answer(answer), objects(name, "PATCH", "/deployments"))]
            }),
        ),
    ]
}

/// Calls without an answer, with a late one, or with one that hides the effect.
fn lost_answers() -> Vec<Row> {
    vec![
        row(
            "no answer for a new object",
            Install,
            "did not answer within 40 s",
            Calls(|name| vec![Rule::new(Fault::Hang, objects(name, "PATCH", "/serviceaccounts"))]),
        ),
        row(
            "broken connections",
            Install,
            "connection",
            Calls(|name| vec![Rule::new(Fault::Cut, objects(name, "PATCH", "/clusterroles"))]),
        ),
        row(
            "answers of writes are lost",
            Install,
            "",
            Calls(|name| {
                let all = move |call: &Call| call.is_mutation() && call.mentions(&name);
                vec![Rule::new(Fault::Cut, all).when(When::After).times(12)]
            }),
        ),
        row(
            "504 although it took effect",
            Upgrade,
            "",
            Calls(|name| {
                let all = move |call: &Call| call.is_mutation() && call.mentions(&name);
                vec![Rule::new(Fault::Answer(Answer::timeout()), all).when(When::After).times(12)]
            }),
        ),
        row(
            "everything is slow",
            Install,
            "",
            Calls(|name| {
                let all = move |call: &Call| call.mentions(&name);
                vec![Rule::new(Fault::Delay(Duration::from_millis(500)), all)]
            }),
        ),
    ]
}

/// Steps of a rollout that fail.
fn failed_steps() -> Vec<Row> {
    vec![
        row(
            "content cannot be stored",
            Install,
            "creating ref Secret",
            Calls(|name| {
                let answer = Answer::internal_error("no space");
                vec![Rule::new(Fault::Answer(answer), objects(name, "POST", "/secrets"))]
            }),
        ),
        row(
            "no new revision",
            Upgrade,
            "creating new Revision",
            Calls(|name| {
                let path = format!("/clusterobjectsets/{name}-2");
                let is_it = move |call: &Call| call.method == "PATCH" && call.path.ends_with(&path);
                vec![Rule::new(Fault::Answer(Answer::internal_error("no space")), is_it)]
            }),
        ),
    ]
}

/// Writes to extension and revision that fail.
fn failed_writes() -> Vec<Row> {
    vec![
        row(
            "status of the extension cannot be written",
            Install,
            "",
            Calls(|name| {
                let path = format!("/clusterextensions/{name}/status");
                let is_it = move |call: &Call| call.path.ends_with(&path);
                vec![Rule::new(Fault::Answer(Answer::internal_error("no space")), is_it)]
            }),
        ),
        row(
            "status of the revision cannot be written",
            Install,
            "",
            Calls(|name| {
                let path = format!("/clusterobjectsets/{name}-1/status");
                let is_it = move |call: &Call| call.path.ends_with(&path);
                vec![Rule::new(Fault::Answer(Answer::internal_error("no space")), is_it)]
            }),
        ),
        row(
            "the old revision cannot be archived",
            Upgrade,
            "",
            Calls(|name| {
                let path = format!("/clusterobjectsets/{name}-1");
                let is_it = move |call: &Call| call.method == "PATCH" && call.path.ends_with(&path);
                vec![Rule::new(Fault::Answer(Answer::internal_error("no space")), is_it)]
            }),
        ),
        row(
            "a dropped object cannot be removed",
            Upgrade,
            "error archiving revision",
            Calls(|name| {
                vec![Rule::new(
                    Fault::Answer(Answer::internal_error("no space")),
                    objects(name, "DELETE", "-old"),
                )]
            }),
        ),
        row(
            "the finalizers cannot be removed",
            Uninstall,
            "",
            Calls(|name| {
                let path = format!("/clusterextensions/{name}");
                let is_it = move |call: &Call| call.is_mutation() && call.path.ends_with(&path);
                vec![Rule::new(Fault::Answer(Answer::internal_error("no space")), is_it)]
            }),
        ),
    ]
}

fn random_faults() -> Vec<Row> {
    vec![
        row("anything at random while installing", Install, "", Calls(|name| mixture(name, 1))),
        row("anything at random while upgrading", Upgrade, "", Calls(|name| mixture(name, 2))),
        row("anything at random while uninstalling", Uninstall, "", Calls(|name| mixture(name, 3))),
    ]
}

/// State of the cluster that prevents the rollout.
fn cluster_faults() -> Vec<Row> {
    vec![
        row(
            "a webhook that rejects",
            Install,
            "denied the request: not today",
            Disturbance::Webhook(Verdict::Reject("not today".to_owned())),
        ),
        row(
            "a webhook that rejects an upgrade",
            Upgrade,
            "denied the request: not today",
            Disturbance::Webhook(Verdict::Reject("not today".to_owned())),
        ),
        row("a webhook that hangs", Install, "failed calling webhook", Disturbance::Webhook(Verdict::Hang)),
        row("no namespace", Install, "not found", Disturbance::NoNamespace),
        row("the namespace is terminating", Install, "being terminated", Disturbance::Terminating),
        row("the quota is exceeded", Install, "exceeded quota", Disturbance::Quota),
    ]
}

/// Matches calls of this method about objects of the extension whose path contains `part`.
fn objects(name: String, method: &'static str, part: &'static str) -> impl Fn(&Call) -> bool + Send + Sync {
    move |call| {
        call.method == method
            && call.path.contains(part)
            && call.mentions(&name)
            && !call.query.contains("dryRun")
    }
}

/// Makes a third of all calls about the extension fail, with different faults.
fn mixture(name: String, seed: u64) -> Vec<Rule> {
    let answers = [
        Fault::Answer(Answer::too_many_requests(1)),
        Fault::Answer(Answer::internal_error("at random")),
        Fault::Answer(Answer::conflict()),
        Fault::Answer(Answer::timeout()),
        Fault::Cut,
        Fault::Delay(Duration::from_millis(300)),
    ];
    let rule = |(index, fault): (usize, Fault)| {
        let sampler = std::sync::Mutex::new(Sampler::new(seed * 1000 + index as u64));
        let name = name.clone();
        let is_struck = move |call: &Call| {
            call.mentions(&name) && sampler.lock().is_ok_and(|mut sampler| sampler.below(18) == 0)
        };
        let when = if index % 2 == 0 { When::Before } else { When::After };
        Rule::new(fault, is_struck).when(when)
    };
    answers.into_iter().enumerate().map(rule).collect()
}
