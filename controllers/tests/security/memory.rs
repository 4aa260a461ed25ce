//! Memory of operator-controller while a tenant has many large objects with our labels
//! (docs/design/operations.md#hardening).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use olm_api::labels;
use olm_servers::{Bundle, Catalog, Programs, ServerFixture, Workloads, eventually, extension};
use serde_json::json;

use crate::cgroup::{Cgroup, limit_of};

/// Number of large objects of each kind.
const OBJECTS: usize = 60;
/// Number of labels of one: as many as an object can have.
const LABELS: usize = 58_000;
const TENANT: &str = "tenant";

/// Metadata of a large object that seems to belong to the extension.
fn large(number: usize) -> ObjectMeta {
    let mut all: BTreeMap<String, String> =
        (0..LABELS).map(|label| (format!("{label:05x}"), String::new())).collect();
    for (key, value) in [
        (labels::OWNER_NAME, "lamp"),
        (labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION),
        (labels::EXT_WEBHOOK_CERTIFICATE, "serving"),
    ] {
        all.insert(key.to_owned(), value.to_owned());
    }
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "mine"}]);
    ObjectMeta {
        name: Some(format!("large-{number}")),
        namespace: Some(TENANT.to_owned()),
        labels: Some(all),
        owner_references: serde_json::from_value(owner).unwrap(),
        ..ObjectMeta::default()
    }
}

/// Programs with operator-controller in this cgroup.
fn programs(cgroup: &Cgroup, folder: &Path) -> Programs {
    let beside = Programs::beside(crate::PROGRAM).unwrap();
    let [shell, flag, enter, program] = cgroup.command(&beside.operator_controller.display().to_string());
    let script = format!("#!/bin/sh\nexec {shell} {flag} '{enter}' {program} \"$@\"\n");
    let operator_controller = folder.join("operator-controller");
    std::fs::write(&operator_controller, script).unwrap();
    std::fs::set_permissions(&operator_controller, PermissionsExt::from_mode(0o755)).unwrap();
    Programs { operator_controller, ..beside }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_objects_of_a_tenant_fit_into_the_memory_of_the_container() {
    let manifest = include_str!("../../../manifests/base/operator-controller/deployment.yaml");
    let cgroup = Cgroup::with_memory(limit_of(manifest));
    let folder = tempfile::tempdir().unwrap();
    let fixture = ServerFixture::start(programs(&cgroup, folder.path())).await.unwrap();
    let _workloads = Workloads::start(fixture.client());
    let _catalogd = fixture.start_catalogd().await.unwrap();
    let controller = fixture.start_controller().await.unwrap();
    for namespace in ["apps", TENANT] {
        fixture.create_namespace(namespace).await.unwrap();
    }
    let lamp = fixture.publish(&Bundle::sample("lamp", "1.0.0")).unwrap();
    fixture.serve("packages", &Catalog::default().chain(&[lamp])).await.unwrap();
    let body = serde_json::from_value(extension("lamp", "apps", "lamp", None)).unwrap();
    fixture.extensions().create(&PostParams::default(), &body).await.unwrap();
    fixture.until_installed("lamp", "1.0.0").await.unwrap();
    controller.stop().await.unwrap();

    let (maps, secrets): (Api<ConfigMap>, Api<Secret>) =
        (Api::namespaced(fixture.client(), TENANT), Api::namespaced(fixture.client(), TENANT));
    let created = stream::iter(0..OBJECTS).map(Ok).try_for_each_concurrent(4, async |number| {
        let (map, secret) = (
            ConfigMap { metadata: large(number), ..ConfigMap::default() },
            Secret { metadata: large(number), ..Secret::default() },
        );
        maps.create(&PostParams::default(), &map).await?;
        secrets.create(&PostParams::default(), &secret).await.map(drop)
    });
    created.await.unwrap();

    let mut controller = fixture.start_controller().await.unwrap();
    // A pass waits for the lists of all kinds, and repairs what their watches report.
    let ours: Api<ConfigMap> = Api::namespaced(fixture.client(), "apps");
    for _ in 0..3 {
        ours.delete("lamp-settings", &DeleteParams::default()).await.unwrap();
        eventually("the object is created again", async || {
            assert_eq!(cgroup.kills(), 0, "operator-controller ran out of memory");
            ours.get_opt("lamp-settings").await.unwrap().map(drop)
        })
        .await;
    }
    controller.check().unwrap();
    println!("peak: {} bytes", cgroup.peak());
    assert_eq!(cgroup.kills(), 0);
    controller.stop().await.unwrap();
}
