//! Options of `olm migrate apply` and `rollback`.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use olm_api::ClusterExtension;
use olm_control_plane::eventually;
use olm_servers::{Call, Fault, NAMESPACE, When};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::{CLASSIC_VERSION, succeeds};

/// Path of the file with the backup of a package.
fn file(folder: &str, name: &str) -> PathBuf {
    Path::new(folder).join(format!("olm-migrate-{name}.{name}.json"))
}

/// Deletes the first Secret of the backup of a package.
async fn lose_backup(fixture: &Fixture, package: &str) {
    let secrets: Api<Secret> = Api::namespaced(fixture.client(), NAMESPACE);
    let name = format!("olm-migrate-{package}.{package}");
    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
}

/// Creates the objects of a list in a file.
async fn create_all(fixture: &Fixture, path: &Path) {
    let list: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for object in list["items"].as_array().unwrap() {
        fixture.create(object.clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_packages_return_with_backups_from_files() {
    let fixture = Fixture::start(2).await;
    let names = [Fixture::name(0), Fixture::name(1)];
    let before = [fixture.objects(&names[0]).await, fixture.objects(&names[1]).await];
    let folder = fixture.file("backups");
    succeeds(&fixture, &["apply", &names[0], "--yes", "--keep-pinned", "--backup", &folder]).await;
    let extension = fixture.extension(&names[0]).await;
    let catalog = extension.spec.unwrap().source.catalog.unwrap();
    assert_eq!((catalog.version.as_deref(), catalog.channels.len()), (Some("1.0.0"), 0));
    succeeds(&fixture, &["apply", &names[1], "--yes"]).await;
    lose_backup(&fixture, &names[0]).await;
    let ran = fixture.olm(&["rollback", &names[0], "--yes"]).await;
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let file = file(&folder, &names[0]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    create_all(&fixture, &file).await;
    let ran = fixture.olm(&["rollback", "--all", "--yes"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("1 pod compared, none restarted").count(), 2, "{}", ran.stdout);
    for (name, before) in names.iter().zip(&before) {
        fixture.is_classic(name, before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_lost_during_a_migration_is_restored_from_its_file() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let before = fixture.objects(name).await;
    let folder = fixture.file("backups");
    let apply = ["apply", name, "--yes", "--backup", &folder];
    let extensions: Api<ClusterExtension> = Api::all(fixture.client());
    let prune = async {
        eventually("the extension exists", async || extensions.get_opt(name).await.unwrap()).await;
        lose_backup(&fixture, name).await;
    };
    let (ran, ()) = tokio::join!(fixture.olm(&apply), prune);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("does not exist any more: restore it"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains(&format!("to go on: olm migrate apply {name}/{name} --backup {folder}")),
        "{}",
        ran.stderr
    );
    create_all(&fixture, &file(&folder, name)).await;
    // The digest does not identify the extension any more, and the end is not recorded.
    let is_opening = |call: &Call| call.method == "PATCH" && call.path.contains("/clusterextensions/");
    let killed = fixture.olm_with(&apply, Fault::Kill, 0, When::After, is_opening).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    lose_backup(&fixture, name).await;
    create_all(&fixture, &file(&folder, name)).await;
    succeeds(&fixture, &apply).await;
    fixture.is_migrated(name, &before).await;
    // A rollback that the file does not know.
    let is_deletion = |call: &Call| call.method == "DELETE" && call.path.contains("/clusterextensions/");
    let rollback = ["rollback", name, "--yes"];
    let killed = fixture.olm_with(&rollback, Fault::Kill, 0, When::After, is_deletion).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    lose_backup(&fixture, name).await;
    create_all(&fixture, &file(&folder, name)).await;
    let ran = fixture.olm(&["finish", "--yes"]).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("the migration of {name}/{name}")), "{}", ran.stderr);
    succeeds(&fixture, &apply).await;
    fixture.is_migrated(name, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_with_backup_exists_before_anything_is_deleted() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let before = fixture.objects(name).await;
    let unwritable = Path::new(&fixture.file("catalog")).join("catalog.json/backups");
    for more in ["--yes", "--dry-run=client"] {
        let ran = fixture.olm(&["apply", name, more, "--backup", unwritable.to_str().unwrap()]).await;
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("cannot be written"), "{}", ran.stderr);
        assert_eq!(fixture.objects(name).await, before);
    }
    let is_pause = |call: &Call| call.is_mutation() && call.path.contains("/subscriptions/");
    let killed = fixture.olm_with(&["apply", name, "--yes"], Fault::Kill, 0, When::Before, is_pause).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    let folder = fixture.file("backups");
    let apply = ["apply", name, "--yes", "--backup", &folder];
    let killed = fixture.olm_with(&apply, Fault::Kill, 0, When::Before, is_pause).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    assert_eq!(fixture.objects(name).await, before);
    let path = file(&folder, name);
    let mut saved: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let annotations = saved["items"][0]["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.insert("ext.olm.operatorframework.io/migration-cluster".to_owned(), json!("other"));
    let other = serde_json::to_vec(&saved).unwrap();
    std::fs::write(&path, &other).unwrap();
    let ran = fixture.olm(&apply).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("it is a backup of another cluster"), "{}", ran.stderr);
    assert_eq!(std::fs::read(&path).unwrap(), other);
    assert_eq!(fixture.objects(name).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_of_a_migration_that_an_upgrade_prevents_is_removed() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let folder = fixture.file("new/backups");
    let apply = ["apply", name, "--yes", "--backup", &folder];
    let is_pause = |call: &Call| call.is_mutation() && call.path.contains("/subscriptions/");
    let killed = fixture.olm_with(&apply, Fault::Kill, 0, When::After, is_pause).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    assert!(file(&folder, name).exists());
    let subscription =
        json!({"apiVersion": CLASSIC_VERSION, "kind": "Subscription", "metadata": {"namespace": name}});
    let upgrade = Patch::Merge(json!({"status": {"currentCSV": format!("{name}.v2.0.0")}}));
    let subscriptions = fixture.api(&subscription);
    subscriptions.patch_status(name, &PatchParams::default(), &upgrade).await.unwrap();
    let ran = fixture.olm(&apply).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("classic OLM has upgraded the package"), "{}", ran.stderr);
    assert!(!file(&folder, name).exists());
    assert_eq!(subscriptions.get(name).await.unwrap().data["spec"]["source"], "packages");
    assert!(!fixture.has("v1", "Secret", NAMESPACE, &format!("olm-migrate-{name}.{name}")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn version_set_by_administrator_is_kept_after_an_interrupted_rollback() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let before = fixture.objects(name).await;
    succeeds(&fixture, &["apply", name, "--yes", "--keep-pinned"]).await;
    let extensions: Api<ClusterExtension> = Api::all(fixture.client());
    for (version, channels) in [(Some("1.0.x"), vec![]), (Some("1.0.0"), vec![]), (None, vec!["stable"])] {
        let catalog = json!({"version": version, "channels": channels});
        let patch = Patch::Merge(json!({"spec": {"source": {"catalog": catalog}}}));
        let patched = extensions.patch(name, &PatchParams::default(), &patch).await.unwrap();
        let generation = patched.metadata.generation;
        eventually("the change is reconciled", async || {
            let status = extensions.get(name).await.unwrap().status?;
            let mut seen = status.conditions.iter().map(|condition| condition.observed_generation);
            seen.all(|seen| seen == generation).then_some(())
        })
        .await;
        let is_deletion = |call: &Call| call.method == "DELETE" && call.path.contains("/clusterextensions/");
        let rollback = ["rollback", name, "--yes"];
        let killed = fixture.olm_with(&rollback, Fault::Kill, 0, When::Before, is_deletion).await;
        assert_eq!(killed.code, -1, "{}", killed.stderr);
        succeeds(&fixture, &["apply", name, "--yes"]).await;
        fixture.is_migrated_with(name, &before, (version, channels.join(",").as_str())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_does_not_prevent_that_of_other_packages() {
    let fixture = Fixture::start(2).await;
    let names = [Fixture::name(0), Fixture::name(1)];
    let before = fixture.objects(&names[1]).await;
    succeeds(&fixture, &["apply", &names[0], &names[1], "--yes"]).await;
    fixture.record_extension(&names[0], "another").await;
    let ran = fixture.olm(&["rollback", "--all", "--yes"]).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("is not that of the migration"), "{}", ran.stderr);
    assert!(ran.stdout.contains(&format!("{0}/{0}: failed", names[0])), "{}", ran.stdout);
    fixture.is_classic(&names[1], &before).await;
}
