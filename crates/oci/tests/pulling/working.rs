//! Resolving and pulling against a healthy registry.

use std::os::unix::fs::PermissionsExt;

use crate::fixture::*;
use olm_image::registry::{Access, Registry};
use olm_image::{Image, Layer, Runtime};
use olm_oci::{BUNDLE_FOLDERS, CanonicalRef, ImagePlatform, catalog_folder, remove_folder};

// Case catalogd-19
#[tokio::test]
async fn only_labeled_folder_is_written_to_disk() {
    let fixture = Fixture::new().await;
    let layer = tar_layer(&[
        file("configs/a/index.yaml", "schema: a"),
        file("configs/b.json", "{}"),
        file("configs2/c", "sibling"),
        file("bin/opm", "binary"),
        dir("configs/empty"),
    ]);
    fixture.registry.add_image("a/cat", "v1", &image(&[layer], "/configs"));

    let image = fixture.resolve("a/cat:v1").await;
    let pulled = fixture.pull(&image).await.unwrap();
    assert_eq!(pulled.path, fixture.destination().join("configs"));
    assert_eq!((pulled.files, pulled.bytes), (2, 11));
    assert_eq!(fixture.listing(), ["configs/a/index.yaml=schema: a", "configs/b.json={}", "configs/empty/"]);
    for (path, mode) in
        [("", 0o500), ("configs/a", 0o500), ("configs/empty", 0o500), ("configs/b.json", 0o400)]
    {
        let metadata = std::fs::metadata(fixture.destination().join(path)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{path}");
    }
    assert_eq!(fixture.leftovers(), ["out"]);
    remove_folder(&fixture.destination()).unwrap();
    assert_eq!(fixture.leftovers(), [""; 0]);
}

// Cases catalogd-20, catalogd-21
#[tokio::test]
async fn resolving_tag_costs_two_requests_and_digest_none() {
    let fixture = Fixture::new().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let canonical = fixture.resolve("a/cat:v1").await;
    assert_eq!(canonical.to_string(), format!("{}/a/cat@{digest}", fixture.registry.host()));
    assert_eq!(fixture.registry.take_requests(), ["GET /v2/", "HEAD /v2/a/cat/manifests/v1"]);

    let pinned = fixture.resolve(&format!("a/cat@{digest}")).await;
    assert_eq!(pinned.to_string(), canonical.to_string());
    assert!(pinned.is_pinned() && !canonical.is_pinned());
    assert_eq!(fixture.registry.take_requests(), [""; 0]);
}

// Cases catalogd-22, catalogd-23
#[tokio::test]
async fn index_resolves_to_its_digest_and_pulls_own_platform() {
    let fixture = Fixture::new().await;
    let own = fixture.registry.add_image("a/cat", "own", &catalog());
    let other = fixture.registry.add_image("a/cat", "other", &image(&[], "/other"));
    let platform = ImagePlatform::current();
    let index = |architecture: &str| {
        let entry = |digest: &str, architecture: &str| {
            serde_json::json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1,
                "platform": { "os": "linux", "architecture": architecture },
            })
        };
        let entries = [entry(&other, "mips64le"), entry(&own, architecture)];
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": entries });
        serde_json::to_vec(&index).unwrap().into()
    };
    let media_type = "application/vnd.oci.image.index.v1+json";
    let digest = fixture.registry.add_manifest("a/cat", "v1", media_type, index(&platform.architecture));
    let canonical = fixture.resolve("a/cat:v1").await;
    assert_eq!(canonical.digest().as_str(), digest);
    fixture.pull(&canonical).await.unwrap();

    fixture.registry.add_manifest("a/cat", "v2", media_type, index("riscv64"));
    let canonical = fixture.resolve("a/cat:v2").await;
    let error = fixture.pull_to("v2", &canonical).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error copying image: choosing an image from manifest list docker://{canonical}: no image found in image \
             index for architecture \"{}\", variant \"{}\", OS \"linux\"",
            platform.architecture, platform.variant
        )
    );
    assert!(!error.is_terminal());
}

// Case catalogd-24
#[tokio::test]
async fn missing_label_is_terminal_for_digests_only() {
    let fixture = Fixture::new().await;
    let unlabeled = Image::new(Vec::new(), &Default::default(), &Runtime::default()).unwrap();
    let digest = fixture.registry.add_image("a/cat", "v1", &unlabeled);
    let text =
        "catalog image is missing the required label \"operators.operatorframework.io.index.configs.v1\"";

    let error = fixture.pull(&fixture.resolve("a/cat:v1").await).await.unwrap_err();
    assert_eq!((error.to_string(), error.is_terminal()), (format!("error applying image: {text}"), false));
    let error = fixture.pull(&fixture.resolve(&format!("a/cat@{digest}")).await).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.is_terminal()),
        (format!("error applying image: terminal error: {text}"), true)
    );
}

// Case catalogd-28. All files of the folder are used, including new ones.
#[tokio::test]
async fn ca_folder_is_reread_for_each_request() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    std::fs::remove_dir_all(fixture.cas_dir()).unwrap();
    std::fs::create_dir(fixture.cas_dir()).unwrap();
    let host = fixture.registry.host();
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error creating image source: fetching manifest v1 in {host}/a/cat: pinging container registry {host}: \
             Get \"https://{host}/v2/\": tls: failed to verify certificate: x509: certificate signed by unknown authority"
        )
    );
    // Layout of a mounted ConfigMap: links to a hidden folder, and unrelated files.
    let mounted = fixture.cas_dir().join("..data");
    std::fs::create_dir(&mounted).unwrap();
    std::fs::write(fixture.cas_dir().join("README"), "no certificate here").unwrap();
    let ca = fixture.registry.write_ca(&mounted).unwrap();
    std::os::unix::fs::symlink("gone", fixture.cas_dir().join("dangling.crt")).unwrap();
    std::os::unix::fs::symlink(ca, fixture.cas_dir().join("ca.pem")).unwrap();
    fixture.try_resolve("a/cat:v1").await.unwrap();

    std::fs::remove_dir_all(fixture.cas_dir()).unwrap();
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
    assert!(error.starts_with("error creating image source: reading CA folder "), "{error}");
}

// Case catalogd-29
#[tokio::test]
async fn credentials_apply_once_file_exists() {
    for access in [
        Access::Basic("user".to_owned(), "secret".to_owned()),
        Access::Bearer(Some(("user".to_owned(), "secret".to_owned()))),
    ] {
        let fixture = Fixture::new().await;
        fixture.registry.add_image("a/cat", "v1", &catalog());
        fixture.registry.set_access(access.clone());
        let host = fixture.registry.host();
        let error = fixture.try_resolve("a/cat:v1").await.unwrap_err();
        assert!(!error.is_terminal());
        let text = error.to_string();
        assert!(text.contains("unauthorized: authentication required") && text.contains(&host), "{text}");

        fixture.write_auth(&format!(r#"{{"auths":{{"{host}/a":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#));
        let canonical = fixture.try_resolve("a/cat:v1").await.unwrap();
        fixture.pull(&canonical).await.unwrap();

        fixture.write_auth(&format!(r#"{{"{host}":{{"username":"user","password":"wrong"}}}}"#));
        let text = fixture.try_resolve("a/cat:v1").await.unwrap_err().to_string();
        assert!(text.contains("unauthorized: authentication required") && !text.contains("wrong"), "{text}");
    }
}

#[tokio::test]
async fn anonymous_tokens_are_fetched() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.set_access(Access::Bearer(None));
    fixture.pull(&fixture.resolve("a/cat:v1").await).await.unwrap();
}

#[tokio::test]
async fn identity_token_is_exchanged() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.registry.set_access(Access::Bearer(None));
    fixture.write_auth(&format!(
        r#"{{"auths":{{"{}":{{"identitytoken":"refresh"}}}}}}"#,
        fixture.registry.host()
    ));
    fixture.resolve("a/cat:v1").await;
    assert_eq!(fixture.registry.take_requests()[1], "POST /token");
}

#[tokio::test]
async fn corrupt_credentials_file_is_named() {
    let fixture = Fixture::new().await;
    fixture.write_auth("{\"auths\": \"s3cret\"}");
    let file = fixture.auth_file();
    let file = file.display();
    let error = fixture.try_resolve("a/cat:v1").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "error creating image source: getting username and password: reading JSON file \"{file}\": unmarshaling JSON \
             at \"{file}\": line 0 column 0: expected a JSON object of registries, alone or under \"auths\""
        )
    );
}

// Case catalogd-30
#[tokio::test]
async fn upper_layers_hide_lower_layers() {
    let lower = || tar_layer(&[file("configs/a.yaml", "a"), file("configs/d/c.yaml", "c")]);
    for (upper, expected) in [
        (&[file("configs/.wh.a.yaml", "")][..], &["configs/d/c.yaml=c"][..]),
        (&[file("configs/.wh..wh..opq", ""), file("configs/b.yaml", "b")], &["configs/b.yaml=b"]),
        (&[file("configs/d/.wh..wh..opq", "")], &["configs/a.yaml=a", "configs/d/"]),
        // Above the folder too, unlike upstream.
        (&[file(".wh.configs", ""), file("configs/n", "n")], &["configs/n=n"]),
        (&[file(".wh..wh..opq", ""), file("configs/n", "n")], &["configs/n=n"]),
        (&[file("configs/.wh..wh.plnk", "")], &["configs/a.yaml=a", "configs/d/c.yaml=c"]),
    ] {
        let fixture = Fixture::new().await;
        fixture.registry.add_image("a/cat", "v1", &image(&[lower(), tar_layer(upper)], "/configs"));
        fixture.pull(&fixture.resolve("a/cat:v1").await).await.unwrap();
        assert_eq!(fixture.listing(), expected);
    }
}

#[tokio::test]
async fn labeled_folder_must_exist_within_image() {
    let fixture = Fixture::new().await;
    let layer = || tar_layer(&[file("bin/opm", "x")]);
    for (label, expected) in [
        ("/configs", Err("the image's labels name the folder \"configs\", which is not in the image")),
        ("../x", Err("the image's labels name the folder \"../x\", which is outside the image")),
        ("/", Ok(())),
        ("", Ok(())),
    ] {
        fixture.registry.add_image("a/cat", "v1", &image(&[layer()], label));
        let result = fixture.pull(&fixture.resolve("a/cat:v1").await).await;
        assert_eq!(
            result.map(|_| ()).map_err(|error| error.to_string()),
            expected.map_err(|text| format!("error applying image: {text}")),
            "{label:?}"
        );
        remove_folder(&fixture.destination()).unwrap();
    }
}

// Case catalogd-34
#[tokio::test]
async fn tag_moved_after_resolve_does_not_affect_pull() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image("a/cat", "v1", &image(&[tar_layer(&[file("configs/x", "old")])], "/configs"));
    let canonical = fixture.resolve("a/cat:v1").await;
    fixture.registry.add_image("a/cat", "v1", &image(&[tar_layer(&[file("configs/x", "new")])], "/configs"));
    fixture.pull(&canonical).await.unwrap();
    assert_eq!(fixture.listing(), ["configs/x=old"]);
}

#[tokio::test]
async fn each_supported_compression_is_detected() {
    let tar = tar(&[file("configs/x", "content")]);
    let zstd: Vec<u8> = zstd::encode_all(&tar[..], 0).unwrap();
    let mut two_frames = zstd::encode_all(&tar[..512], 0).unwrap();
    two_frames.extend(zstd::encode_all(&tar[512..], 0).unwrap());
    let mut two_members = Layer::from_tar(&tar[..512]).unwrap().blob.to_vec();
    two_members.extend_from_slice(&Layer::from_tar(&tar[512..]).unwrap().blob);
    for (name, blob) in [
        ("plain", tar.clone()),
        ("zstd", zstd),
        ("zstd frames", two_frames),
        ("gzip members", two_members),
        // docs/design/images.md#layers: missing end-of-archive blocks are accepted
        ("no end", tar[..1024].to_vec()),
    ] {
        let fixture = Fixture::new().await;
        fixture.registry.add_image("a/cat", "v1", &image(&[stored(&blob)], "/configs"));
        fixture.pull(&fixture.resolve("a/cat:v1").await).await.unwrap();
        assert_eq!(fixture.listing(), ["configs/x=content"], "{name}");
    }
}

#[tokio::test]
async fn zero_byte_layer_is_empty() {
    let fixture = Fixture::new().await;
    fixture.registry.add_image(
        "a/cat",
        "v1",
        &image(&[stored(b""), tar_layer(&[file("configs/x", "1")])], "/configs"),
    );
    fixture.pull(&fixture.resolve("a/cat:v1").await).await.unwrap();
    assert_eq!(fixture.listing(), ["configs/x=1"]);
}

#[tokio::test]
async fn bundle_is_pulled_into_memory() {
    let fixture = Fixture::new().await;
    let layer = tar_layer(&[
        file("manifests/csv.yaml", "kind: ClusterServiceVersion"),
        file("metadata/annotations.yaml", "annotations: {}"),
        file("tests/scorecard/config.yaml", "x"),
        link("manifests/again.yaml", "csv.yaml"),
    ]);
    fixture.registry.add_image("a/bundle", "v1", &image(&[layer], "unused"));
    let canonical = fixture.resolve("a/bundle:v1").await;
    let (files, _) = fixture.puller.pull_files(&canonical, &BUNDLE_FOLDERS).await.unwrap();
    let files: Vec<_> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
    assert_eq!(
        files,
        [
            ("manifests/again.yaml", &b"kind: ClusterServiceVersion"[..]),
            ("manifests/csv.yaml", b"kind: ClusterServiceVersion"),
            ("metadata/annotations.yaml", b"annotations: {}"),
        ]
    );
}

/// The servers spawn these futures as tasks.
#[tokio::test]
async fn pull_futures_are_send() {
    fn sendable(_: &(impl Future + Send)) {}
    let fixture = Fixture::new().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &catalog());
    let reference = fixture.reference(&format!("a/cat@{digest}"));
    let canonical = CanonicalRef::from_digest(&reference).unwrap();
    let destination = fixture.destination();
    sendable(&fixture.puller.resolve(&reference));
    sendable(&fixture.puller.pull_files(&canonical, &BUNDLE_FOLDERS));
    sendable(&fixture.puller.pull_folder(&canonical, catalog_folder, &destination));
}

/// Two registries with different CAs.
#[tokio::test]
async fn ca_folder_serves_multiple_registries() {
    let fixture = Fixture::new().await;
    let other = Registry::start().await.unwrap();
    std::fs::write(fixture.cas_dir().join("other.pem"), other.ca_pem()).unwrap();
    let digest = other.add_image("b/cat", "v1", &catalog());
    fixture.registry.add_image("a/cat", "v1", &catalog());
    fixture.resolve("a/cat:v1").await;
    let reference = format!("{}/b/cat:v1", other.host()).parse().unwrap();
    assert_eq!(fixture.puller.resolve(&reference).await.unwrap().digest().as_str(), digest);
}
