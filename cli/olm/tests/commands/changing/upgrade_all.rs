//! `olm upgrade --all` and `olm upgrade --with-dependencies`. The test plays operator-controller.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::ClusterExtension;
use serde_json::json;

use super::fixture::{Fixture, ended};

/// Installs a bundle, with this version range.
async fn install(fixture: &Fixture, bundle: &str, range: Option<&str>) -> ClusterExtension {
    let package = bundle.split_once(".v").unwrap().0;
    let source = json!({"sourceType": "Catalog", "catalog": {"packageName": package, "version": range}});
    let extension: ClusterExtension = serde_json::from_value(
        json!({"metadata": {"name": package}, "spec": {"namespace": "pipe-system", "source": source}}),
    )
    .unwrap();
    let extension = fixture.extensions().create(&PostParams::default(), &extension).await.unwrap();
    fixture.settle(&extension, 1, bundle).await;
    extension
}

// docs/design/cli.md#changing-commands; case additions-a73
#[tokio::test(flavor = "multi_thread")]
async fn all_upgrades_are_taken_in_order_until_one_fails() {
    let fixture = Fixture::start(&[]).await;
    let none = fixture.olm(&["upgrade", "--all"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (0, "no upgrade is available\n"), "{}", none.stderr);

    install(&fixture, "lamp.v1.0.0", Some("1.x")).await;
    install(&fixture, "shade.v1.0.0", None).await;
    install(&fixture, "own.v1.0.0", None).await;
    let plan = "\
STEP   EXTENSION   INSTALLED      UPGRADE TO     CATALOG
1      lamp        lamp.v1.0.0    lamp.v1.1.0    hub
2      shade       shade.v1.0.0   shade.v1.2.0   hub
";
    let dry = fixture.olm(&["upgrade", "--all", "--dry-run=client"]).await;
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(dry.stdout.starts_with(plan), "{}", dry.stdout);
    assert!(dry.stdout.contains("lamp.v1.1.0 of catalog hub"), "{}", dry.stdout);
    let json = fixture.olm(&["upgrade", "--all", "--dry-run=client", "-o", "json"]).await;
    let list: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, list["items"].as_array().unwrap().len()), (0, 2));
    let asks = fixture.olm(&["upgrade", "--all"]).await;
    assert_eq!(asks.code, 2);
    assert!(asks.stderr.contains("Upgrade them? Standard input or"), "{}", asks.stderr);

    let failing = fixture.begin(&["upgrade", "--all", "--latest", "--yes", "--wait", "-o", "name"]);
    let lamp = fixture.generation("lamp", 2).await;
    let blocked = ["Progressing", "False", "Blocked", "error parsing image reference"];
    fixture.say(&lamp, Some(("lamp.v1.0.0", "1.0.0")), &[blocked]).await;
    let failed = ended(failing).await;
    assert_eq!(failed.code, 1);
    let account = "installed: none\nstarted: lamp (lamp.v1.1.0)\nnot started: shade (shade.v1.2.0)\n\
                   run the same command again to continue\n";
    assert!(failed.stderr.ends_with(account), "{}", failed.stderr);

    let range = json!({"spec": {"source": {"catalog": {"version": "1.x"}}}});
    fixture.extensions().patch("lamp", &PatchParams::default(), &Patch::Merge(&range)).await.unwrap();
    fixture.settle(&fixture.generation("lamp", 3).await, 1, "lamp.v1.0.0").await;
    let running = fixture.begin(&["upgrade", "--all", "--latest", "--yes", "-o", "name"]);
    let lamp = fixture.generation("lamp", 4).await;
    fixture.settle(&lamp, 2, "lamp.v1.1.0").await;
    let ran = ended(running).await;
    let names = ["lamp", "shade"].map(|name| format!("clusterextension.olm.operatorframework.io/{name}\n"));
    assert_eq!((ran.code, ran.stdout), (0, names.concat()), "{}", ran.stderr);
    fixture.extensions().patch("lamp", &PatchParams::default(), &Patch::Merge(&range)).await.unwrap();
    approval_and_failed_resolution_are_reported(&fixture).await;
}

async fn approval_and_failed_resolution_are_reported(fixture: &Fixture) {
    let shade = fixture.extension("shade").await;
    let held =
        ["UpgradeAvailable", "True", "ApprovalRequired", "bundle shade.v1.2.0 version 1.2.0 is available"];
    let succeeded = ["Progressing", "True", "Succeeded", "Revision 1.0.0 has rolled out."];
    let installed = ["Installed", "True", "Succeeded", "Installed bundle successfully"];
    fixture.say(&shade, Some(("shade.v1.0.0", "1.0.0")), &[installed, succeeded, held]).await;
    let ran = fixture.olm(&["upgrade", "--all"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let expected = "shade: shade is held: bundle shade.v1.2.0 version 1.2.0 is available";
    assert!(ran.stdout.starts_with("no upgrade is available\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains(expected), "{}", ran.stdout);

    let range = json!({"spec": {"source": {"catalog": {"version": "9.x"}}}});
    fixture.extensions().patch("own", &PatchParams::default(), &Patch::Merge(&range)).await.unwrap();
    let ran = fixture.olm(&["upgrade", "--all"]).await;
    assert_eq!(ran.code, 4);
    assert!(ran.stdout.contains("own: error upgrading from currently installed version"), "{}", ran.stdout);
    assert!(ran.stderr.contains("no bundle can be chosen for own"), "{}", ran.stderr);
}

// docs/design/additions.md#dependency-plans; case additions-a74
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_with_dependencies_installs_them_first() {
    let fixture = Fixture::start(&[]).await;
    let app = install(&fixture, "app.v1.0.0", Some("1.x")).await;
    let line = ["upgrade", "app", "--latest", "--with-dependencies", "--yes"];
    let dry = fixture.olm(&[&line[..], &["--dry-run=client"]].concat()).await;
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    let plan = ["1. install base 1.4.0 (", "\n2. upgrade app from 1.0.0 to 2.0.0 ("];
    assert!(plan.iter().all(|part| dry.stdout.contains(part)), "{}", dry.stdout);

    let running = fixture.begin(&line);
    let base = fixture.extension("base").await;
    assert_eq!(fixture.extension("app").await.metadata.generation, app.metadata.generation);
    fixture.settle(&base, 1, "base.v1.4.0").await;
    let ran = ended(running).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let changed = fixture.extension("app").await;
    let catalog = changed.spec.as_ref().unwrap().source.catalog.as_ref().unwrap();
    assert_eq!(catalog.version.as_deref(), Some("2.0.0"));
    assert_eq!(changed.uid(), app.uid());
}
