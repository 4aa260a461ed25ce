//! Watches across a restore of etcd.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, ObjectRef};
use olm_control_plane::{ControlPlane, eventually};
use olm_runtime::metrics::Metrics;
use olm_runtime::{cluster, listing, watches};
use serde_json::json;
use tokio_util::sync::CancellationToken;

// docs/design/apply.md#restored-cluster
#[tokio::test(flavor = "multi_thread")]
async fn watch_lists_anew_after_a_restore_of_etcd() {
    let plane = ControlPlane::start().await.unwrap();
    let config = cluster::config(Some(plane.kubeconfig())).await.unwrap();
    let client = cluster::client(&config, &Arc::new(Metrics::new())).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let write = async |name: &str, value: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}});
        maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    };
    write("a", "backed up").await;
    plane.back_up_etcd().await.unwrap();
    for number in 0..100 {
        write("a", &number.to_string()).await;
    }
    let (store, writer) = reflector::store();
    let events = watches::watch(maps.clone(), listing::config()).reflect(writer);
    let (failed, goes_on) = (CancellationToken::new(), CancellationToken::new());
    let (fails, resumed) = (failed.clone(), goes_on.clone());
    let watching = tokio::spawn(events.for_each(move |event| {
        let (fails, resumed) = (fails.clone(), resumed.clone());
        async move {
            if event.is_err() {
                fails.cancel();
                resumed.cancelled().await;
            }
        }
    }));
    let has = async |value: &str| {
        let map = store.get(&ObjectRef::new("a").within("default"))?;
        (map.data == Some(BTreeMap::from([("k".to_owned(), value.to_owned())]))).then_some(())
    };
    eventually("the last change", async || has("99").await).await;
    plane.restore_etcd().await.unwrap();
    failed.cancelled().await;
    // The watch continues when the versions have caught up.
    for number in 0..200 {
        write("b", &number.to_string()).await;
    }
    goes_on.cancel();
    eventually("the restored object", async || has("backed up").await).await;
    write("a", "changed").await;
    eventually("a change after the restore", async || has("changed").await).await;
    watching.abort();
}
