//! Memory of operator-controller while a tenant has many large objects with our labels
//! (docs/design/operations.md#hardening).

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures::{StreamExt, stream};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use olm_api::labels;
use olm_servers::{Bundle, Catalog, Programs, ServerFixture, Workloads, eventually, extension};

use crate::cgroup::{Cgroup, limit_of};

/// Number of large objects of each kind.
const OBJECTS: usize = 60;
/// Number of labels of one: as many as an object can have.
const LABELS: usize = 58_000;
const TENANT: &str = "tenant";

/// Body of a large object that seems to belong to the extension. A text, because a value of this size takes seconds to
/// serialize in a test.
fn large(kind: &str, number: usize) -> Vec<u8> {
    let mut all = format!(
        r#""{}":"lamp","{}":"{}","{}":"serving""#,
        labels::OWNER_NAME,
        labels::OWNER_KIND,
        labels::OWNER_KIND_EXTENSION,
        labels::EXT_WEBHOOK_CERTIFICATE
    );
    (0..LABELS).for_each(|label| write!(all, r#","{label:05x}":"""#).unwrap());
    let owner = r#"{"apiVersion":"v1","kind":"ConfigMap","name":"mine","uid":"mine"}"#;
    let metadata = format!(r#"{{"name":"large-{number}","ownerReferences":[{owner}],"labels":{{{all}}}}}"#);
    format!(r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{metadata}}}"#).into_bytes()
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
#[ignore = "takes minutes: step kills of hack/test --full"]
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

    let client = fixture.client();
    let each = (0..OBJECTS).flat_map(|number| [("ConfigMap", number), ("Secret", number)]);
    let created = stream::iter(each).for_each_concurrent(4, async |(kind, number)| {
        let path = format!("/api/v1/namespaces/{TENANT}/{}s", kind.to_lowercase());
        let request = Request::post(path).header("Content-Type", "application/json");
        let answer = client.send(request.body(large(kind, number).into()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 201);
    });
    created.await;

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
