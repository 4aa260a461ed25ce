//! Namespaces that an extension selects by label.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_request::{ExtensionRules, NamespaceSelector, SelectedNamespaces, Settings};
use serde_json::json;
use tokio::time::Instant;

use super::decide::tests::{choice, extension, observed};
use super::memory::ExtensionMemory;
use super::revisions::tests::set;

/// Second of the simulated time.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// The same second in monotonic time.
fn moment(second: i64) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START + Duration::from_secs(second.try_into().unwrap())
}

/// Revision with this list of namespaces.
fn revision(number: i64, names: &[String], created: i64) -> Arc<ClusterObjectSet> {
    let mut revision = (*set(number, "Active", true)).clone();
    revision.metadata.creation_timestamp = Some(Time(at(created)));
    // All revisions have the same bundle.
    let mut all = set(1, "Active", true).metadata.annotations.clone().unwrap();
    all.insert(annotations::EXT_TARGET_NAMESPACES.to_owned(), names.join(","));
    revision.metadata.annotations = Some(all);
    Arc::new(revision)
}

/// Namespaces of a cluster: label and deletion.
#[derive(Default)]
struct Cluster(BTreeMap<String, (bool, bool)>);

impl Cluster {
    fn selected(&self) -> SelectedNamespaces {
        let config = json!({"watchNamespaceSelector": {"matchLabels": {"team": "a"}}});
        let selector = NamespaceSelector::of_config(config.as_object().unwrap()).unwrap();
        let mut found = SelectedNamespaces::default();
        for (name, (is_labeled, is_deleting)) in &self.0 {
            let labels = is_labeled.then(|| ("team".to_owned(), "a".to_owned())).into_iter().collect();
            found.add(&selector, name, &labels, *is_deleting);
        }
        found
    }
}

/// List for the next revision, and seconds until it must be changed.
fn settled(
    extension: &ClusterExtension,
    cluster: &Cluster,
    newest: &Arc<ClusterObjectSet>,
    memory: &mut ExtensionMemory,
    now: i64,
) -> (Vec<String>, Option<u64>) {
    let mut observed = observed(extension, ExtensionRules::default(), std::slice::from_ref(newest));
    observed.selected = Some(cluster.selected());
    observed.settle_namespaces(&choice(1).target, memory, at(now), moment(now));
    (observed.list.names.unwrap(), observed.list.due.map(|due| due.as_secs()))
}

// docs/design/namespaces.md#changed-lists
#[test]
fn changed_namespace_list_is_debounced_after_first_revision() {
    let (extension, x) = (extension(), ["x".to_owned()]);
    let cluster = Cluster([("y".to_owned(), (true, false))].into());
    let mut memory = ExtensionMemory::default();
    let newest = revision(1, &x, 0);
    assert_eq!(settled(&extension, &cluster, &newest, &mut memory, 500), (x.to_vec(), Some(30)));
    assert_eq!(settled(&extension, &cluster, &newest, &mut memory, 530), (vec!["y".to_owned()], None));

    let mut first = observed(&extension, ExtensionRules::default(), &[]);
    first.selected = Some(cluster.selected());
    first.settle_namespaces(&choice(1).target, &mut ExtensionMemory::default(), at(500), moment(500));
    assert_eq!((first.list.names, first.list.due), (Some(vec!["y".to_owned()]), None));
}

/// Extension whose rules have these annotations, 500 seconds after its revision with the list `x`. `y` is labeled.
fn with_other_target(annotations: &[(&str, &str)], edit: impl FnOnce(&mut ExtensionMemory)) -> Settled {
    let annotations = annotations
        .iter()
        .map(|(key, value)| (format!("ext.olm.operatorframework.io/{key}"), (*value).to_owned()))
        .collect();
    let (extension, x) = (extension(), ["x".to_owned()]);
    let rules = ExtensionRules::of(Some(&annotations), Settings::default());
    assert!(rules.invalid.is_empty(), "{:?}", rules.invalid);
    let newest = revision(1, &x, 0);
    let mut observed = observed(&extension, rules, std::slice::from_ref(&newest));
    let cluster = Cluster([("x".to_owned(), (true, false)), ("y".to_owned(), (true, false))].into());
    observed.selected = Some(cluster.selected());
    let mut memory = ExtensionMemory { list_differs_since: Some(moment(400)), ..ExtensionMemory::default() };
    edit(&mut memory);
    observed.settle_namespaces(&choice(2).target, &mut memory, at(500), moment(500));
    let overdue =
        observed.list.overdue.map(|inputs| (inputs.bundle.name, inputs.namespaces.unwrap().join(",")));
    (observed.list.names.unwrap().join(","), overdue)
}

/// List for the target, and bundle and list of the revision that is made first.
type Settled = (String, Option<(String, String)>);

// docs/design/namespaces.md#changed-lists
#[test]
fn namespace_list_change_is_applied_while_upgrade_is_held() {
    let running = set(1, "Active", true);
    let name = running.metadata.annotations.as_ref().unwrap()[annotations::BUNDLE_NAME].clone();
    let overdue = Some((name, "x,y".to_owned()));
    for (annotations, expected) in [
        (&[][..], overdue.clone()),
        (&[("approval", "ManualUpgrades")], overdue.clone()),
        (&[("upgrade-window", "0 0 1 1 * 1h")], overdue),
        // Each revision needs an approval, so that the list is part of the plan that waits.
        (&[("approval", "Manual")], None),
        (&[("approve-permission-increase", "true")], None),
    ] {
        let settled = with_other_target(annotations, |_| ());
        assert_eq!(settled, ("x".to_owned(), expected), "{annotations:?}");
    }
    let settled = with_other_target(&[], |memory| memory.list_differs_since = Some(moment(490)));
    assert_eq!(settled, ("x".to_owned(), None));
}

// docs/design/namespaces.md#changed-lists
#[test]
fn edited_selector_takes_effect_at_once() {
    let (extension, x) = (extension(), ["x".to_owned()]);
    let cluster = Cluster([("y".to_owned(), (true, false))].into());
    let newest = revision(1, &x, 499);
    let mut edited = observed(&extension, ExtensionRules::default(), std::slice::from_ref(&newest));
    (edited.selected, edited.edited) = (Some(cluster.selected()), true);
    edited.settle_namespaces(&choice(2).target, &mut ExtensionMemory::default(), at(500), moment(500));
    assert_eq!((edited.list.names, edited.list.due), (Some(vec!["y".to_owned()]), None));
    assert!(edited.list.overdue.is_none());
}

// docs/design/namespaces.md#changed-lists
#[test]
fn namespace_list_change_waits_longer_while_revision_is_unready() {
    let (extension, x) = (extension(), ["x".to_owned()]);
    let cluster = Cluster([("x".to_owned(), (true, false)), ("y".to_owned(), (true, false))].into());
    let mut newest = (*revision(1, &x, 0)).clone();
    newest.status = None;
    let mut memory = ExtensionMemory { list_differs_since: Some(moment(0)), ..ExtensionMemory::default() };
    let settled = settled(&extension, &cluster, &Arc::new(newest), &mut memory, 500);
    assert_eq!(settled, (x.to_vec(), Some(100)));
}

#[test]
fn namespace_list_reverted_within_debounce_creates_no_revision() {
    let (extension, x) = (extension(), vec!["x".to_owned()]);
    let mut cluster = Cluster([("x".to_owned(), (true, false)), ("y".to_owned(), (true, false))].into());
    let mut memory = ExtensionMemory::default();
    let newest = revision(1, &x, 0);
    assert_eq!(settled(&extension, &cluster, &newest, &mut memory, 500), (x.clone(), Some(30)));
    cluster.0.insert("y".to_owned(), (true, true));
    assert_eq!(settled(&extension, &cluster, &newest, &mut memory, 510), (x.clone(), None));
    cluster.0.insert("y".to_owned(), (true, false));
    assert_eq!(settled(&extension, &cluster, &newest, &mut memory, 520), (x.clone(), Some(30)));
    // A restart begins the wait anew, but not the pace.
    let mut memory = ExtensionMemory::default();
    let newest = revision(2, &x, 500);
    assert_eq!(settled(&extension, &cluster, &newest, &mut memory, 540), (x, Some(80)));
}

#[test]
fn clock_step_does_not_change_namespace_list_debounce() {
    let (extension, x) = (extension(), ["x".to_owned()]);
    let cluster = Cluster([("y".to_owned(), (true, false))].into());
    for step in [-7200, 7200] {
        let mut memory = ExtensionMemory::default();
        let newest = revision(1, &x, 0);
        assert_eq!(settled(&extension, &cluster, &newest, &mut memory, 10), (x.to_vec(), Some(110)));
        let mut later = observed(&extension, ExtensionRules::default(), std::slice::from_ref(&newest));
        later.selected = Some(cluster.selected());
        later.settle_namespaces(&choice(1).target, &mut memory, at(50 + step), moment(50));
        assert_eq!(later.list.due.map(|due| due.as_secs()), Some(70), "{step}");
    }
}

/// Generator of pseudo-random numbers: a fixed sequence for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Changes a random one of 200 namespaces: creates, labels, unlabels, begins to delete, or deletes it.
fn change(cluster: &mut Cluster, random: &mut Random) {
    let name = format!("n{:03}", random.below(200));
    match cluster.0.get(&name).copied() {
        None => drop(cluster.0.insert(name, (true, false))),
        Some((_, true)) => drop(cluster.0.remove(&name)),
        Some((is_labeled, false)) if random.below(2) == 0 => {
            cluster.0.insert(name, (!is_labeled, false));
        }
        Some((is_labeled, false)) => drop(cluster.0.insert(name, (is_labeled, true))),
    }
}

// docs/design/namespaces.md#changed-lists
#[test]
fn two_hundred_namespaces_within_ten_minutes_make_at_most_six_revisions() {
    let extension = extension();
    for seed in 1..=20 {
        let (mut random, mut cluster, mut memory) =
            (Random(seed), Cluster::default(), ExtensionMemory::default());
        cluster.0.insert("n000".to_owned(), (true, false));
        let mut newest = revision(1, &["n000".to_owned()], 0);
        let (mut revisions, mut written, mut changes, mut reconciles, mut due) = (1, 2, 0, 0, None);
        // No change in the last 5 minutes.
        for second in 0..900 {
            let changed = if second < 600 { 1 + random.below(3) } else { 0 };
            (0..changed).for_each(|_| change(&mut cluster, &mut random));
            changes += changed;
            if changed == 0 && due.is_none_or(|due| second < due) {
                continue;
            }
            reconciles += 1;
            let current =
                newest.metadata.annotations.as_ref().unwrap()[annotations::EXT_TARGET_NAMESPACES].clone();
            let (names, wait) = settled(&extension, &cluster, &newest, &mut memory, second);
            due = wait.map(|wait| second + i64::try_from(wait).unwrap());
            if names.join(",") == current {
                continue;
            }
            newest = revision(revisions + 1, &names, second);
            revisions += i64::from(second < 600);
            // A Role and a RoleBinding for each namespace, the revision, its Secret and the Deployment.
            written += 2 * names.len() + 3;
        }
        let list = newest.metadata.annotations.as_ref().unwrap()[annotations::EXT_TARGET_NAMESPACES].clone();
        let list: Vec<String> = list.split(',').map(str::to_owned).collect();
        println!(
            "seed {seed}: {changes} changes, {reconciles} reconciles, {revisions} revisions, {written} writes"
        );
        assert!(revisions <= 6, "{revisions} revisions");
        assert!(written <= 7 * (2 * 200 + 3), "{written} writes");
        assert!(!cluster.selected().differ(&list), "the last list is not the current one");
    }
}
