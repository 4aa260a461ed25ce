//! `olm catalog create`, and `olm catalog push --refresh`.

use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_api::ClusterCatalog;
use olm_control_plane::eventually;
use serde_json::json;

use super::fixture::{Fixture, ended};

const REFRESH: &str = "ext.olm.operatorframework.io/refresh-requested-at";

#[tokio::test(flavor = "multi_thread")]
async fn catalog_is_created_once_and_refreshed_after_a_push() {
    let fixture = Fixture::start(&[]).await;
    catalog_is_created_once(&fixture).await;
    push_waits_until_the_new_content_is_served(&fixture).await;
}

async fn catalog_is_created_once(fixture: &Fixture) {
    let line = ["catalog", "create", "team", "r.example/team:v1", "--poll-interval", "10", "--label", "a=b"];
    let ran = fixture.olm(&[&line[..], &["--dry-run=client", "-o", "yaml"]].concat()).await;
    let yaml = "apiVersion: olm.operatorframework.io/v1\nkind: ClusterCatalog\nmetadata:\n  labels:\n    a: b\n  \
                name: team\nspec:\n  source:\n    image:\n      pollIntervalMinutes: 10\n      ref: r.example/team:v1\n    \
                type: Image\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, yaml), "{}", ran.stderr);
    let name = "clustercatalog.olm.operatorframework.io/team";
    assert_eq!(fixture.olm(&line).await.stdout, format!("{name} created\n"));
    assert_eq!(fixture.olm(&line).await.stdout, format!("{name} unchanged\n"));
    for (flags, code, text) in [
        (
            &["team", "r.example/team:v2", "--priority", "-1", "--label", "a=c"][..],
            3,
            "error: ClusterCatalog \"team\" exists with other settings: image r.example/team:v1, poll interval 10, \
             priority 0, label a: b\n",
        ),
        (
            &["other", "no image"],
            3,
            "error: cannot create ClusterCatalog \"other\": rejected by the API server: ",
        ),
        (
            &["other", "r.example/team:v2", "--label", "a"],
            2,
            "error: invalid value 'a' for '--label <KEY=VALUE>'",
        ),
    ] {
        let ran = fixture.olm(&[&["catalog", "create"], flags].concat()).await;
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert!(ran.stderr.starts_with(text), "{}", ran.stderr);
    }
}

async fn push_waits_until_the_new_content_is_served(fixture: &Fixture) {
    let root = fixture.path("catalog");
    std::fs::create_dir(&root).unwrap();
    let text = "schema: olm.package\nname: lamp\ndefaultChannel: stable\n---\nschema: olm.channel\npackage: lamp\n\
                name: stable\nentries:\n- name: lamp.v1.0.0\n---\nschema: olm.bundle\npackage: lamp\nname: lamp.v1.0.0\n\
                image: r.example/lamp:1.0.0\nproperties:\n- type: olm.package\n  value: {packageName: lamp, version: 1.0.0}\n";
    std::fs::write(root.join("index.yaml"), text).unwrap();
    let reference = fixture.reference("team/catalog:v1");
    let line = ["catalog", "push", root.to_str().unwrap(), &reference, "--refresh"];
    // Nothing is pushed if the catalog would not pull it.
    let ran = fixture.olm(&[&line[..], &["nope"]].concat()).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{}", ran.stderr);
    let other = fixture.reference("team/catalog:v2");
    let ran = fixture.olm(&["catalog", "push", line[2], &other, "--refresh", "team"]).await;
    let text = "error: ClusterCatalog \"team\" pulls r.example/team:v1, not the pushed tag\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (3, text));
    let child = fixture.begin(&[&line[..], &["team"]].concat());
    let api: Api<ClusterCatalog> = Api::all(fixture.client());
    eventually("refresh request", async || {
        let annotations = api.get("team").await.unwrap().metadata.annotations.unwrap_or_default();
        annotations.contains_key(REFRESH).then_some(())
    })
    .await;
    // As catalogd: first the content of before, then the pushed one.
    let digest = fixture.olm(&["catalog", "build", root.to_str().unwrap()]).await.stdout;
    for digest in [&format!("sha256:{}", "a".repeat(64)), digest.trim()] {
        let status = json!({"status": {
            "conditions": [super::fixture::condition("Serving", "True", "Available", "Serving desired content", 1)],
            "resolvedSource": {"type": "Image", "image": {"ref": format!("r.example/team@{digest}")}},
            "urls": {"base": "https://catalogd-service.olmv1-system.svc/catalogs/team"},
        }});
        api.patch_status("team", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
    let ran = ended(child).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.ends_with(&format!("/team/catalog@{digest}")), "{}", ran.stdout);
    assert!(ran.stderr.ends_with(&format!("team serves r.example/team@{digest}")), "{}", ran.stderr);
}
