use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use serde_json::json;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn index(name: &str, status: &str, version: &str) -> PartialObjectMeta<Secret> {
    serde_json::from_value(json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": name, "labels": {"status": status, "version": version},
            "ownerReferences": [owner("uid-of-demo")]},
    }))
    .unwrap()
}

fn owner(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Any", "name": "any", "uid": uid})
}

fn secret(name: &str, data: &[(&str, &[u8])]) -> Secret {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
    let mut secret = Secret { data: Some(data.collect()), ..Secret::default() };
    secret.metadata.name = Some(name.to_owned());
    secret
}

fn stored(release: &Value) -> Vec<u8> {
    gzip(format!("{release}\n").as_bytes())
}

/// Name, status and version of the releases, and the adopted one.
type Releases = (&'static [(&'static str, &'static str, &'static str)], Option<&'static str>);

// Case apply-61
#[test]
fn newest_deployed_release_is_selected() {
    let rows: [Releases; 7] = [
        (&[], None),
        (&[("v1", "failed", "1"), ("v2", "uninstalled", "2"), ("v3", "pending-install", "3")], None),
        (&[("v1", "deployed", "1")], Some("v1")),
        (&[("v9", "superseded", "9"), ("v10", "deployed", "10")], Some("v10")),
        (&[("v1", "deployed", "1"), ("v2", "failed", "2"), ("v3", "pending-upgrade", "3")], Some("v1")),
        (&[("v10", "deployed", "10"), ("v9", "deployed", "9")], Some("v10")),
        (&[("v1", "deployed", "one"), ("v2", "deployed", "")], None),
    ];
    for (indices, expected) in rows {
        let indices: Vec<_> =
            indices.iter().map(|(name, status, version)| index(name, status, version)).collect();
        let found = deployed(&indices, "uid-of-demo", None);
        assert_eq!(found.adopted.map(|(name, _)| name).as_deref(), expected);
        assert!(found.passed_over.is_empty());
    }
}

#[test]
fn release_without_the_extension_as_owner_is_adopted_only_if_named() {
    let mut planted = index("v9", "deployed", "9");
    let found = |planted: &PartialObjectMeta<Secret>, named| {
        let indices = [index("v1", "deployed", "1"), planted.clone()];
        let found = deployed(&indices, "uid-of-demo", named);
        (found.adopted.unwrap().0, found.passed_over.len())
    };
    assert_eq!(found(&planted, None), ("v9".to_owned(), 0));
    for owners in [vec![], vec![owner("uid-of-other")]] {
        planted.metadata.owner_references = serde_json::from_value(json!(owners)).unwrap();
        assert_eq!(found(&planted, None), ("v1".to_owned(), 1));
        assert_eq!(found(&planted, Some("v8")), ("v1".to_owned(), 1));
        assert_eq!(found(&planted, Some("v9")), ("v9".to_owned(), 0));
    }
}

#[test]
fn helm_chunk_secret_not_owned_by_index_secret_is_rejected() {
    let of = |name: &str, uid: &str, owners: &[&str]| {
        let owners: Vec<Value> = owners.iter().map(|uid| owner(uid)).collect();
        let metadata = json!({"name": name, "uid": uid, "ownerReferences": owners});
        serde_json::from_value::<Secret>(json!({ "metadata": metadata })).unwrap()
    };
    let index = of("i", "u1", &["uid-of-demo"]);
    let own = of("i-1", "u2", &["u1"]);
    assert_eq!(check_owners(&[index.clone(), own.clone()]), Ok(()));
    for owners in [&[][..], &["u2"]] {
        let error = check_owners(&[index.clone(), own.clone(), of("i-2", "u3", owners)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "chunk 3 secret \"i-2\" is not owned by index secret \"i\"; to adopt the release nevertheless, set annotation \
             ext.olm.operatorframework.io/adopt-release=i"
        );
    }
}

#[test]
fn release_yields_its_bundle_and_objects() {
    let manifest = "\n{\"kind\":\"A\",\"spec\":{\"n\":9007199254740993,\"f\":1.0}}\n\n{\"kind\":\"B\"}";
    let bytes = stored(&json!({
        "name": "demo", "version": 3, "manifest": manifest, "hooks": null, "config": {},
        "info": {"status": "deployed"},
        "chart": {"metadata": {"annotations": {"olm.properties": "[]", "capabilities": "Basic Install"}},
                  "templates": [{"name": "t", "data": "e30="}]},
        "labels": {"olm.operatorframework.io/bundle-name": "demo.v1", "olm.operatorframework.io/package-name": "demo",
                   "olm.operatorframework.io/bundle-version": "1.0.0", "olm.operatorframework.io/bundle-release": "",
                   "olm.operatorframework.io/bundle-reference": "r.example/demo:v1"},
    }));
    let (first, rest) = bytes.split_at(20);
    let (second, third) = rest.split_at(30);
    let secrets = [
        secret("demo.v3", &[("chunk", first), ("extraChunks", br#"["b","c"]"#)]),
        secret("b", &[("chunk", second)]),
        secret("c", &[("chunk", third)]),
    ];
    assert_eq!(further_pieces(&secrets[0]), Ok(vec!["b".to_owned(), "c".to_owned()]));
    let release = read(&secrets).unwrap();
    let bundle = BundleIdentity {
        name: "demo.v1".to_owned(),
        package: "demo".to_owned(),
        version: "1.0.0".to_owned(),
        release: Some(String::new()),
        image: "r.example/demo:v1".to_owned(),
        properties: Some("[]".to_owned()),
        max_openshift_version: None,
        catalog_properties: None,
    };
    assert_eq!(release.bundle, bundle);
    let objects =
        [json!({"kind": "A", "spec": {"n": 9_007_199_254_740_993_i64, "f": 1.0}}), json!({"kind": "B"})];
    assert_eq!(release.objects, objects);
}

#[test]
fn missing_and_null_fields_are_equal() {
    for release in [json!({}), json!({"labels": null, "chart": null}), json!({"chart": {"metadata": null}})] {
        let index = secret("i", &[("chunk", &stored(&release)), ("extraChunks", b"null")]);
        assert_eq!(further_pieces(&index), Ok(vec![]));
        let release = read(&[index]).unwrap();
        assert_eq!(release, Release { bundle: BundleIdentity::default(), objects: vec![] });
    }
}

/// Data of an index Secret, and the error.
type Index = (&'static [(&'static str, &'static [u8])], &'static str);

#[test]
fn index_without_valid_list_of_pieces_is_rejected() {
    let rows: [Index; 3] = [
        (&[], "index secret \"i\" missing chunks data: no key \"extraChunks\""),
        (&[("extraChunks", b"[1]")], "index secret \"i\": \"extraChunks\" is not a JSON list of names"),
        (
            &[("extraChunks", br#"["1","2","3","4","5","6","7","8","9","10","11"]"#)],
            "release too large: \"i\" consists of 12 chunks, which exceeds the maximum of 11",
        ),
    ];
    for (data, expected) in rows {
        assert_eq!(further_pieces(&secret("i", data)).unwrap_err().to_string(), expected);
    }
}

#[test]
fn errors_name_their_position_and_no_content() {
    let whole = stored(&json!({"manifest": "{}"}));
    let list = stored(&json!({"manifest": "{}\n\n[\"s3cret\"]"}));
    let typed = stored(&json!({"manifest": {"s3cret": 1}}));
    let text = gzip(b"s3cret");
    let rows: [(&[u8], &str); 5] = [
        (b"s3cret", "release \"i\" cannot be decompressed: "),
        (&whole[..whole.len() - 9], "release \"i\" cannot be decompressed: "),
        (&text, "release \"i\" is not the JSON of a release: see line 1 column 1"),
        (&typed, "release \"i\" is not the JSON of a release: see line 1 column 13"),
        (&list, "release \"i\": line 3 of its manifest is not a JSON object"),
    ];
    for (bytes, expected) in rows {
        let message = read(&[secret("i", &[("chunk", bytes)])]).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
        assert!(!message.contains("s3cret"), "{message}");
    }
    let lost = read(&[secret("i", &[("chunk", &whole)]), secret("b", &[])]).unwrap_err();
    assert_eq!(lost.to_string(), "chunk 2 secret \"b\" missing chunk data");
}

#[test]
fn oversized_release_is_rejected() {
    let bytes = stored(&json!({"manifest": " ".repeat(2000)}));
    assert!(decode(&bytes, "i", 4000).is_ok());
    assert_eq!(decode(&bytes, "i", 1000).err(), Some(ReleaseError::TooLarge("i".to_owned())));
}
