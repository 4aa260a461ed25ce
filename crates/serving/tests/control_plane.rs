//! Several replicas on one API server: certificates in Secrets, the Lease, and pull secrets.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use olm_control_plane::{ControlPlane, Options, eventually};
use olm_oci::CredentialSource;
use olm_runtime::Component;
use olm_runtime::events::Events;
use olm_runtime::lease::{Election, Timing};
use olm_runtime::pull_secrets::PullSecrets;
use olm_serving::builtin::{BuiltinCertificates, CA_SECRET, StoredPair};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "olmv1-system";

#[tokio::test]
async fn replicas_share_certificates_lease_and_credentials() {
    let plane = plane().await;
    certificates_are_made_once(&plane).await;
    other_namespace_gets_a_certificate_and_no_authority(&plane).await;
    one_candidate_leads(&plane).await;
    lease_is_held_while_a_webhook_on_leases_hangs(&plane).await;
    credentials_follow_the_secrets(&plane).await;
}

async fn plane() -> Arc<ControlPlane> {
    let plane = ControlPlane::reused(Options::default(), &[]).await.unwrap();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    Api::all(plane.client()).create(&PostParams::default(), &namespace).await.unwrap();
    plane
}

/// The result of each of four replicas of `component` that run at once.
async fn ensure_all(plane: &ControlPlane, component: Component) -> Vec<StoredPair> {
    let ensure = async || {
        let certificates = BuiltinCertificates::new(plane.client(), NAMESPACE, component, NAMESPACE);
        certificates.ensure().await.unwrap();
        // Another replica may have replaced the result of the first round.
        certificates.ensure().await.unwrap()
    };
    join_all((0..4).map(|_| ensure())).await
}

async fn certificates_are_made_once(plane: &ControlPlane) {
    let (catalogd, controller) = tokio::join!(
        ensure_all(plane, Component::Catalogd),
        ensure_all(plane, Component::OperatorController)
    );
    for issued in [&catalogd, &controller] {
        assert!(issued.iter().all(|one| one == &issued[0]));
    }
    assert_eq!(catalogd[0].bundle, controller[0].bundle);
    assert_ne!(catalogd[0].pair, controller[0].pair);

    // Deleting the Secret of the CA replaces all certificates and removes the old CA from the bundle.
    let secrets: Api<Secret> = Api::namespaced(plane.client(), NAMESPACE);
    let version = async |name: &str| secrets.get(name).await.unwrap().metadata.resource_version;
    let before = version(&Component::Catalogd.serving_secret()).await;
    secrets.delete(CA_SECRET, &DeleteParams::default()).await.unwrap();
    let renewed = ensure_all(plane, Component::Catalogd).await;
    assert!(renewed.iter().all(|one| one == &renewed[0]));
    assert_ne!(renewed[0].bundle, catalogd[0].bundle);
    assert_ne!(renewed[0].pair, catalogd[0].pair);
    // No write while nothing is due.
    let after = version(&Component::Catalogd.serving_secret()).await;
    assert_ne!(before, after);
    ensure_all(plane, Component::Catalogd).await;
    assert_eq!(version(&Component::Catalogd.serving_secret()).await, after);
}

/// The OpenShift install file has a namespace for each server.
async fn other_namespace_gets_a_certificate_and_no_authority(plane: &ControlPlane) {
    let issuer = BuiltinCertificates::new(plane.client(), NAMESPACE, Component::Catalogd, "default");
    let issued = issuer.ensure().await.unwrap();
    let authority: Api<Secret> = Api::namespaced(plane.client(), NAMESPACE);
    let authority = authority.get(CA_SECRET).await.unwrap().data.unwrap();
    assert_eq!(issued.bundle, authority["ca.crt"].0);
    let secrets: Api<Secret> = Api::namespaced(plane.client(), "default");
    let all = secrets.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<_> = all.iter().map(|secret| secret.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, [Component::Catalogd.serving_secret()]);
    assert_ne!(all[0].data.as_ref().unwrap()["tls.key"], authority["tls.key"]);
}

async fn one_candidate_leads(plane: &ControlPlane) {
    let timing = Timing {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(100),
    };
    let candidate =
        |identity: &str| Election::new(plane.client(), NAMESPACE, "lock", identity.to_owned(), timing);
    let leases: Api<Lease> = Api::namespaced(plane.client(), NAMESPACE);
    let record = async || leases.get("lock").await.unwrap().spec.unwrap();

    let mut first = candidate("first_1");
    first.acquire().await;
    assert_eq!(record().await.lease_transitions, Some(0));
    // A restarted container with the same identity keeps the Lease without a transition.
    let mut first = candidate("first_1");
    first.acquire().await;
    assert_eq!(record().await.lease_transitions, Some(0));

    // While the holder renews, for twice the lease duration, the other candidate must wait. When the holder stops
    // renewing, the other one acquires the Lease, and the former holder detects it.
    let mut second = candidate("second_2");
    tokio::select! {
        () = first.hold() => panic!("lost the lease while renewing"),
        _ = second.acquire() => panic!("two leaders"),
        () = tokio::time::sleep(2 * timing.lease_duration) => {}
    }
    second.acquire().await;
    let held = record().await;
    assert_eq!((held.holder_identity.as_deref(), held.lease_transitions), (Some("second_2"), Some(1)));
    first.hold().await;

    // A released Lease is acquired at once.
    first.release().await;
    assert_eq!(record().await.holder_identity.as_deref(), Some("second_2"), "only the holder may release");
    second.release().await;
    let released = record().await;
    assert_eq!((released.holder_identity.as_deref(), released.lease_duration_seconds), (Some(""), Some(1)));
    first.acquire().await;
    assert_eq!(record().await.lease_transitions, Some(2));
}

/// As with a policy engine that has a webhook on everything: with `failurePolicy: Ignore`, each write succeeds after the
/// timeout of the webhook. The durations are a fifth of those in the install files and of the longest usual timeout.
async fn lease_is_held_while_a_webhook_on_leases_hangs(plane: &ControlPlane) {
    let timing = Timing {
        lease_duration: Duration::from_secs(6),
        renew_deadline: Duration::from_millis(4800),
        retry_period: Duration::from_millis(600),
    };
    let candidate =
        |identity: &str| Election::new(plane.client(), NAMESPACE, "slow", identity.to_owned(), timing);
    let mut first = candidate("first_1");
    let leadership = first.acquire().await;
    // Accepts connections, and never answers.
    let webhook = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", webhook.local_addr().unwrap());
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(plane.client());
    let configuration = serde_json::from_value(json!({"metadata": {"name": "hangs"}, "webhooks": [{
        "name": "hangs.example.com", "clientConfig": {"url": url}, "failurePolicy": "Ignore", "timeoutSeconds": 2,
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["leases"]}]}]}))
    .unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();
    let mut second = candidate("second_2");
    tokio::select! {
        () = first.hold() => panic!("lost the lease to slow calls"),
        _ = second.acquire() => panic!("two leaders"),
        () = tokio::time::sleep(3 * timing.lease_duration) => {}
    }
    configurations.delete("hangs", &DeleteParams::default()).await.unwrap();
    assert!(!leadership.lost.is_cancelled());
}

// Case operations-a19
#[tokio::test]
async fn client_go_candidates_and_ours_exclude_each_other() {
    let plane = plane().await;
    let timing = Timing {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(200),
    };
    let twice = 2 * timing.lease_duration;
    let leases: Api<Lease> = Api::namespaced(plane.client(), NAMESPACE);
    let holder = async || leases.get("both").await.ok()?.spec?.holder_identity;
    let leads = async |is_leader: fn(&str) -> bool| {
        eventually("a matching candidate leads", async || {
            holder().await.filter(|identity| is_leader(identity))
        })
        .await
    };
    let is_of_go = |identity: &str| !identity.is_empty() && identity != "ours_1";
    let mut ours = Election::new(plane.client(), NAMESPACE, "both", "ours_1".to_owned(), timing);

    // A client-go candidate leads and renews. Ours acquires the Lease after it was killed.
    let go = plane.go_candidate(NAMESPACE, "both").unwrap();
    leads(is_of_go).await;
    tokio::select! {
        _ = ours.acquire() => panic!("two leaders"),
        () = tokio::time::sleep(twice) => {}
    }
    drop(go);
    ours.acquire().await;
    let record = leases.get("both").await.unwrap().spec.unwrap();
    assert_eq!((record.holder_identity.as_deref(), record.lease_transitions), (Some("ours_1"), Some(1)));

    // Ours leads and renews. The client-go candidate acquires the Lease after ours released it.
    let mut go = plane.go_candidate(NAMESPACE, "both").unwrap();
    tokio::select! {
        () = ours.hold() => panic!("lost the lease while renewing"),
        () = tokio::time::sleep(twice) => {}
    }
    go.check_running().unwrap();
    assert_eq!(holder().await.as_deref(), Some("ours_1"));
    ours.release().await;
    leads(is_of_go).await;

    // Ours acquires a Lease at once that client-go released.
    go.stop().unwrap();
    assert_eq!(holder().await.as_deref(), Some(""));
    tokio::time::timeout(timing.lease_duration, ours.acquire()).await.unwrap();
}

// Cases operations-a24, operations-a25, operations-e17, operations-e18, operations-e19
async fn credentials_follow_the_secrets(plane: &ControlPlane) {
    let secrets: Api<Secret> = Api::namespaced(plane.client(), NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client(), NAMESPACE);
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "server"},
        "imagePullSecrets": [{"name": "first"}, {"name": "broken"}, {"name": "late"}]}))
    .unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let write = async |name: &str, text: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {".dockerconfigjson": text}});
        let params = PatchParams::apply("test").force();
        secrets.patch(name, &params, &Patch::Apply(secret)).await.unwrap();
    };
    let login = |registry: &str, password: &str| {
        json!({"auths": {registry: {"username": "u", "password": password}}}).to_string()
    };
    write("global", &login("r.example", "0")).await;
    write("first", &login("r.example", "1")).await;
    write("broken", "no JSON").await;

    let events = Events::new(plane.client(), Component::Catalogd);
    let own = Some((NAMESPACE.to_owned(), "server".to_owned()));
    let global = format!("{NAMESPACE}/global");
    let mut pulling = PullSecrets::new(plane.client(), own, &global, events);
    let CredentialSource::Memory(published) = pulling.source() else { panic!("not in memory") };
    let password = |registry: &str| {
        let credentials = published.borrow();
        credentials.lookup(registry, "a").unwrap().map(|login| login.password.clone()).unwrap_or_default()
    };
    assert!(pulling.sync().await.unwrap());
    assert_eq!(
        password("r.example"),
        "1",
        "the ServiceAccount's Secret takes precedence over the global one"
    );

    let (changed, stop) = (Arc::new(Notify::new()), CancellationToken::new());
    let (notifier, end) = (Arc::clone(&changed), stop.clone());
    let following = tokio::spawn(pulling.follow(move || notifier.notify_one(), end));
    let soon = async || {
        tokio::time::timeout(Duration::from_secs(10), changed.notified()).await.expect("no change in 10 s")
    };
    write("first", &login("r.example", "2")).await;
    soon().await;
    assert_eq!(password("r.example"), "2");
    // One Secret is referenced and created later. The other one is created and referenced later.
    write("late", &login("late.example", "3")).await;
    soon().await;
    assert_eq!(password("late.example"), "3");
    write("new", &login("new.example", "4")).await;
    let more = json!({"imagePullSecrets": [{"name": "first"}, {"name": "broken"}, {"name": "new"}]});
    accounts.patch("server", &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    soon().await;
    assert_eq!((password("new.example").as_str(), password("late.example").as_str()), ("4", ""));

    invalid_pull_secret_is_reported(plane).await;
    stop.cancel();
    following.await.unwrap();
}

async fn invalid_pull_secret_is_reported(plane: &ControlPlane) {
    let about = ListParams::default().fields("reason=InvalidPullSecret");
    let events: Api<Event> = Api::namespaced(plane.client(), NAMESPACE);
    let event = events.list(&about).await.unwrap().items.remove(0);
    let note = format!("Secret {NAMESPACE}/broken is not used: its value is not a JSON object");
    assert_eq!(event.note, Some(note));
    assert_eq!(event.regarding.and_then(|account| account.name).as_deref(), Some("server"));
}
