//! `olm cluster-check` on a real API server, also with the CRDs of OpenShift.

use std::path::Path;
use std::sync::Arc;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_api::annotations::EXT_IMAGE_TEMPLATE;
use olm_api::{ClusterCatalog, ClusterObjectSet, ClusterUpgradeStatus};
use olm_control_plane::{ControlPlane, Options};
use serde_json::{Value, json};

use crate::fixture::{Ran, olm_in};

const OPENSHIFT_CRDS: &str = include_str!("../../../../tests/e2e/data/openshift-crds.yaml");

async fn check(plane: &ControlPlane, args: &[&str]) -> Ran {
    olm(plane, &[&["cluster-check"], args].concat()).await
}

async fn olm(plane: &ControlPlane, args: &[&str]) -> Ran {
    let mut command = olm_in(Path::new("."), args);
    command.arg("--kubeconfig").arg(plane.kubeconfig());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap().into()
}

async fn install(plane: &ControlPlane, extension: &str, properties: &str) {
    let set: ClusterObjectSet = serde_json::from_value(json!({
        "metadata": {
            "name": format!("{extension}-1"),
            "labels": {
                "olm.operatorframework.io/owner-kind": "ClusterExtension",
                "olm.operatorframework.io/owner-name": extension,
            },
            "annotations": {
                "olm.operatorframework.io/bundle-name": format!("{extension}.v1.0.0"),
                "olm.operatorframework.io/bundle-version": "1.0.0",
                "olm.properties": properties,
            },
        },
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
    }))
    .unwrap();
    Api::all(plane.client()).create(&PostParams::default(), &set).await.unwrap();
}

/// Cluster with the extensions apple, and kiwi, which supports OpenShift up to 4.18.
async fn start() -> Arc<ControlPlane> {
    let plane = ControlPlane::reused(Options::default(), &olm_api::crds::crds()).await.unwrap();
    install(&plane, "apple", "[]").await;
    install(&plane, "kiwi", r#"[{"type":"olm.maxOpenShiftVersion","value":"4.18"}]"#).await;
    plane
}

async fn install_plum(plane: &ControlPlane) {
    let properties = r#"[{"type":"ext.olm.operatorframework.io/maxKubernetesVersion","value":"1.99"}]"#;
    install(plane, "plum", properties).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_without_olm_is_reported() {
    let plane = ControlPlane::reused(Options::default(), &[]).await.unwrap();
    let none = olm(&plane, &["status"]).await;
    assert_eq!(none.code, 1, "{}", none.stdout);
    assert!(none.stderr.contains("OLM v1 is not installed in this cluster"), "{}", none.stderr);
    let none = check(&plane, &[]).await;
    assert_eq!(none.code, 1, "{}", none.stdout);
    assert!(
        none.stderr.contains("OLM v1 is not installed in this cluster: it has no ClusterObjectSets"),
        "{}",
        none.stderr
    );
}

// docs/design/catalogd.md#image-templates
#[tokio::test(flavor = "multi_thread")]
async fn image_template_without_image_is_a_warning() {
    let plane = &start().await;
    let catalog: ClusterCatalog = serde_json::from_value(json!({
        "metadata": {"name": "team", "annotations": {EXT_IMAGE_TEMPLATE: "registry.example.com/c:{foo}"}},
        "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/c:v1"}}},
    }))
    .unwrap();
    let catalogs: Api<ClusterCatalog> = Api::all(plane.client());
    catalogs.create(&PostParams::default(), &catalog).await.unwrap();
    let warned = check(plane, &[]).await;
    assert_eq!(warned.code, 0);
    let (begin, end) = ("warning: ClusterCatalog \"team\": image for Kubernetes 1.", "has improper syntax\n");
    assert!(warned.stderr.starts_with(begin) && warned.stderr.ends_with(end), "{}", warned.stderr);
}

// docs/design/additions.md#ignored-constraints; cases operations-a45, operations-a46
#[tokio::test(flavor = "multi_thread")]
async fn constraints_are_compared_with_the_target_version() {
    let plane = &start().await;
    let well = check(plane, &[]).await;
    assert_eq!((well.code, well.stderr.as_str()), (0, ""));
    assert!(well.stdout.starts_with("Platform:           Kubernetes 1."), "{}", well.stdout);
    assert!(well.stdout.contains("olm.maxOpenShiftVersion was not evaluated"), "{}", well.stdout);
    assert!(well.stdout.contains("\nkiwi        kiwi.v1.0.0    1.0.0     NotApplicable"), "{}", well.stdout);

    // 4.18 is Kubernetes 1.31.
    let mapped = check(plane, &["--openshift-version-map=k8s-offset", "--target-kube=1.32"]).await;
    assert_eq!(mapped.code, 4);
    assert!(mapped.stdout.contains("\nkiwi        kiwi.v1.0.0    1.0.0     Blocking"), "{}", mapped.stdout);

    let asked = check(plane, &["--platform=openshift", "--platform-version=4.18"]).await;
    assert_eq!(asked.code, 4);
    assert!(
        asked.stdout.contains("Upgradeable:        False (IncompatibleOperatorsInstalled)\n"),
        "{}",
        asked.stdout
    );
    let table = "\
EXTENSION   BUNDLE         VERSION   RESULT       CONSTRAINT                VALUE
apple       apple.v1.0.0   1.0.0     Compatible   -                         -
kiwi        kiwi.v1.0.0    1.0.0     Blocking     olm.maxOpenShiftVersion   4.18
";
    assert!(asked.stdout.ends_with(table), "{}", asked.stdout);

    let refused = check(plane, &["--target-platform=4.18"]).await;
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--target-platform is an OpenShift version"), "{}", refused.stderr);
    let refused = check(plane, &["--target-kube=next"]).await;
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("expected <major>.<minor>, such as 4.18"), "{}", refused.stderr);

    install_plum(plane).await;
    assert_eq!(check(plane, &["--target-kube=1.99"]).await.code, 0);
    let further = check(plane, &["--target-kube=1.100"]).await;
    assert_eq!(further.code, 4);
    assert!(
        further.stdout.contains("upgrading cluster to version 1.100: bundle \"plum.v1.0.0\""),
        "{}",
        further.stdout
    );
}

// docs/design/operations.md#acknowledgements
#[tokio::test(flavor = "multi_thread")]
async fn acknowledgement_is_written_and_honored() {
    let plane = &start().await;
    let openshift = ["--platform=openshift", "--platform-version=4.18"];
    let acknowledge = async |more: &[&str]| check(plane, &[&openshift, more].concat()).await;
    let missing = acknowledge(&["--acknowledge=kiwi"]).await;
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("there is no ClusterUpgradeStatus \"cluster\""), "{}", missing.stderr);
    let statuses: Api<ClusterUpgradeStatus> = Api::all(plane.client());
    let new = serde_json::from_value(json!({"metadata": {"name": "cluster"}})).unwrap();
    statuses.create(&PostParams::default(), &new).await.unwrap();
    let silent = acknowledge(&["--acknowledge=apple"]).await;
    assert_eq!(silent.code, 4);
    assert!(
        silent.stderr.contains("no bundle of ClusterExtension \"apple\" blocks 4.19"),
        "{}",
        silent.stderr
    );

    for (dry_run, note) in [("client", "dry run"), ("server", "server dry run")] {
        let dry = acknowledge(&["--acknowledge=kiwi", "--dry-run", dry_run]).await;
        assert_eq!(dry.code, 0, "{}", dry.stderr);
        let said = format!("clusterupgradestatus.ext.olm.operatorframework.io/cluster changed ({note})\n");
        assert_eq!(dry.stderr, said);
        assert!(dry.stdout.contains("\nkiwi        kiwi.v1.0.0    1.0.0     Acknowledged"), "{}", dry.stdout);
        assert!(statuses.get("cluster").await.unwrap().spec.is_none());
    }
    assert_eq!(acknowledge(&[]).await.code, 4);
    assert_eq!(acknowledge(&["--acknowledge=kiwi", "--comment=tested"]).await.code, 0);
    let spec = serde_json::to_value(statuses.get("cluster").await.unwrap().spec).unwrap();
    let expected = json!([{"extension": "kiwi", "bundle": "kiwi.v1.0.0", "platformVersion": "4.19", "comment": "tested"}]);
    assert_eq!(spec["acknowledgements"], expected);
    assert_eq!(acknowledge(&[]).await.code, 0);
    // It is for one version.
    assert_eq!(acknowledge(&["--target-platform=4.20"]).await.code, 4);
}

// docs/design/operations.md#removed-apis
#[tokio::test(flavor = "multi_thread")]
async fn removed_apis_are_listed() {
    let plane = &start().await;
    let object = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "claim", "namespace": "fig"}});
    let set: ClusterObjectSet = serde_json::from_value(json!({
        "metadata": {"name": "fig-1", "labels": {
            "olm.operatorframework.io/owner-kind": "ClusterExtension",
            "olm.operatorframework.io/owner-name": "fig",
        }},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent",
            "phases": [{"name": "deploy", "objects": [{"object": object}]}]},
    }))
    .unwrap();
    let sets: Api<ClusterObjectSet> = Api::all(plane.client());
    sets.create(&PostParams::default(), &set).await.unwrap();
    assert_eq!(check(plane, &["--kube=1.37"]).await.code, 0);
    let found = check(plane, &["--kube=1.38"]).await;
    assert_eq!(found.code, 4);
    let table = "\
EXTENSION   REVISION   REMOVED API               KIND                    OBJECT      REMOVED IN
fig         fig-1      resource.k8s.io/v1beta1   ResourceClaimTemplate   fig/claim   1.38
";
    assert!(found.stdout.ends_with(table), "{}", found.stdout);
}

// Cases operations-a34, operations-a35, operations-a47
#[tokio::test(flavor = "multi_thread")]
async fn version_of_openshift_is_read_from_its_cluster_version() {
    let plane = &start().await;
    install_plum(plane).await;
    plane.apply_crds(&olm_yaml::all_from_slice(OPENSHIFT_CRDS.as_bytes()).unwrap()).await.unwrap();
    let unknown = check(plane, &[]).await;
    assert_eq!(unknown.code, 4);
    assert!(
        unknown.stdout.contains("Platform:           OpenShift, version unknown\n"),
        "{}",
        unknown.stdout
    );
    assert!(
        unknown.stdout.contains("Upgradeable:        Unknown (PlatformVersionUnknown)\n"),
        "{}",
        unknown.stdout
    );

    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterVersion");
    let resource = ApiResource::from_gvk_with_plural(&kind, "clusterversions");
    let versions: Api<DynamicObject> = Api::all_with(plane.client(), &resource);
    let mut version = DynamicObject::new("version", &resource);
    version.data = json!({"spec": {"clusterID": "x"}});
    versions.create(&PostParams::default(), &version).await.unwrap();
    let status = Patch::Merge(json!({"status": {"desired": {"version": "4.17.3"}}}));
    versions.patch_status("version", &PatchParams::default(), &status).await.unwrap();

    assert_eq!(check(plane, &[]).await.code, 0);
    let blocked = check(plane, &["--target-platform=4.19", "-o", "json"]).await;
    assert_eq!(blocked.code, 4);
    let got: Value = serde_json::from_str(&blocked.stdout).unwrap();
    assert_eq!((&got["kind"], &got["upgradeable"]), (&json!("ClusterCheck"), &json!("False")));
    assert_eq!(
        got["message"],
        "Found ClusterExtensions that require upgrades prior to upgrading cluster to version 4.19: bundle \
         \"kiwi.v1.0.0\" for ClusterExtension \"kiwi\"."
    );
    let platform = json!({"type": "OpenShift", "currentVersion": "4.17", "nextVersion": "4.19", "source": "ClusterVersion"});
    assert_eq!(got["platform"], platform);
    assert_eq!(got["blockingExtensions"], 1);
    assert_eq!(got["extensions"].as_array().unwrap().len(), 3);
    let yaml = check(plane, &["-o", "yaml"]).await;
    assert!(yaml.stdout.contains("kind: ClusterCheck\nupgradeable: \"True\"\n"), "{}", yaml.stdout);
}
