//! The provider against a real API server, which calls a webhook of the test.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod aggregated;
mod fixture;

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use olm_api::names::{REVISION_ENGINE_MANAGER, WEBHOOK_CERTIFICATES_MANAGER};
use olm_api::{ClusterExtension, labels};
use olm_bundle::InjectionKind;
use olm_servers::RunningController;
use olm_serving::certificate::PemPair;
use olm_serving::issue::{count, is_accepted};
use olm_webhook_certificates::Times;
use serde_json::{Value, json};
use tokio::time::timeout;

use fixture::{
    CA, CRD, Fixture, LEAF, NAMESPACE, Webhook, carried, configuration, crd, eventually, needed, service,
};

use InjectionKind::{Crd, Mutating, Validating};

/// Short enough for a test to reach the end, and longer than the pod below needs to see a new certificate.
const QUICK: Times = Times { settle: Duration::from_secs(2), overlap: SignedDuration::from_secs(8) };
/// Delay until the pod sees a change of its Secret.
const LAG: Duration = Duration::from_secs(2);

const OBJECTS: [(InjectionKind, &str); 3] =
    [(Validating, "v.example.com"), (Mutating, "m.example.com"), (Crd, CRD)];

impl Fixture {
    /// Returns the bundle that all these objects carry, if they agree.
    async fn common(&self, objects: &[(InjectionKind, &str)]) -> Option<Vec<u8>> {
        let mut common = None;
        for (kind, name) in objects {
            let bundle = carried(&self.live(*kind, name).await?)?;
            if *common.get_or_insert_with(|| bundle.clone()) != bundle {
                return None;
            }
        }
        common
    }

    async fn until_injected(&self, objects: &[(InjectionKind, &str)]) -> Vec<u8> {
        eventually("every object carries the bundle", async || {
            let bundle = self.pair(CA).await?.1;
            (self.common(objects).await? == bundle).then_some(bundle)
        })
        .await
    }
}

fn accepted(pair: &PemPair, bundle: &[u8]) -> bool {
    let names = ["d-service.ns.svc", "d-service.ns.svc.cluster.local", "d-service.ns"].map(str::to_owned);
    is_accepted(pair, bundle, &names, Timestamp::now())
}

fn managers(object: &Value, field: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owns = |entry: &&Value| entry["fieldsV1"].to_string().contains(field);
    entries.iter().filter(owns).map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
}

// docs/design/bundles.md#webhook-certificates; case additions-a44: from the first revision to the last
#[tokio::test(flavor = "multi_thread")]
async fn webhook_certificates_follow_revisions_from_first_to_last() {
    let fixture = Fixture::start().await;
    let webhook = Webhook::start();
    let extension = fixture.extension("demo").await;
    let phases = [
        vec![crd(true)],
        vec![service()],
        vec![
            configuration(Validating, "v.example.com", webhook.port()),
            configuration(Mutating, "m.example.com", webhook.port()),
        ],
    ];
    let provider = fixture.provider(QUICK);
    provider.ensure(&extension, &needed(&phases)).await.unwrap();
    let (first, bundle) = fixture.pair(LEAF).await.unwrap();
    assert!(accepted(&first, &bundle) && count(&bundle) == 1);
    webhook.serve(&first).await;
    let (keeping, applying) = (fixture.run(&provider), fixture.run_revisions());
    fixture.revise(&extension, 1, &phases).await;
    assert_eq!(fixture.until_injected(&OBJECTS).await, bundle);
    for (kind, name) in OBJECTS {
        // The engine creates configurations with their bundle, and never writes it again.
        let expected = match kind {
            Crd => &[WEBHOOK_CERTIFICATES_MANAGER][..],
            _ => &[WEBHOOK_CERTIFICATES_MANAGER, REVISION_ENGINE_MANAGER],
        };
        eventually(&format!("{name}: managers of caBundle are {expected:?}"), async || {
            let live = fixture.live(kind, name).await?;
            (managers(&live, "f:caBundle") == expected).then_some(())
        })
        .await;
    }
    eventually("the webhook is called", async || fixture.call().await.ok()).await;

    edited_bundle_is_restored(&fixture, &bundle).await;
    applying.stop().await;
    let applying = engine_does_not_write_ca_bundle(&fixture).await;
    renewal_fails_no_call(&fixture, &webhook, &first).await;
    deleted_secrets_are_recreated(&fixture).await;
    keeping.stop().await;
    next_revisions_drop_webhooks(&fixture, &extension, webhook.port()).await;
    applying.stop().await;
}

/// Another process starts to lead. The next revision drops conversion and the mutating webhook.
async fn next_revisions_drop_webhooks(fixture: &Fixture, extension: &ClusterExtension, port: u16) {
    let provider = fixture.provider(QUICK);
    let keeping = fixture.run(&provider);
    let phases = [vec![crd(false)], vec![service()], vec![configuration(Validating, "v.example.com", port)]];
    provider.ensure(extension, &needed(&phases)).await.unwrap();
    fixture.revise(extension, 2, &phases).await;
    fixture.until_archived("demo-1").await;
    let live = fixture.live(Crd, CRD).await.unwrap();
    assert_eq!(live["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(fixture.live(Mutating, "m.example.com").await, None);
    fixture.until_injected(&OBJECTS[..1]).await;

    // The last revision has no webhooks.
    let phases = [vec![crd(false)]];
    provider.ensure(extension, &needed(&phases)).await.unwrap();
    fixture.revise(extension, 3, &phases).await;
    fixture.until_archived("demo-2").await;
    eventually("both Secrets are removed", async || {
        (fixture.pair(LEAF).await.is_none() && fixture.pair(CA).await.is_none()).then_some(())
    })
    .await;
    eventually("the extension is forgotten", async || provider.known("demo").is_none().then_some(())).await;
    keeping.stop().await;
}

async fn edited_bundle_is_restored(fixture: &Fixture, bundle: &[u8]) {
    let path = "/webhooks/0/clientConfig/caBundle";
    let edited = Instant::now();
    fixture
        .edit(Validating, "v.example.com", json!([{"op": "replace", "path": path, "value": "eA=="}]))
        .await;
    fixture.edit(Mutating, "m.example.com", json!([{"op": "remove", "path": path}])).await;
    let path = "/spec/conversion/webhook/clientConfig/caBundle";
    fixture.edit(Crd, CRD, json!([{"op": "remove", "path": path}])).await;
    assert_eq!(fixture.until_injected(&OBJECTS).await, bundle);
    eprintln!("edited bundles were back after {:?}", edited.elapsed());
}

// docs/design/apply.md#contention
/// An operator that makes its own certificates changes the bundle after each injection.
#[tokio::test(flavor = "multi_thread")]
async fn injections_against_another_writer_back_off() {
    let fixture = Fixture::start().await;
    let extension = fixture.extension("demo").await;
    let phases = [vec![service()], vec![configuration(Validating, "v.example.com", 443)]];
    let provider = fixture.provider(QUICK);
    provider.ensure(&extension, &needed(&phases)).await.unwrap();
    let (keeping, applying) = (fixture.run(&provider), fixture.run_revisions());
    fixture.revise(&extension, 1, &phases).await;
    fixture.until_injected(&OBJECTS[..1]).await;
    let rotate = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="}]);
    // Edits that one injection answers count once.
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        let rotated = Instant::now();
        fixture.edit(Validating, "v.example.com", rotate.clone()).await;
        fixture.until_injected(&OBJECTS[..1]).await;
        longest = longest.max(rotated.elapsed());
        if longest > Duration::from_secs(5) {
            break;
        }
    }
    assert!(longest > Duration::from_secs(5), "{longest:?}");
    let note = "WebhookCertificatesFailed: CA bundle of ValidatingWebhookConfiguration \
                \"v.example.com\": .webhooks[name=\"v.example.com\"].clientConfig.caBundle, changed 5 times by \"user\"; next \
                injection after 10 s. ";
    eventually("an Event names the other writer", async || {
        fixture.events().await.iter().any(|event| event.starts_with(note)).then_some(())
    })
    .await;
    keeping.stop().await;
    applying.stop().await;
}

/// A new engine writes nothing without drift, and correcting drift retains the bundle.
async fn engine_does_not_write_ca_bundle(fixture: &Fixture) -> RunningController {
    let versions = async || {
        let mut versions = Vec::new();
        for (kind, name) in OBJECTS {
            versions.push(fixture.live(kind, name).await.unwrap()["metadata"]["resourceVersion"].clone());
        }
        versions
    };
    let before = versions().await;
    let applying = fixture.run_revisions();
    // Drift that it does correct, in the same phase and after the CRD.
    fixture
        .edit(
            Validating,
            "v.example.com",
            json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]),
        )
        .await;
    eventually("the engine corrects drift", async || {
        let live = fixture.live(Validating, "v.example.com").await?;
        (live["webhooks"][0]["failurePolicy"] == "Fail" && carried(&live).is_some()).then_some(())
    })
    .await;
    let after = versions().await;
    assert_eq!(before[1..], after[1..], "no other object was written");
    let live = fixture.live(Validating, "v.example.com").await.unwrap();
    assert_eq!(managers(&live, "f:caBundle"), [WEBHOOK_CERTIFICATES_MANAGER]);
    assert!(managers(&live, "f:failurePolicy").contains(&REVISION_ENGINE_MANAGER.to_owned()));
    applying
}

/// Checks every stage of a renewal during continuous calls, with a pod that sees its Secret late.
async fn renewal_fails_no_call(fixture: &Fixture, webhook: &Webhook, first: &PemPair) {
    assert_eq!(fixture.common(&OBJECTS).await.map(|bundle| count(&bundle)), Some(1));
    fixture.request_renewal("demo", "2026-01-01T00:00:00Z").await;
    let mut served = first.clone();
    // Certificates in the Secret, with the time at which they appeared.
    let mut seen = vec![(first.clone(), Instant::now())];
    let mut stages = vec![(1, 1)];
    eventually("the old CA is dropped", async || {
        let called = fixture.call().await;
        assert_eq!(called, Ok(()), "stages {stages:?}");
        let (leaf, _) = fixture.pair(LEAF).await.unwrap();
        if seen.last().is_some_and(|(last, _)| *last != leaf) {
            seen.push((leaf, Instant::now()));
        }
        let (last, since) = seen.last().unwrap();
        if *last != served && since.elapsed() >= LAG {
            webhook.serve(last).await;
            served = last.clone();
        }
        for (kind, name) in OBJECTS {
            let bundle = carried(&fixture.live(kind, name).await.unwrap()).unwrap();
            assert!(accepted(&served, &bundle), "{name} in {stages:?}");
        }
        let trusted = fixture.common(&OBJECTS).await.map_or(0, |bundle| count(&bundle));
        let stage = (trusted, seen.len());
        if trusted > 0 && stages.last() != Some(&stage) {
            stages.push(stage);
        }
        (stage == (1, 2)).then_some(())
    })
    .await;
    // Number of trusted CAs and of certificates so far: both CAs are trusted before and after the new certificate
    // appears.
    assert_eq!(stages, [(1, 1), (2, 1), (2, 2), (1, 2)]);
    let (second, bundle) = eventually("the bundle in the serving Secret is updated", async || {
        let (leaf, bundle) = fixture.pair(LEAF).await?;
        (count(&bundle) == 1).then_some((leaf, bundle))
    })
    .await;
    assert!(accepted(&second, &bundle) && !accepted(first, &bundle));
    assert_eq!(fixture.call().await, Ok(()));
    let noted = async || {
        let events = fixture.events().await;
        let count = |text: &str| events.iter().filter(|event| event.contains(text)).count();
        (
            count("WebhookCertificatesRenewed: new CA for webhooks of Service ns/d-service, valid until "),
            count(
                "WebhookCertificatesRenewed: new serving certificate for webhooks of Service ns/d-service, valid until ",
            ),
        )
    };
    eventually("both Events are published", async || (noted().await == (1, 1)).then_some(())).await;
}

/// Deletes the Secret of the serving certificate, without and with that of the CA.
async fn deleted_secrets_are_recreated(fixture: &Fixture) {
    fixture.remove_secret(LEAF).await;
    let (leaf, bundle) =
        eventually("the serving certificate is recreated", async || fixture.pair(LEAF).await).await;
    assert!(accepted(&leaf, &bundle));
    fixture.remove_secret(CA).await;
    fixture.remove_secret(LEAF).await;
    eventually("both Secrets are recreated", async || {
        let (leaf, _) = fixture.pair(LEAF).await?;
        let bundle = fixture.pair(CA).await?.1;
        accepted(&leaf, &bundle).then_some(())
    })
    .await;
    fixture.until_injected(&OBJECTS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_secret_blocks_and_foreign_leftover_is_adopted() {
    let fixture = Fixture::start().await;
    let extension = fixture.extension("demo").await;
    let injections = needed(&[vec![service(), configuration(Validating, "v.example.com", 443)]]);
    let provider = fixture.provider(QUICK);
    let put = async |name: &str, change: Value| {
        let mut secret = json!({"metadata": {"name": name}, "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": "", "tls.key": ""}});
        secret["metadata"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let secret = serde_json::from_value(secret).unwrap();
        fixture.secrets().create(&PostParams::default(), &secret).await.unwrap();
    };
    // A Secret of another client.
    put(LEAF, json!({})).await;
    let refused = provider.ensure(&extension, &injections).await.unwrap_err().to_string();
    assert!(refused.starts_with("Secret ns/d-service-cert exists and does not belong to OLM: "), "{refused}");
    assert_eq!(fixture.pair(CA).await, None, "no CA is created");
    let mut unblocked = pin!(provider.unblocked::<ClusterExtension>());
    fixture.remove_secret(LEAF).await;
    assert_eq!(timeout(Duration::from_secs(30), unblocked.next()).await.unwrap().unwrap().name, "demo");
    // A Secret of a deleted extension. This control plane has no garbage collector.
    let owners = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "name": "demo", "uid": "before"}]);
    let marks = json!({labels::EXT_WEBHOOK_CERTIFICATE: "ca", labels::OWNER_NAME: "demo"});
    put(CA, json!({"ownerReferences": owners, "labels": marks})).await;
    let refused = provider.ensure(&extension, &injections).await.unwrap_err().to_string();
    assert!(refused.starts_with("Secret ns/d-service-ca belongs to a deleted ClusterExtension"), "{refused}");
    fixture.remove_secret(CA).await;
    // A Secret that cert-manager left behind is adopted.
    put(LEAF, json!({"annotations": {"cert-manager.io/certificate-name": LEAF}})).await;
    provider.ensure(&extension, &injections).await.unwrap();
    let taken = fixture.secrets().get(LEAF).await.unwrap();
    assert_eq!(taken.owner_references()[0].uid, extension.uid().unwrap());
    assert!(!taken.annotations().contains_key("cert-manager.io/certificate-name"));
    // Another extension needs the same Secret.
    let other = fixture.extension("other").await;
    let refused = provider.ensure(&other, &injections).await.unwrap_err().to_string();
    assert_eq!(refused, "Secret ns/d-service-ca holds webhook certificates of ClusterExtension \"demo\"");
    // A namespace that does not exist.
    let mut elsewhere = injections.clone();
    elsewhere[0].serving.namespace = "nowhere".to_owned();
    let refused = provider.ensure(&other, &elsewhere).await.unwrap_err().to_string();
    assert_eq!(refused, "creating Secret nowhere/d-service-ca: namespaces \"nowhere\" not found");
    // Garbage collection deletes the Secrets of a deleted extension.
    fixture.extensions().delete("demo", &DeleteParams::default()).await.unwrap();
    fixture.remove_secret(CA).await;
    fixture.remove_secret(LEAF).await;
    let refused = provider.ensure(&extension, &injections).await.unwrap_err().to_string();
    assert_eq!(refused, "ClusterExtension \"demo\" was deleted");
    assert_eq!((fixture.pair(CA).await, fixture.pair(LEAF).await), (None, None));
}

// An extension whose Secrets cannot be maintained gets an Event and does not delay another.
#[tokio::test(flavor = "multi_thread")]
async fn failing_extension_delays_no_other() {
    let fixture = Fixture::start().await;
    let (failing, well) = (fixture.extension("failing").await, fixture.extension("well").await);
    let phases = [vec![service(), configuration(Validating, "v.example.com", 443)]];
    let provider = fixture.provider(QUICK);
    provider.ensure(&failing, &needed(&phases)).await.unwrap();
    fixture.revise(&failing, 1, &phases).await;
    let keeping = fixture.run(&provider);
    // Another client replaces the Secret.
    eventually("the foreign Secret exists", async || {
        fixture.secrets().delete(LEAF, &DeleteParams::default()).await.ok();
        let secret = json!({"metadata": {"name": LEAF}, "type": "Opaque"});
        fixture.secrets().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.ok()
    })
    .await;
    let note = "WebhookCertificatesFailed: Secret ns/d-service-cert exists and does not belong to OLM";
    eventually(note, async || {
        fixture.events().await.iter().any(|event| event.starts_with(note)).then_some(())
    })
    .await;
    let objects = [service(), configuration(Validating, "w.example.com", 443)];
    let text = serde_json::to_string(&objects).unwrap();
    let phases: [Vec<Value>; 1] = [serde_json::from_str(&text.replace("d-service", "e-service")).unwrap()];
    provider.ensure(&well, &needed(&phases)).await.unwrap();
    let applying = fixture.run_revisions();
    fixture.revise(&well, 1, &phases).await;
    eventually("the other extension is served", async || {
        let bundle = fixture.pair("e-service-ca").await?.1;
        (carried(&fixture.live(Validating, "w.example.com").await?)? == bundle).then_some(())
    })
    .await;
    applying.stop().await;
    // A revision whose content is lost may have objects that lack a new CA, so that CA must not sign.
    let blind = fixture.extension("blind").await;
    let text = text.replace("d-service", "f-service").replace("w.example", "x.example");
    provider.ensure(&blind, &needed(&[serde_json::from_str(&text).unwrap()])).await.unwrap();
    let first = fixture.pair("f-service-cert").await.unwrap().0;
    fixture.revise_without_content(&blind, 1).await;
    fixture.request_renewal("blind", "1").await;
    let note = "WebhookCertificatesFailed: content of revision blind-1: resolving ref in phase \"p\": getting Secret \
                olmv1-system/lost: Secret \"lost\" not found";
    eventually(note, async || {
        let is_renewed = count(&fixture.pair("f-service-cert").await?.1) == 2;
        (is_renewed && fixture.events().await.iter().any(|event| event == note)).then_some(())
    })
    .await;
    let carried: Vec<usize> =
        provider.known("blind").unwrap().bundles.iter().map(|bundle| count(bundle)).collect();
    assert!(
        carried.iter().all(|count| *count == 1),
        "{carried:?}: must not include the bundle with both CAs"
    );
    assert_eq!(fixture.pair("f-service-cert").await.unwrap().0, first);
    keeping.stop().await;
}

// The newest provider owns the Secret once no revision with another is active, and they never overwrite each other.
#[tokio::test(flavor = "multi_thread")]
async fn providers_hand_over_secret_with_active_revisions() {
    let fixture = Fixture::start().await;
    let extension = fixture.extension("demo").await;
    let ours = [vec![service(), configuration(Validating, "v.example.com", 443)]];
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"name": LEAF, "namespace": NAMESPACE}, "spec": {"secretName": LEAF},
    });
    let theirs = [vec![certificate]];
    let provider = fixture.provider(QUICK);
    provider.ensure(&extension, &needed(&ours)).await.unwrap();
    fixture.revise(&extension, 1, &ours).await;
    let keeping = fixture.run(&provider);
    // cert-manager issues for the next revision, and we must not interfere.
    provider.ensure(&extension, &needed(&theirs)).await.unwrap();
    fixture.revise(&extension, 2, &theirs).await;
    eventually("both revisions are read", async || (provider.known("demo")?.revisions == 2).then_some(()))
        .await;
    let (mut pair, _) = fixture.pair(LEAF).await.unwrap();
    pair.certificate = b"of cert-manager".to_vec();
    let passed = async || {
        let before = fixture.pair(CA).await.unwrap();
        fixture.remove_secret(CA).await;
        let is_new = async || (fixture.pair(CA).await? != before).then_some(());
        eventually("a new CA exists", is_new).await;
    };
    fixture.issue(LEAF, &pair).await;
    passed().await;
    assert_eq!(fixture.pair(LEAF).await.unwrap().0, pair);
    // Archives our last revision: the Secret belongs to the other provider from now on.
    fixture.archive("demo-1").await;
    eventually("the Secret of the CA is deleted", async || fixture.pair(CA).await.is_none().then_some(()))
        .await;
    let unmarked = eventually("the serving certificate loses our labels", async || {
        let secret = fixture.secrets().get(LEAF).await.unwrap();
        (!secret.labels().contains_key(labels::EXT_WEBHOOK_CERTIFICATE)).then_some(secret)
    })
    .await;
    assert!(unmarked.owner_references().is_empty());
    assert_eq!(fixture.pair(LEAF).await.unwrap().0, pair);
    // In reverse: the Secret is adopted after their last revision.
    fixture.mark(LEAF, "cert-manager.io/certificate-name").await;
    provider.ensure(&extension, &needed(&ours)).await.unwrap();
    fixture.revise(&extension, 3, &ours).await;
    passed().await;
    assert_eq!(fixture.pair(LEAF).await.unwrap().0, pair);
    fixture.archive("demo-2").await;
    eventually("a certificate of ours is issued", async || {
        let (leaf, bundle) = fixture.pair(LEAF).await?;
        accepted(&leaf, &bundle).then_some(())
    })
    .await;
    keeping.stop().await;
}
