//! What several replicas do to one API server: certificates in Secrets, the Lease, and who may read metrics.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use olm_control_plane::ControlPlane;
use olm_service::Component;
use olm_service::builtin::{BuiltinCertificates, CA_SECRET, Issued};
use olm_service::lease::{Election, Timing};
use serde_json::json;

const NAMESPACE: &str = "olmv1-system";

#[tokio::test]
async fn replicas() {
    let plane = ControlPlane::start().await.unwrap();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    Api::all(plane.client()).create(&PostParams::default(), &namespace).await.unwrap();
    certificates_are_made_once(&plane).await;
    one_candidate_leads(&plane).await;
}

/// What each replica of `component` gets when all ask at once.
async fn ensure_all(plane: &ControlPlane, component: Component) -> Vec<Issued> {
    let ensure = async || {
        let certificates = BuiltinCertificates::new(plane.client(), NAMESPACE, component);
        certificates.ensure().await.unwrap();
        // The first round may end with what another replica replaced right after.
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
    assert_eq!(catalogd[0].ca_bundle, controller[0].ca_bundle);
    assert_ne!(catalogd[0].serving, controller[0].serving);

    // Whoever suspects the key of the CA deletes its Secret: all is made anew, and nothing old is trusted.
    let secrets: Api<Secret> = Api::namespaced(plane.client(), NAMESPACE);
    let version = async |name: &str| secrets.get(name).await.unwrap().metadata.resource_version;
    let before = version(Component::Catalogd.serving_secret()).await;
    secrets.delete(CA_SECRET, &DeleteParams::default()).await.unwrap();
    let renewed = ensure_all(plane, Component::Catalogd).await;
    assert!(renewed.iter().all(|one| one == &renewed[0]));
    assert_ne!(renewed[0].ca_bundle, catalogd[0].ca_bundle);
    assert_ne!(renewed[0].serving, catalogd[0].serving);
    // Nothing is written while nothing is due.
    let after = version(Component::Catalogd.serving_secret()).await;
    assert_ne!(before, after);
    ensure_all(plane, Component::Catalogd).await;
    assert_eq!(version(Component::Catalogd.serving_secret()).await, after);
}

async fn one_candidate_leads(plane: &ControlPlane) {
    let timing = Timing {
        lease_duration: Duration::from_secs(2),
        renew_deadline: Duration::from_secs(1),
        retry_period: Duration::from_millis(100),
    };
    let candidate =
        |identity: &str| Election::new(plane.client(), NAMESPACE, "lock", identity.to_owned(), timing);
    let leases: Api<Lease> = Api::namespaced(plane.client(), NAMESPACE);
    let record = async || leases.get("lock").await.unwrap().spec.unwrap();

    let mut first = candidate("first_1");
    first.acquire().await;
    assert_eq!(record().await.lease_transitions, Some(0));
    // A restarted container is its own predecessor.
    let mut first = candidate("first_1");
    first.acquire().await;
    assert_eq!(record().await.lease_transitions, Some(0));

    // While it renews, for twice the time it could be silent, nobody else gets the Lease; when it falls silent, somebody does, and it knows.
    let mut second = candidate("second_2");
    tokio::select! {
        () = first.hold() => panic!("lost without a cause"),
        () = second.acquire() => panic!("two leaders"),
        () = tokio::time::sleep(Duration::from_secs(4)) => {}
    }
    second.acquire().await;
    let held = record().await;
    assert_eq!((held.holder_identity.as_deref(), held.lease_transitions), (Some("second_2"), Some(1)));
    first.hold().await;

    // A released Lease is taken at once.
    first.release().await;
    assert_eq!(record().await.holder_identity.as_deref(), Some("second_2"), "not its to release");
    second.release().await;
    let released = record().await;
    assert_eq!((released.holder_identity.as_deref(), released.lease_duration_seconds), (Some(""), Some(1)));
    first.acquire().await;
    assert_eq!(record().await.lease_transitions, Some(2));
}
