//! Watches across a restore of etcd.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use olm_control_plane::{ControlPlane, eventually};
use olm_runtime::cluster;
use olm_runtime::metrics::Metrics;
use serde_json::json;

// docs/design/apply.md#restored-cluster
#[tokio::test(flavor = "multi_thread")]
async fn watch_lists_anew_after_a_restore_of_etcd() {
    let plane = ControlPlane::start().await.unwrap();
    let config = cluster::config(Some(plane.kubeconfig())).await.unwrap();
    let client = cluster::client(&config, &Arc::new(Metrics::new())).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let write = async |value: &str| {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
        maps.patch("a", &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    };
    write("backed up").await;
    plane.back_up_etcd().await.unwrap();
    for number in 0..100 {
        write(&number.to_string()).await;
    }
    let (store, writer) = reflector::store();
    let events = watcher(maps.clone(), watcher::Config::default()).default_backoff().reflect(writer);
    let watching = tokio::spawn(events.for_each(|_| async {}));
    let has = async |value: &str| {
        let map = store.get(&ObjectRef::new("a").within("default"))?;
        (map.data == Some(BTreeMap::from([("k".to_owned(), value.to_owned())]))).then_some(())
    };
    eventually("the last change", async || has("99").await).await;
    plane.restore_etcd().await.unwrap();
    eventually("the restored object", async || has("backed up").await).await;
    write("changed").await;
    eventually("a change after the restore", async || has("changed").await).await;
    watching.abort();
}
