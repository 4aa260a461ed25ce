use olm_api::ClusterCatalog;
use serde_json::Map;

use super::*;
use crate::run::CrdCheck;

fn metadata(value: Value) -> ObjectMeta {
    serde_json::from_value(value).unwrap()
}

fn extension_of(name: &str, package: &str, namespace: &str, own: bool) -> ClusterExtension {
    let source = json!({"sourceType": "Catalog", "catalog": {"packageName": package}});
    let labels = if own { json!({EXT_BUNDLE_RUN: "abc"}) } else { json!({}) };
    let spec = json!({"namespace": namespace, "source": source});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap()
}

#[test]
fn names_follow_from_package() {
    let names = Names::of("lamp").unwrap();
    assert_eq!((names.package.as_str(), names.catalog.as_str()), ("lamp", "lamp-bundle-run"));
    assert!(Names::of(&"a".repeat(52)).unwrap().catalog.len() <= LONGEST_NAME);
    for package in ["Lamp", "", "a.b", &"a".repeat(53)] {
        let error = Names::of(package).unwrap_err();
        assert_eq!(error.exit_code(), 3, "{package}");
        assert!(error.to_string().contains("lowercase letters, digits and -, at most 52"), "{error}");
    }
}

#[test]
fn only_labeled_objects_are_adopted() {
    let own = json!({"name": "a", "labels": {EXT_BUNDLE_RUN: "abc"}});
    let mut deleting = own.clone();
    deleting["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    for (found, expected) in [
        (None, Some(Leftover::None)),
        (Some(own), Some(Leftover::Own)),
        (Some(deleting), Some(Leftover::Deleting)),
        (Some(json!({"name": "a", "labels": {"app": "x"}})), None),
        (Some(json!({"name": "a"})), None),
    ] {
        let judged = leftover("ClusterCatalog \"a\"", found.clone().map(metadata).as_ref());
        assert_eq!(judged.as_ref().ok(), expected.as_ref(), "{found:?}");
        if let Err(error) = judged {
            let start = "ClusterCatalog \"a\" exists, was not created by `olm bundle run`";
            assert!(error.exit_code() == 3 && error.to_string().starts_with(start), "{error}");
        }
    }
}

#[test]
fn extensions_of_other_owners_are_named() {
    let names = Names::of("lamp").unwrap();
    let check = |one: ClusterExtension| {
        check_extensions(&names, "ns", &[extension_of("other", "other", "ns", false), one])
            .map_err(|error| (error.exit_code(), error.to_string()))
    };
    assert_eq!(check(extension_of("lamp", "lamp", "ns", true)), Ok(()));
    // `leftover` judges one of the same name without label.
    assert_eq!(check(extension_of("lamp", "lamp", "elsewhere", false)), Ok(()));
    let (code, text) = check(extension_of("light", "lamp", "ns", false)).unwrap_err();
    assert!(code == 3 && text.contains("already installed by ClusterExtension \"light\""), "{text}");
    let (code, text) = check(extension_of("lamp", "lamp", "old", true)).unwrap_err();
    assert!(code == 3 && text.contains("use --namespace old, or `olm uninstall lamp`"), "{text}");
}

#[test]
fn namespace_is_removed_only_if_created_and_empty() {
    let own = metadata(json!({"labels": {EXT_BUNDLE_RUN: "abc"}}));
    let lamp = || extension_of("lamp", "lamp", "ns", true);
    for (metadata, extensions, expected) in [
        (&own, vec![lamp(), extension_of("other", "other", "elsewhere", false)], true),
        (&own, vec![lamp(), extension_of("other", "other", "ns", false)], false),
        (&ObjectMeta::default(), vec![lamp()], false),
    ] {
        assert_eq!(removes_namespace("ns", metadata, &extensions, "lamp"), expected);
    }
}

#[test]
fn extension_and_catalog_are_accepted_by_api_server() {
    let names = Names::of("lamp").unwrap();
    let config = json!({"watchNamespace": "ns"}).as_object().cloned();
    let settings = Settings { config, crd_check: Some(CrdCheck::Live) };
    let made = serde_json::to_value(extension(&names, "ns", "0123456789ab", settings)).unwrap();
    assert_eq!(made["metadata"]["annotations"], json!({EXT_CRD_CHECK: "Live"}));
    assert_eq!(olm_cli_core::manifest::validation_errors(&made), [""; 0]);
    let catalog = &made["spec"]["source"]["catalog"];
    assert_eq!(catalog["upgradeConstraintPolicy"], "SelfCertified");
    assert_eq!(
        catalog["selector"]["matchLabels"],
        json!({METADATA_NAME: "lamp-bundle-run", EXT_BUNDLE_RUN: "0123456789ab"})
    );
    assert_eq!(made["spec"]["config"]["inline"], json!({"watchNamespace": "ns"}));
    let settings = Settings { config: Some(Map::new()), crd_check: None };
    let bare = serde_json::to_value(extension(&names, "ns", "a", settings)).unwrap();
    assert_eq!(bare["spec"]["config"], Value::Null);
    let object: ClusterCatalog =
        serde_json::from_value(super::catalog(&names, "r.example/a@sha256:b", "a")).unwrap();
    assert!(is_own(&object.metadata));
}

#[test]
fn catalog_content_is_valid() {
    let object = json!({"schema": "olm.bundle", "package": "lamp", "name": "lamp.v1", "image": "r.example/a:v1",
        "properties": [{"type": "olm.package", "value": {"packageName": "lamp", "version": "1.0.0"}}]});
    let bundle = CatalogBundle {
        package: "lamp".to_owned(),
        name: "lamp.v1".to_owned(),
        version: "1.0.0".to_owned(),
        release: String::new(),
        channels: Vec::new(),
        // The bundle that it replaces is not in the catalog.
        entry: olm_fbc::ChannelEntry { name: "lamp.v1".to_owned(), ..Default::default() },
        object,
    };
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in catalog_files(&bundle) {
        std::fs::write(folder.path().join(path), content).unwrap();
    }
    let folder = olm_cli_core::source::DirectoryFolder::open(folder.path()).unwrap();
    let report = olm_fbc::validate_folder(&folder, &olm_fbc::LoadLimits::default(), true);
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[test]
fn digest_yields_tag_and_label() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    assert_eq!((tag(&digest).as_str(), short(&digest)), ("run-0123456789ab", "0123456789ab"));
    assert_eq!(short("sha256:ab"), "ab");
}
