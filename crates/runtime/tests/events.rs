//! Events on a real API server, with and without the permission to create them.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use kube::{Api, Client, Resource};
use olm_control_plane::ControlPlane;
use olm_runtime::Component;
use olm_runtime::cluster;
use olm_runtime::events::Events;
use olm_runtime::metrics::Metrics;
use serde_json::json;

/// Timeout of [`eventually`].
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn events_are_published_once_and_denied_ones_are_dropped() {
    let plane = ControlPlane::start().await.unwrap();
    events_arrive(&plane).await;
    events_that_are_forbidden_are_tried_once(&plane).await;
}

/// Polls until `ask` returns a value.
async fn eventually<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let answer = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answer).await.unwrap()
}

/// The Events of this reason, oldest first.
async fn events_of(client: &Client, namespace: &str, reason: &str) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let mut all = api.list(&ListParams::default().fields(&format!("reason={reason}"))).await.unwrap().items;
    all.sort_by_key(|event| event.event_time.clone());
    all
}

async fn events_arrive(plane: &ControlPlane) {
    let client = plane.client();
    let events = Events::new(client.clone(), Component::OperatorController);
    // Cluster-scoped, as all objects that the servers publish Events about.
    let namespace: Namespace = Api::<Namespace>::all(client.clone()).get("default").await.unwrap();
    let object = namespace.object_ref(&());
    let uid = object.uid.clone().unwrap();
    let note = "€".repeat(2000);
    for said in ["first", "first", "second", "first", note.as_str(), note.as_str()] {
        events.normal(object.clone(), "Resolved", said.into());
    }
    events.normal(object.clone(), "Resolved", "first".into());
    // The Event is in the namespace of its object, and published after all others.
    let map = json!({"metadata": {"name": "m", "namespace": "kube-system", "uid": "1"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    events.warning(map.object_ref(&()), "ResolutionFailed", "third".into());

    let warnings = eventually(async || {
        Some(events_of(&client, "kube-system", "ResolutionFailed").await).filter(|found| !found.is_empty())
    })
    .await;
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].type_.as_deref(), Some("Warning"));
    let found = events_of(&client, "default", "Resolved").await;
    let notes: Vec<&str> = found.iter().map(|event| event.note.as_deref().unwrap()).collect();
    let cut = format!("{}…", "€".repeat(340));
    assert_eq!(notes, ["first", "second", "first", &cut, "first"]);
    for event in found {
        assert_eq!(event.type_.as_deref(), Some("Normal"));
        assert_eq!(event.action.as_deref(), Some("Resolved"));
        assert_eq!(event.reporting_controller.as_deref(), Some("operator-controller"));
        assert_eq!(event.regarding.as_ref().and_then(|object| object.uid.as_ref()), Some(&uid));
        assert_eq!(event.series, None);
    }
}

async fn events_that_are_forbidden_are_tried_once(plane: &ControlPlane) {
    let mut kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
    kubeconfig.auth_infos[0].auth_info.as_mut().unwrap().impersonate = Some("nobody".into());
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    let metrics = Arc::new(Metrics::new());
    let nobody = cluster::client(&config, &metrics).unwrap();
    let events = Events::new(nobody, Component::Catalogd);
    let object = |uid: &str| ObjectReference {
        api_version: Some("olm.operatorframework.io/v1".into()),
        kind: Some("ClusterCatalog".into()),
        name: Some(uid.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    };
    events.normal(object("a"), "CatalogUpdated", "1".into());
    events.normal(object("a"), "CatalogUpdated", "1".into());
    events.warning(object("b"), "CatalogUnavailable", "2".into());
    // Published one after the other: when the second is denied, the first is done.
    let refused = async |times: u32| {
        let line = |line: &str| {
            line.starts_with("rest_client_requests_total")
                && line.contains(r#"code="403""#)
                && line.ends_with(&format!(" {times}"))
        };
        metrics.prometheus_text().lines().any(line).then_some(())
    };
    eventually(async || refused(2).await).await;
    assert!(events_of(&plane.client(), "default", "CatalogUpdated").await.is_empty());
}
