//! `olm migrate apply` and `rollback` with real servers, and objects as classic OLM makes them. `olm` runs as a process,
//! behind a proxy that kills it and answers with errors.
//!
//! `OLM_FAULTS=all` tests every call instead of some, `OLM_FAULTS=NUMBER` every call from this one on.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

extern crate olm_tokio as tokio;

mod fixture;
mod options;
mod waiting;

use fixture::Fixture;
use futures::future::join_all;
use olm_servers::{Answer, Call, Fault, When};

/// Number of points tested by default.
const SAMPLED: usize = 10;
const CLASSIC_VERSION: &str = "operators.coreos.com/v1alpha1";
/// Packages of one cluster, one for each point, which migrate at once. Every command reads all of them.
const PACKAGES: usize = 10;

/// Points among `count` calls: all, all from a given one on, or some at equal distances.
fn points(count: usize) -> Vec<usize> {
    let chosen = std::env::var("OLM_FAULTS").ok().filter(|chosen| !chosen.is_empty());
    let first = chosen.map(|chosen| if chosen == "all" { 0 } else { chosen.parse().unwrap() });
    assert!(first.is_none_or(|first| first < count), "there are only {count} points");
    // Odd, so that points before and after calls are among them.
    let step = if first.is_some() { 1 } else { count.div_ceil(SAMPLED) | 1 };
    (first.unwrap_or_default()..count).step_by(step).collect()
}

/// Number of these calls of an apply.
async fn count_calls(is_counted: fn(&Call) -> bool) -> usize {
    Fixture::start(1).await.count_calls(&["apply", &Fixture::name(0), "--yes"], is_counted).await
}

/// Runs a test at [`points`] among `count` calls, each with a package of its own. All of a cluster migrate at once,
/// because `olm` mostly waits.
async fn at_points(count: usize, test: impl AsyncFn(&Fixture, usize, usize)) {
    for points in points(count).chunks(PACKAGES) {
        println!("points {points:?} of {count}");
        let fixture = Fixture::start(points.len()).await;
        let tests = points.iter().enumerate().map(|(number, point)| test(&fixture, number, *point));
        join_all(tests).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_apply_and_rollback_retain_all_objects() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let before = fixture.objects(name).await;
    let dry = fixture.olm(&["apply", name, "--dry-run=server"]).await;
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(dry.stdout.contains("1. write the backup"), "{}", dry.stdout);
    assert_eq!(fixture.objects(name).await, before);
    let ran = fixture.olm(&["apply", name, "--yes"]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("1 pod compared, none restarted"), "{}", ran.stdout);
    fixture.is_migrated(name, &before).await;
    let again = fixture.olm(&["apply", name, "--yes"]).await;
    assert_eq!(again.code, 0, "{}", again.stderr);
    fixture.is_migrated(name, &before).await;
    let ran = fixture.olm(&["rollback", name, "--yes"]).await;
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    fixture.is_classic(name, &before).await;
    let ran = fixture.olm(&["finish", "--yes"]).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("classic OLM is still in use"), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_of_any_kind_created_during_the_migration_is_kept() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let before = fixture.objects(name).await;
    let is_deletion = |call: &Call| {
        call.is_mutation() && call.method == "DELETE" && call.path.contains("/clusterserviceversions/")
    };
    let killed = fixture.olm_with(&["apply", name, "--yes"], Fault::Kill, 0, When::After, is_deletion).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    fixture.create_late_objects(name).await;
    succeeds(&fixture, &["apply", name, "--yes"]).await;
    fixture.is_migrated(name, &before).await;
    fixture.has_late_objects(name).await;
}

/// Runs a command that must succeed.
async fn succeeds(fixture: &Fixture, arguments: &[&str]) {
    let ran = fixture.olm(arguments).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_after_rollback_killed_at_deletion_of_extension_creates_it_again() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    succeeds(&fixture, &["apply", name, "--yes"]).await;
    let deleted = fixture.extension(name).await.metadata.uid;
    let is_deletion = |call: &Call| call.method == "DELETE" && call.path.contains("/clusterextensions/");
    let rollback = ["rollback", name, "--yes"];
    let killed = fixture.olm_with(&rollback, Fault::Kill, 0, When::After, is_deletion).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    succeeds(&fixture, &["apply", name, "--yes"]).await;
    assert_ne!(fixture.extension(name).await.metadata.uid, deleted);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_rollback_keeps_migration_complete() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    succeeds(&fixture, &["apply", name, "--yes"]).await;
    let before = fixture.record_extension(name, "another").await;
    let ran = fixture.olm(&["rollback", name, "--yes"]).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("is not that of the migration"), "{}", ran.stderr);
    assert_eq!(fixture.record_extension(name, "another").await, before);
    assert_eq!(before["ext.olm.operatorframework.io/migration-complete"], "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_planned_objects_of_a_subscription_are_deleted_and_missing_owners_not_restored() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let before = fixture.objects(name).await;
    fixture.create_owners_and_dependents(name).await;
    let has_plan = async || fixture.has(CLASSIC_VERSION, "InstallPlan", name, "install-a").await;
    assert!(has_plan().await);
    succeeds(&fixture, &["apply", name, "--yes"]).await;
    fixture.is_migrated(name, &before).await;
    assert!(fixture.has("v1", "ConfigMap", name, "child").await);
    assert!(!has_plan().await);
    fixture.delete("v1", "ConfigMap", name, "parent").await;
    succeeds(&fixture, &["rollback", name, "--yes"]).await;
    fixture.wait_for_garbage_collection(name).await;
    assert!(fixture.has(CLASSIC_VERSION, "Subscription", name, name).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_killed_at_any_write_resumes_to_same_result() {
    let count = count_calls(Call::is_mutation).await;
    at_points(2 * count, async |fixture, number, point| kill_at(fixture, number, point).await).await;
}

/// Kills an apply before or after a write, then repeats the apply or rolls back.
async fn kill_at(fixture: &Fixture, number: usize, point: usize) {
    let name = &Fixture::name(number);
    let before = fixture.objects(name).await;
    let when = if point.is_multiple_of(2) { When::Before } else { When::After };
    let apply = ["apply", name, "--yes"];
    let killed = fixture.olm_with(&apply, Fault::Kill, point / 2, when, Call::is_mutation).await;
    println!("write {}, {when:?}: {}", point / 2, killed.stderr.lines().last().unwrap_or_default());
    if number.is_multiple_of(2) {
        let ran = fixture.olm(&apply).await;
        assert_eq!(ran.code, 0, "point {point}: {}{}", killed.stderr, ran.stderr);
        fixture.is_migrated(name, &before).await;
        let write = point / 2 % 12;
        let rollback = ["rollback", name, "--yes"];
        let killed = fixture.olm_with(&rollback, Fault::Kill, write, when, Call::is_mutation).await;
        println!("rollback, write {write}: {}", killed.stderr.lines().last().unwrap_or_default());
    }
    // Without a backup nothing was changed.
    let ran = fixture.olm(&["rollback", name, "--yes"]).await;
    assert!([0, 4].contains(&ran.code), "point {point}: {}{}", killed.stderr, ran.stderr);
    fixture.is_classic(name, &before).await;
}

/// Reports whether a call of a rollback writes before the Subscription exists: afterwards, classic OLM has the package.
fn is_write_before_subscription(call: &Call) -> bool {
    let is_backup = call.method == "DELETE" && call.path.contains("/olm-migrate-");
    call.is_mutation() && !call.path.contains("/subscriptions") && !is_backup
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_after_rollback_killed_at_any_write_migrates_again() {
    return_at_points(&[], (None, "stable")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pinned_apply_after_rollback_killed_at_any_write_migrates_again() {
    return_at_points(&["--keep-pinned"], (Some("1.0.0"), "")).await;
}

/// Kills a rollback at [`points`] of its writes. `options` are those of the first apply, and `expected` are the version and
/// the channels of the extension.
async fn return_at_points(options: &[&str], expected: (Option<&str>, &str)) {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    succeeds(&fixture, &["apply", name, "--yes"]).await;
    let count = fixture.count_calls(&["rollback", name, "--yes"], is_write_before_subscription).await;
    drop(fixture);
    at_points(2 * count, async |fixture, number, point| {
        let name = &Fixture::name(number);
        let before = fixture.objects(name).await;
        return_at(fixture, name, point, options).await;
        fixture.is_migrated_with(name, &before, expected).await;
    })
    .await;
}

/// Kills a rollback before or after a write, then applies again.
async fn return_at(fixture: &Fixture, name: &str, point: usize, options: &[&str]) {
    let (apply, rollback) = (["apply", name, "--yes"], ["rollback", name, "--yes"]);
    let ran = fixture.olm(&[&apply, options].concat()).await;
    assert_eq!(ran.code, 0, "point {point}: {}", ran.stderr);
    let when = if point.is_multiple_of(2) { When::Before } else { When::After };
    let counted = is_write_before_subscription;
    let killed = fixture.olm_with(&rollback, Fault::Kill, point / 2, when, counted).await;
    println!("write {}, {when:?}: {}", point / 2, killed.stderr.lines().last().unwrap_or_default());
    let ran = fixture.olm(&apply).await;
    assert_eq!(ran.code, 0, "point {point}: {}{}", killed.stderr, ran.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_with_api_error_at_any_call_ends_in_same_result() {
    let count = count_calls(|_| true).await;
    at_points(count, async |fixture, number, point| fail_at(fixture, number, point).await).await;
}

/// Answers a call of an apply with an error, then applies again.
async fn fail_at(fixture: &Fixture, number: usize, point: usize) {
    let name = &Fixture::name(number);
    let before = fixture.objects(name).await;
    let fault = Fault::Answer(Answer::internal_error("fault"));
    let apply = ["apply", name, "--yes"];
    let failed = fixture.olm_with(&apply, fault, point, When::Before, |_| true).await;
    println!("call {point}: {} {}", failed.code, failed.stderr.lines().last().unwrap_or_default());
    let ran = fixture.olm(&apply).await;
    assert_eq!(ran.code, 0, "call {point}: {}{}", failed.stderr, ran.stderr);
    fixture.is_migrated(name, &before).await;
}
