use olm_api::names::OBJECT_DATA_SECRET_TYPE;

use super::*;
use crate::apply::fixture::plan;

/// Text that cannot be compressed.
fn noise(length: usize) -> String {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + u8::try_from((state >> 33) % 90).unwrap())
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn large_backup_is_split_and_read_again() {
    let objects = vec![json!({"kind": "ConfigMap", "data": {"a": noise(3 << 20)}})];
    let backup = Backup { plan: plan(), objects, pods: Vec::new() };
    let mut secrets = pack(&backup, "olmv1-system").unwrap();
    assert!(secrets.len() > 2, "{} parts", secrets.len());
    assert!(secrets.iter().all(|secret| secret.to_string().len() < 3 << 19));
    assert_eq!(secrets[0]["metadata"]["name"], format!("olm-migrate-ns.lamp.{}", secrets.len()));
    secrets.reverse();
    assert_eq!(parts(&secrets[0]), Ok(secrets.len()));
    assert_eq!(unpack(&secrets).unwrap(), backup);
}

#[test]
fn settings_at_the_begin_of_a_rollback_are_those_after_another_migration() {
    let with = |channels: Option<&str>, version: Option<&str>| {
        let mut plan = plan();
        plan.opened["spec"]["source"]["catalog"]["channels"] = json!(["stable"]);
        let first = json!({"metadata": {"annotations": {CHANNELS: channels, VERSION: version}}});
        keep_settings(&mut plan, &first);
        let catalog = &plan.opened["spec"]["source"]["catalog"];
        json!([catalog["channels"], catalog["version"]])
    };
    assert_eq!(with(None, None), json!([["stable"], null]));
    assert_eq!(with(Some(r#"["fast"]"#), None), json!([["fast"], null]));
    assert_eq!(with(Some(r#"["fast"]"#), Some("1.x")), json!([["fast"], "1.x"]));
    assert_eq!(with(Some("[]"), Some("1.0.x")), json!([null, "1.0.x"]));
    assert_eq!(with(Some("[]"), None), json!([null, null]));
    assert_eq!(with(Some("fast"), None), json!([["stable"], null]));
    let mut pinned = plan();
    pinned.keep_pinned();
    keep_settings(&mut pinned, &json!({"metadata": {"annotations": {CHANNELS: "[]"}}}));
    assert_eq!(pinned.opened["spec"]["source"]["catalog"]["version"], Value::Null);
}

#[test]
fn changed_backup_is_refused() {
    let backup = Backup { plan: plan(), objects: Vec::new(), pods: Vec::new() };
    let mut secrets = pack(&backup, "olmv1-system").unwrap();
    assert_eq!(package_of(&secrets[0]), Some(("ns".to_owned(), "lamp".to_owned())));
    let found = |secret: &Value| Migration::of(secret).map(|found| (found.package, found.is_complete));
    let mut complete = secrets[0].clone();
    complete["metadata"]["annotations"][COMPLETE] = json!("true");
    assert_eq!(found(&secrets[0]), Some(("ns/lamp".to_owned(), false)));
    assert_eq!(found(&complete), Some(("ns/lamp".to_owned(), true)));
    assert_eq!(unpack(&secrets).unwrap(), backup);
    let mut foreign = secrets.clone();
    foreign[0]["metadata"]["labels"][NAMESPACE] = json!("other");
    assert!(unpack(&foreign).unwrap_err().contains("plan of ns/lamp, unlike its name and labels"));
    assert_eq!(package_of(&foreign[0]), None);
    let mut forged = secrets.clone();
    forged[0]["type"] = json!(OBJECT_DATA_SECRET_TYPE);
    assert!(
        unpack(&forged).unwrap_err().contains("does not have type ext.olm.operatorframework.io/migration")
    );
    secrets[0]["data"]["backup"] = json!(BASE64_STANDARD.encode("other"));
    assert!(unpack(&secrets).unwrap_err().contains("does not have the digest"));
    secrets[0]["metadata"]["annotations"][PARTS] = json!("0");
    assert!(parts(&secrets[0]).is_err());
}
