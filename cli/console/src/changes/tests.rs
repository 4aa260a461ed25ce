use axum::http::{Method, StatusCode};
use olm_api::ClusterExtension;
use olm_cli_lifecycle::resolve::AllowedVersions;
use serde_json::{Value, json};

use super::page::class;
use super::planned::{UpgradeTarget, deletes_crds, digest, pin};
use crate::tests::Rig;

const ACTIONS: [&str; 5] = ["approve", "upgrade", "configure", "rollback", "uninstall"];

async fn rig(flags: &[&str]) -> Rig {
    let source = concat!("catalog=", env!("CARGO_MANIFEST_DIR"), "/../olm/tests/data/catalog");
    Rig::new(&[&["--catalog", source], flags].concat()).await
}

fn extension(version: Value, uid: &str, generation: i64) -> ClusterExtension {
    let catalog = json!({"packageName": "pipe", "version": version});
    serde_json::from_value(json!({
        "metadata": {"name": "pipe", "uid": uid, "generation": generation},
        "spec": {"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": catalog}},
        "status": {"install": {"bundle": {"name": "pipe.v1.0.0", "version": "1.0.0"}}},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_hostile_name_or_other_action_is_not_found() {
    let rig = rig(&[]).await;
    for name in ["%2E%2E", "a%2Fb", "..%2F..%2Fapi", "N_S", "%3Cscript%3E", "a%00", "a%3Fx=1"] {
        for action in ACTIONS {
            let path = format!("/extensions/{name}/{action}");
            for answer in [rig.get(&path).await, rig.submit(&path, "previewed=x").await] {
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}: {}", answer.text);
                assert!(!answer.text.contains("<script>"), "{}", answer.text);
            }
        }
    }
    for action in ["delete", "Upgrade", "..", "%3Cscript%3E"] {
        let answer = rig.get(&format!("/extensions/pipe/{action}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{action}");
    }
    for action in ACTIONS {
        let answer = rig.get(&format!("/extensions/pipe/{action}?to=%3Cscript%3E")).await;
        assert!(answer.status.is_client_error(), "{}", answer.text);
        assert!(answer.text.contains("the console uses no cluster"), "{}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_needs_session_and_token_and_is_absent_when_read_only() {
    let (rig, read_only) = (rig(&[]).await, rig(&["--read-only"]).await);
    let headers = [("host", "127.0.0.1:8000"), ("origin", "http://127.0.0.1:8000")];
    let foreign = [("host", "127.0.0.1:8000"), ("origin", "https://evil.example")];
    for action in ACTIONS {
        let path = format!("/extensions/pipe/{action}");
        assert_eq!(rig.post(&path, "previewed=x").await.status, StatusCode::FORBIDDEN);
        assert_eq!(rig.send(Method::POST, &path, &headers, "").await.status, StatusCode::UNAUTHORIZED);
        assert_eq!(rig.send(Method::POST, &path, &foreign, "").await.status, StatusCode::FORBIDDEN);
        let answer = rig.submit(&path, "previewed=x").await;
        assert!(answer.text.contains("the console uses no cluster"), "{}", answer.text);
        let answer = read_only.submit(&path, "previewed=x").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[test]
fn digest_covers_identity_generation_bundle_image_and_texts() {
    let live = extension(json!("1.0.0"), "u", 1);
    let same = || digest(&live, Some(("pipe.v1.1.0", "r/pipe@sha256:1")), &["plan", "diff"]);
    assert_eq!(same(), same());
    for other in [
        digest(
            &extension(json!("1.0.0"), "v", 1),
            Some(("pipe.v1.1.0", "r/pipe@sha256:1")),
            &["plan", "diff"],
        ),
        digest(
            &extension(json!("1.0.0"), "u", 2),
            Some(("pipe.v1.1.0", "r/pipe@sha256:1")),
            &["plan", "diff"],
        ),
        digest(&live, Some(("pipe.v1.2.0", "r/pipe@sha256:1")), &["plan", "diff"]),
        digest(&live, Some(("pipe.v1.1.0", "r/pipe@sha256:2")), &["plan", "diff"]),
        digest(&live, None, &["plan", "diff"]),
        digest(&live, Some(("pipe.v1.1.0", "r/pipe@sha256:1")), &["plan", "other"]),
        digest(&live, Some(("pipe.v1.1.0", "r/pipe@sha256:1")), &["plandiff"]),
    ] {
        assert_ne!(other, same());
    }
}

#[test]
fn upgrade_target_is_the_choice_of_the_resolver_unless_named() {
    let allowed = |chosen: &str| AllowedVersions {
        chosen: Some(chosen.to_owned()),
        versions: vec!["1.1.0".to_owned(), "1.0.0".to_owned()],
    };
    let version = |version: &str| UpgradeTarget::Version(version.to_owned());
    for (to, range, chosen, expected) in [
        ("", json!("1.0.0"), "1.1.0", version("1.1.0")),
        ("", json!("1.0.0"), "1.0.0", UpgradeTarget::Requested),
        ("", json!("1.x"), "1.1.0", UpgradeTarget::Requested),
        ("", Value::Null, "1.1.0", UpgradeTarget::Requested),
        ("requested", json!("1.0.0"), "1.1.0", UpgradeTarget::Requested),
        ("latest", json!("1.0.0"), "1.1.0", UpgradeTarget::Latest),
        ("1.0.0", json!("1.x"), "1.1.0", version("1.0.0")),
    ] {
        let live = extension(range, "u", 1);
        let target = UpgradeTarget::new(to, &live, &allowed(chosen)).unwrap();
        assert_eq!(target, expected, "{to} {live:?}");
    }
    let error = UpgradeTarget::new("9.0.0", &extension(Value::Null, "u", 1), &allowed("1.1.0")).unwrap_err();
    let expected = "the resolver does not allow version \"9.0.0\"; allowed: 1.1.0, 1.0.0";
    assert_eq!((error.exit_code(), error.to_string().as_str()), (4, expected));
}

#[test]
fn sentence_names_what_pins_the_extension() {
    let automatic = "OLM upgrades the extension by itself";
    for (range, expected) in [
        (Value::Null, format!("{automatic}, to any new version of its channels.")),
        (json!(""), format!("{automatic}, to any new version of its channels.")),
        (json!("1.x"), format!("{automatic}, within the range \"1.x\".")),
        (json!("1.0.0"), "The extension stays at version 1.0.0: OLM does not upgrade it.".to_owned()),
    ] {
        assert_eq!(pin(&extension(range, "u", 1)), expected);
    }
    let mut held = extension(Value::Null, "u", 1);
    held.metadata.annotations =
        Some([("ext.olm.operatorframework.io/paused".to_owned(), "true".to_owned())].into());
    assert!(pin(&held).starts_with("Upgrades wait at present"), "{}", pin(&held));
    for (policy, expected) in [("Delete", true), ("KeepCRDs", false), ("other", false)] {
        let policy = ("ext.olm.operatorframework.io/uninstall-policy".to_owned(), policy.to_owned());
        held.metadata.annotations = Some([policy].into());
        assert_eq!(deletes_crds(&held), expected);
    }
    assert!(!deletes_crds(&extension(Value::Null, "u", 1)), "kept by default");
}

#[test]
fn console_plan_line_prefix_determines_css_class() {
    for (line, expected) in [
        ("  + Service ns/a", Some("added")),
        ("  - Service ns/a", Some("removed")),
        ("  ~ Service ns/a", Some("changed")),
        ("    + get on pods", Some("added")),
        ("      ! collision", Some("problem")),
        ("      spec.a: 1 -> 2", None),
        ("Objects: 1 created", None),
        ("Warning:            package is deprecated", Some("problem")),
        ("", None),
        ("  é", None),
        ("+ not indented", None),
    ] {
        assert_eq!(class(line), expected, "{line:?}");
    }
}
