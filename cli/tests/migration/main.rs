//! `olm migrate apply` and `rollback` with real servers, and objects as classic OLM makes them. `olm` runs as a process,
//! behind a proxy that kills it and answers with errors.
//!
//! `OLM_FAULTS=all` tests every call instead of some.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod fixture;

use fixture::Fixture;
use olm_servers::{Answer, Call, Fault, When};

/// Number of points tested by default.
const SAMPLED: usize = 10;

/// Points among `count` calls: all, or some at equal distances.
fn points(count: usize) -> Vec<usize> {
    let all = std::env::var("OLM_FAULTS").is_ok_and(|chosen| chosen == "all");
    // Odd, so that points before and after calls are among them.
    let step = if all { 1 } else { count.div_ceil(SAMPLED) | 1 };
    (0..count).step_by(step).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn package_is_migrated_and_returned_without_a_loss() {
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
async fn kill_at_any_write_leads_to_the_same_end() {
    let clean = Fixture::start(1).await;
    let count = clean.count_calls(&["apply", &Fixture::name(0), "--yes"], Call::is_mutation).await;
    drop(clean);
    let points = points(2 * count);
    let fixture = Fixture::start(points.len()).await;
    for (number, point) in points.iter().enumerate() {
        let name = &Fixture::name(number);
        let before = fixture.objects(name).await;
        let when = if point % 2 == 0 { When::Before } else { When::After };
        let killed = fixture
            .olm_with(&["apply", name, "--yes"], Fault::Kill, point / 2, when, Call::is_mutation)
            .await;
        println!(
            "call {} of {count}, {when:?}: {}",
            point / 2,
            killed.stderr.lines().last().unwrap_or_default()
        );
        if number % 2 == 0 {
            let ran = fixture.olm(&["apply", name, "--yes"]).await;
            assert_eq!(ran.code, 0, "call {point}: {}{}", killed.stderr, ran.stderr);
            fixture.is_migrated(name, &before).await;
            let call = point / 2 % 12;
            let rollback = ["rollback", name, "--yes"];
            let killed = fixture.olm_with(&rollback, Fault::Kill, call, when, Call::is_mutation).await;
            println!("rollback, call {call}: {}", killed.stderr.lines().last().unwrap_or_default());
        }
        // Without a backup nothing was changed.
        let ran = fixture.olm(&["rollback", name, "--yes"]).await;
        assert!([0, 4].contains(&ran.code), "call {point}: {}{}", killed.stderr, ran.stderr);
        fixture.is_classic(name, &before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_error_at_any_call_leads_to_the_same_end() {
    let clean = Fixture::start(1).await;
    let count = clean.count_calls(&["apply", &Fixture::name(0), "--yes"], |_| true).await;
    drop(clean);
    let points = points(count);
    let fixture = Fixture::start(points.len()).await;
    for (number, point) in points.iter().enumerate() {
        let name = &Fixture::name(number);
        let before = fixture.objects(name).await;
        let fault = Fault::Answer(Answer::internal_error("fault"));
        let failed = fixture.olm_with(&["apply", name, "--yes"], fault, *point, When::Before, |_| true).await;
        println!(
            "call {point} of {count}: {} {}",
            failed.code,
            failed.stderr.lines().last().unwrap_or_default()
        );
        let ran = fixture.olm(&["apply", name, "--yes"]).await;
        assert_eq!(ran.code, 0, "call {point}: {}{}", failed.stderr, ran.stderr);
        fixture.is_migrated(name, &before).await;
    }
}
