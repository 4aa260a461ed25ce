use std::collections::BTreeMap;
use std::path::Path;

use kube::api::DeleteParams;
use olm_image::Image;
use olm_image::registry::Registry;
use serde_json::{Value, json};

use super::fixture::{Fixture, Ran, compare, crd, data, object};

const DONE: [&str; 2] =
    ["Progressing=True/Succeeded Revision has rolled out.", "Succeeded=True/Succeeded done"];
const INSTALLED: [&str; 2] =
    ["Installed=True/Succeeded ok", "Progressing=True/Succeeded Revision 1.2.0 has rolled out."];

/// Runs `olm rollback pipe` with the catalog of these tests.
async fn rollback(fixture: &Fixture, args: &[&str]) -> Ran {
    fixture.olm(&[&["rollback", "pipe", "--catalog", "catalog"], args].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_pins_the_previous_version_and_rejects_data_loss() {
    let fixture = Fixture::start().await;
    fixture.create_extension("pipe", "1.x").await;
    let map = || object("v1", "ConfigMap", "settings");
    fixture.make("pipe", 1, "1.0.0", vec![map(), crd("pipes", "Pipe", &["length"])]).await;
    fixture.set_revision("pipe-1", &DONE).await;
    let pipes = || crd("pipes", "Pipe", &["length"]);
    fixture.make("pipe", 2, "1.1.0", vec![map(), pipes(), object("v1", "ServiceAccount", "manager")]).await;
    fixture.set_revision("pipe-2", &DONE).await;
    fixture.archive("pipe-1").await;
    fixture.set_installed("pipe", "1.1.0", &INSTALLED, &["pipe-2"]).await;

    harmless(&fixture).await;
    // From here on, the newest version has more objects than the previous one.
    let new = vec![map(), crd("pipes", "Pipe", &["length", "colour"]), crd("bends", "Bend", &["angle"])];
    fixture.make("pipe", 3, "1.2.0", new).await;
    fixture.set_revision("pipe-3", &DONE).await;
    fixture.archive("pipe-2").await;
    fixture.set_installed("pipe", "1.2.0", &INSTALLED, &["pipe-3"]).await;
    losses_are_refused(&fixture).await;
    unknown_targets_are_rejected(&fixture).await;
    accepted_risk_disables_crd_check(&fixture).await;
}

async fn harmless(fixture: &Fixture) {
    for (dry_run, golden) in [("client", "rollback-client.txt"), ("server", "rollback-server.txt")] {
        let ran = rollback(fixture, &["--dry-run", dry_run]).await;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("warning: comparing the stored objects of revision 1: "),
            "{}",
            ran.stderr
        );
        compare(golden, &ran.stdout);
    }
    let catalog = &fixture.extension("pipe").await.spec.unwrap().source.catalog.unwrap();
    assert_eq!(catalog.version.as_deref(), Some("1.x"));
    let ran = rollback(fixture, &["--to", "1", "--dry-run=server", "-o", "json"]).await;
    let desired: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        desired["spec"]["source"]["catalog"],
        json!({"packageName": "pipe", "version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"})
    );
    fixture.allow("viewer", &["*/*"]).await;
    let ran = fixture.olm_as("viewer", &["rollback", "pipe", "--catalog", "catalog"]).await;
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("cannot change ClusterExtension \"pipe\": "), "{}", ran.stderr);
}

/// docs/design/cli.md#changing-commands: findings of data loss are rejected unless `--accept-risk` is set.
async fn losses_are_refused(fixture: &Fixture) {
    let mut bend = object("example.com/v1", "Bend", "knee");
    bend["spec"] = json!({"angle": "90"});
    // Discovery of the new kind can lag.
    olm_control_plane::eventually("the kind is served", async || {
        let parsed = serde_json::from_value(bend.clone()).unwrap();
        fixture.api(&bend).create(&Default::default(), &parsed).await.ok()
    })
    .await;
    let before = fixture.extension("pipe").await;
    for args in [&["--to", "2"][..], &["--to", "1.1.0"], &["--dry-run=client"]] {
        let ran = rollback(fixture, args).await;
        assert_eq!(ran.code, 3, "{args:?} {}", ran.stderr);
        for line in [
            "error: the rollback of pipe is refused:\ndata may be lost:\n",
            "\n  pipes.example.com: existingFieldRemoval: removed field : v1.^.spec.colour\n",
            "\n  bends.example.com is deleted, with 1 custom resource (first: pipe-system/knee)\n",
            "\nnothing has been changed; back up your data, then run the command with --accept-risk\n",
        ] {
            assert!(ran.stderr.contains(line), "{line}{}", ran.stderr);
        }
        compare("rollback-refused.txt", ran.stdout.split("\nOld: ").next().unwrap());
    }
    assert_eq!(fixture.extension("pipe").await, before);
    // A caller who may not list custom resources cannot exclude data loss.
    let resources = [
        "*/clusterextensions",
        "*/clusterobjectsets",
        "*/secrets",
        "*/configmaps",
        "*/serviceaccounts",
        "*/customresourcedefinitions",
    ];
    fixture.allow("guest", &resources).await;
    let ran = fixture.olm_as("guest", &["rollback", "pipe", "--catalog", "catalog"]).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let unknown = "bends.example.com is deleted, and its custom resources cannot be counted: ";
    assert!(ran.stderr.contains(unknown), "{}", ran.stderr);
}

async fn unknown_targets_are_rejected(fixture: &Fixture) {
    for (args, text) in [
        (&["--to", "9"][..], "pipe has no revision 9; revisions: 3 (pipe.v1.2.0, newest revision), 2 ("),
        (&["--to", "3"], "revision 3 cannot be a rollback target: newest revision"),
        (
            &["--to", "0.9.0"],
            "a rollback needs a catalog that contains version 0.9.0 in a channel that the extension allows",
        ),
    ] {
        let ran = rollback(fixture, args).await;
        assert_eq!(ran.code, 4, "{args:?} {}", ran.stderr);
        assert!(ran.stderr.contains(text), "{}", ran.stderr);
    }
    let ran = rollback(fixture, &["--to", "latest"]).await;
    assert_eq!(ran.code, 2);
}

/// The CRD upgrade check would reject the rollback, so the command disables it. The output contains the patch that
/// reverts both.
async fn accepted_risk_disables_crd_check(fixture: &Fixture) {
    let ran = rollback(fixture, &["--accept-risk"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    compare("rollback-accepted.txt", &ran.stdout);
    let extension = fixture.extension("pipe").await;
    let spec = serde_json::to_value(extension.spec.unwrap()).unwrap();
    assert_eq!(
        (&spec["source"]["catalog"]["version"], &spec["source"]["catalog"]["upgradeConstraintPolicy"]),
        (&json!("1.1.0"), &json!("SelfCertified"))
    );
    assert_eq!(spec["install"], json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}));
    let managers = extension.metadata.managed_fields.unwrap();
    assert!(managers.iter().any(|entry| entry.manager.as_deref() == Some("olm-cli")), "{managers:?}");

    // The printed patch reverts everything that the command has written.
    let patch = ran.stdout.split("--type=merge -p '").nth(1).unwrap().split('\'').next().unwrap();
    let patch: Value = serde_json::from_str(patch).unwrap();
    let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "pipe"}});
    let patch = kube::api::Patch::Merge(patch);
    fixture.api(&object).patch("pipe", &Default::default(), &patch).await.unwrap();
    let spec = serde_json::to_value(fixture.extension("pipe").await.spec.unwrap()).unwrap();
    assert_eq!(spec["source"]["catalog"]["version"], "1.x");
    assert_eq!(spec["source"]["catalog"]["upgradeConstraintPolicy"], "CatalogProvided");
    assert_eq!(spec.get("install"), None);

    fixture.api(&object).delete("pipe", &DeleteParams::default()).await.unwrap();
    let gone = rollback(fixture, &[]).await;
    assert_eq!(gone.code, 4, "{}", gone.stderr);
}

/// If the bundle image can be pulled, its rendering is compared instead of the objects of the revision.
#[tokio::test(flavor = "multi_thread")]
async fn rollback_compares_the_bundle_image_if_it_can_be_pulled() {
    let fixture = Fixture::start().await;
    fixture.create_extension("pipe", "1.x").await;
    for (number, version) in [(1, "1.0.0"), (2, "1.1.0")] {
        fixture.make("pipe", number, version, vec![object("v1", "ConfigMap", "settings")]).await;
        fixture.set_revision(&format!("pipe-{number}"), &DONE).await;
    }
    fixture.archive("pipe-1").await;
    fixture.set_installed("pipe", "1.1.0", &INSTALLED, &["pipe-2"]).await;
    let registry = Registry::start().await.unwrap();
    registry.add_image("pipe", "1.0.0", &Image::bundle(&bundle()).unwrap());
    std::fs::create_dir(fixture.path("cas")).unwrap();
    registry.write_ca(&fixture.path("cas")).unwrap();
    let catalog = std::fs::read_to_string(data().join("catalog/pipe.yaml")).unwrap();
    std::fs::create_dir(fixture.path("catalog")).unwrap();
    std::fs::write(fixture.path("catalog/pipe.yaml"), catalog.replace("127.0.0.1:1", &registry.host()))
        .unwrap();
    let (catalog, cas) = (fixture.path("catalog"), fixture.path("cas"));
    let flags =
        ["--catalog", catalog.to_str().unwrap(), "--ca-dir", cas.to_str().unwrap(), "--dry-run=client"];
    let ran = fixture.olm(&[&["rollback", "pipe"], &flags[..]].concat()).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stderr.contains("has kept"), "{}", ran.stderr);
    let host = registry.host();
    for line in [
        format!("\nNew:  pipe.v1.0.0, version 1.0.0 ({host}/pipe:1.0.0)\n"),
        "\n  + Deployment pipe-system/pipe-manager\n".to_owned(),
        "\n  - ConfigMap pipe-system/settings\n".to_owned(),
    ] {
        assert!(ran.stdout.contains(&line), "{line}{}", ran.stdout);
    }
}

/// Files of the bundle pipe.v1.0.0.
fn bundle() -> BTreeMap<String, Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/bundles/data/old");
    let files = |folder: &'static str| {
        let entries = root.join(folder).read_dir().unwrap().map(Result::unwrap);
        entries.map(move |entry| {
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            (name, std::fs::read(entry.path()).unwrap())
        })
    };
    files("manifests").chain(files("metadata")).collect()
}
