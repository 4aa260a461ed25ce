//! The maximum number of connections of one address, none of which reads its answer, and a review that is large when
//! decoded, against catalogd with the memory limit of the install files.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use fixture::cgroup::{Cgroup, limit_of};
use fixture::{Catalogd, Fixture, eventually, image_of};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

const READERS: usize = 500;
/// Handshakes at a time. The server closes one that takes longer than its timeout.
const HANDSHAKES: usize = 50;
const POD: &str = "pod";
/// Length of an object. Four of them, compressed, exceed the limit of a cached answer.
const NOISE: usize = 900 << 10;
const MANIFEST: &str = include_str!("../../manifests/base/catalogd/deployment.yaml");
/// Large enough that no socket buffer takes an answer whole.
const OBJECTS: usize = 40_000;

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_do_not_exhaust_memory_or_delay_others() {
    let limit = limit_of(MANIFEST);
    let group = Cgroup::with_memory(limit);
    let fixture = Fixture::start().await;
    let program = group.command(env!("CARGO_BIN_EXE_catalogd"));
    let flags = ["--cert-management=builtin"];
    let mut catalogd =
        Catalogd::start_as(&fixture, POD, &program.each_ref().map(String::as_str), &flags).await;
    let files = BTreeMap::from([
        ("catalog.json".to_owned(), content().into_bytes()),
        ("noise.json".to_owned(), noise().into_bytes()),
    ]);
    let digest = fixture.registry.add_image("a/large", "v1", &image_of(&files));
    fixture.create("large", "a/large:v1", serde_json::json!({})).await;
    fixture.until_served("large", &digest).await;

    let queries =
        [(2, "all", "identity"), (3, "metas?schema=odd", "identity"), (4, "metas?schema=noise", "gzip")];
    for (host, query, encoding) in queries {
        let path = format!("large/api/v1/{query}");
        let clients = clients(&fixture, host).await;
        let asked = clients
            .iter()
            .map(|client| client.get(catalogd.url(&path)).header("Accept-Encoding", encoding).send());
        let mut answers: Vec<_> = stream::iter(asked).buffered(HANDSHAKES).try_collect().await.unwrap();
        assert!(answers.iter().all(|answer| answer.status() == 200));
        let anonymous = group.anonymous();
        println!("{query}: {anonymous} bytes anonymous, {} at most", group.peak());
        // A server accepts twice as many connections, of two addresses. The kernel's buffers come on top.
        assert!(2 * anonymous < limit * 3 / 4, "{anonymous} bytes anonymous");
        eventually("another client is answered within a second", async || {
            let begun = Instant::now();
            let (status, text) = catalogd.get(&fixture, "large/api/v1/metas?schema=first").await;
            assert_eq!((status, text.lines().count()), (200, 1));
            (begun.elapsed() < Duration::from_secs(1)).then_some(())
        })
        .await;
        assert_eq!(catalogd.ended(), None);
        let answer = answers.pop().unwrap();
        let length = answer.content_length().unwrap();
        assert_eq!(answer.bytes().await.unwrap().len() as u64, length);
    }
    let review = format!(r#"{{"request":{{"unread":[{}0]}}}}"#, r#"{"":0},"#.repeat(1_000_000));
    let webhook = format!(
        "https://localhost:{}/mutate-olm-operatorframework-io-v1-clustercatalog",
        catalogd.webhook_port
    );
    let answer = fixture.client().await.post(webhook).body(review).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), group.kills()), (200, 0));
    catalogd.stop().await;
}

/// Objects that cannot be compressed to less than three quarters.
fn noise() -> String {
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"[(state >> 58) as usize],
        )
    };
    let text: String = (0..NOISE).map(|_| letter()).collect();
    let object = |number| format!(r#"{{"schema":"noise","name":"n{number}","data":"{text}"}}"#);
    (0..4).map(object).collect::<Vec<_>>().join("\n")
}

/// Objects of two schemas alternately: a query for one of them has as many ranges as objects.
fn content() -> String {
    let pad = "x".repeat(350);
    let object = |number: usize| {
        let schema = if number == 0 { "first" } else { ["even", "odd"][number % 2] };
        format!(r#"{{"schema":"{schema}","package":"p","name":"o{number}","pad":"{pad}"}}"#)
    };
    (0..OBJECTS).map(object).collect::<Vec<_>>().join("\n")
}

/// A client for each connection that one address may have, from 127.0.0.`host`. No other test uses that address.
async fn clients(fixture: &Fixture, host: u8) -> Vec<reqwest::Client> {
    let secrets: Api<Secret> = Api::namespaced(fixture.plane.client(), fixture::NAMESPACE);
    let authority = secrets.get("olmv1-ca").await.unwrap().data.unwrap().remove("ca.crt").unwrap();
    let authority = reqwest::Certificate::from_pem(&authority.0).unwrap();
    let client = reqwest::Client::builder()
        .add_root_certificate(authority)
        .local_address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)))
        .build()
        .unwrap();
    // Each request has a connection of its own while earlier ones are busy.
    vec![client; READERS]
}
