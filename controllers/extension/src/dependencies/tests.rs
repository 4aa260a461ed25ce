//! Installed bundles and served APIs of a real API server.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, PostParams};
use olm_api::labels;
use olm_control_plane::{ControlPlane, Options};
use olm_resolve::Gvk;
use serde_json::{Value, json};

use super::fixture::set;
use super::*;

/// Timeout of expected changes.
const PATIENCE: Duration = Duration::from_secs(60);

fn crd(plural: &str, kind: &str, owner: Option<&str>) -> Value {
    let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": plural, "kind": kind},
            "versions": [version("v1", true, true), version("v1beta1", true, false), version("v1alpha1", false, false)],
        },
    });
    if let Some(owner) = owner {
        crd["metadata"]["labels"] =
            json!({labels::OWNER_KIND: labels::OWNER_KIND_EXTENSION, labels::OWNER_NAME: owner});
    }
    crd
}

fn gvk(version: &str, kind: &str) -> Gvk {
    Gvk { group: "example.com".into(), version: version.into(), kind: kind.into() }
}

async fn eventually(what: &str, ask: impl AsyncFn() -> bool) {
    let cached = async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, cached)
        .await
        .unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

#[tokio::test]
async fn dependency_providers_and_served_apis_are_read_from_cluster() {
    let plane = ControlPlane::reused(Options::default(), &[]).await.unwrap();
    let revisions = RevisionCache::new();
    let dependencies = Arc::new(Dependencies::new(plane.client(), revisions.clone()));
    let owned = crd("tools", "Tool", Some("toolbox"));
    plane.apply_crds(&[owned, crd("spares", "Spare", None)]).await.unwrap();
    revisions.inject(Event::Apply(set("toolbox", 1, &[])));

    // CRDs of an extension are its APIs. CRDs of other owners are external (case additions-e18).
    eventually("discovery shows what is established", async || {
        dependencies.changed();
        let (around, _) = dependencies.available_providers("app", |_, _| true).await.unwrap();
        ["v1", "v1beta1"].iter().all(|version| around.served.contains(&gvk(version, "Spare")))
    })
    .await;
    let (around, dependents) = dependencies.available_providers("app", |_, _| true).await.unwrap();
    assert!(dependents.is_empty());
    assert_eq!(around.providers.len(), 1);
    let toolbox = &around.providers[0];
    assert_eq!((toolbox.extension(), toolbox.bundle()), (Some("toolbox"), "toolbox.v1"));
    assert_eq!(toolbox.package(), Some("toolbox"));
    let provided: Vec<_> = toolbox.gvks().cloned().collect();
    assert_eq!(provided, [gvk("v1", "Tool"), gvk("v1beta1", "Tool")]);
    let core = Gvk { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() };
    let apps = Gvk { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() };
    for (gvk, expected) in [
        (core, true),
        (apps, true),
        (gvk("v1", "Spare"), true),
        (gvk("v1alpha1", "Spare"), false),
        (gvk("v1", "Tool"), false),
    ] {
        assert_eq!(around.served.contains(&gvk), expected, "{gvk}");
    }

    let served = &dependencies.apis().await.unwrap().served;
    assert_eq!(served.kubernetes, plane.client().apiserver_version().await.unwrap().git_version);
    assert!(served.gvks.contains(&gvk("v1", "Tool")));
    dependencies.cluster_facts().await.unwrap();

    fresh_result_is_shared(&dependencies).await;
    stale_group_does_not_affect_other_groups(&plane, &dependencies).await;
    new_crd_is_announced(&plane, &dependencies).await;
}

/// Concurrent and later callers share one result while it is fresh.
async fn fresh_result_is_shared(dependencies: &Dependencies) {
    dependencies.changed();
    let answers = futures::future::join_all((0..8).map(|_| dependencies.apis())).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert!(answers.iter().all(|cached| Arc::ptr_eq(cached, &answers[0])));
    dependencies.changed();
    assert!(!Arc::ptr_eq(&dependencies.apis().await.unwrap(), &answers[0]));
}

async fn stale_group_does_not_affect_other_groups(plane: &ControlPlane, dependencies: &Dependencies) {
    let services: Api<APIService> = Api::all(plane.client());
    let broken = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.broken.example.com"},
        "spec": {
            "group": "broken.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nobody"},
        },
    });
    services.create(&PostParams::default(), &serde_json::from_value(broken).unwrap()).await.unwrap();
    eventually("the broken group is stale", async || {
        dependencies.changed();
        let apis = dependencies.apis().await.unwrap();
        assert!(apis.served.gvks.contains(&gvk("v1", "Spare")));
        apis.stale.contains("broken.example.com/v1")
    })
    .await;
    services.delete("v1.broken.example.com", &DeleteParams::default()).await.unwrap();
}

/// A CRD that is created later is announced.
async fn new_crd_is_announced(plane: &ControlPlane, dependencies: &Dependencies) {
    let announced = AtomicUsize::new(0);
    let count = || announced.load(Ordering::SeqCst);
    let scene = async {
        eventually("the first list is announced", async || count() > 0).await;
        let before = count();
        plane.apply_crds(&[crd("latecomers", "Latecomer", None)]).await.unwrap();
        eventually("the CRD is announced", async || count() > before).await;
        eventually("the result is read again", async || {
            dependencies.apis().await.unwrap().served.gvks.contains(&gvk("v1", "Latecomer"))
        })
        .await;
    };
    tokio::select! {
        () = dependencies.follow_crds(|| _ = announced.fetch_add(1, Ordering::SeqCst)) => panic!("the watch ended"),
        () = scene => {}
    }
}

#[tokio::test]
async fn installed_bundle_is_announced_after_first_use() {
    let nowhere = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let revisions = RevisionCache::new();
    let dependencies = Dependencies::new(nowhere, revisions.clone());
    let announced = AtomicUsize::new(0);
    let count = || announced.load(Ordering::SeqCst);
    let scene = async {
        revisions.inject(Event::Apply(set("a", 1, &[])));
        tokio::task::yield_now().await;
        assert_eq!(count(), 0);
        // A failed result is shared too.
        let failure = dependencies.cluster_facts().await.map(drop).unwrap_err();
        assert!(failure.message.starts_with("reading the APIs that the cluster serves: "), "{failure}");
        assert_eq!(dependencies.available_providers("x", |_, _| true).await.map(drop).unwrap_err(), failure);
        revisions.inject(Event::Apply(set("b", 1, &[])));
        eventually("the bundle is announced", async || count() == 1).await;
    };
    tokio::select! {
        biased;
        () = dependencies.follow_installed(|| _ = announced.fetch_add(1, Ordering::SeqCst)) => panic!("the watch ended"),
        () = scene => {}
    }
}
