//! `olm catalog mirror` between registries, and through a layout.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use olm_image::Image;
use olm_image::docker_registry::{DockerRegistry, Settings};
use olm_image::registry::{Fault, Registry};
use olm_image::{Layer, LayerEntry, Runtime};
use serde_json::{Value, json};

use super::fixture::{Fixture, bundle};
use crate::reading::cluster::{Cluster, catalog};

pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Registry with a catalog of package lamp (1.0.0, 1.1.0 and 1.2.0), its bundles, and an operand: an index with two
/// images, a signature and an attestation.
pub(super) struct Source {
    pub(super) fixture: Fixture,
    pub(super) operand: String,
}

pub(super) fn image(text: &str) -> Image {
    let entries = BTreeMap::from([("file".to_owned(), LayerEntry::file(text.as_bytes()))]);
    Image::new(vec![Layer::new(&entries).unwrap()], &BTreeMap::new(), &Runtime::default()).unwrap()
}

pub(super) fn index(entries: &[(&str, usize)]) -> Bytes {
    let entry =
        |(digest, size): &(&str, usize)| json!({ "mediaType": MANIFEST, "digest": digest, "size": size });
    let entries: Vec<_> = entries.iter().map(entry).collect();
    json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries }).to_string().into()
}

impl Source {
    pub(super) async fn new() -> Self {
        let fixture = Fixture::open().await;
        let registry = &fixture.registry;
        let images = ["amd64", "arm64"].map(image);
        let children: Vec<_> = images
            .iter()
            .map(|image| (registry.add_image("team/operand", &image.digest(), image), image.manifest.len()))
            .collect();
        let children: Vec<_> = children.iter().map(|(digest, size)| (digest.as_str(), *size)).collect();
        let operand = registry.add_manifest("team/operand", "v1", INDEX, index(&children));
        let tag = operand.replace(':', "-");
        registry.add_image("team/operand", &format!("{tag}.sig"), &image("signature"));
        let attestation = image("attestation");
        let digest = registry.add_image("team/operand", &attestation.digest(), &attestation);
        registry.add_manifest("team/operand", &tag, INDEX, index(&[(&digest, attestation.manifest.len())]));
        let source = Self { fixture, operand };
        source.publish(&[]);
        source
    }

    pub(super) fn host(&self) -> String {
        self.fixture.registry.host()
    }

    /// Pushes bundles and catalog. Each bundle has `more` related images.
    pub(super) fn publish(&self, more: &[&str]) {
        let registry = &self.fixture.registry;
        let host = self.host();
        let mut entries = Vec::new();
        let mut objects =
            vec![json!({ "schema": "olm.package", "name": "lamp", "defaultChannel": "stable" })];
        for minor in 0..3_u32 {
            let tag = format!("v1.{minor}.0");
            let digest =
                registry.add_image("team/lamp-bundle", &tag, &Image::bundle(&bundle(minor)).unwrap());
            let name = format!("lamp.v1.{minor}.0");
            let mut entry = json!({ "name": name });
            if minor > 0 {
                entry["replaces"] = json!(format!("lamp.v1.{}.0", minor - 1));
            }
            entries.push(entry);
            let operand = format!("{host}/team/operand:v1@{}", self.operand);
            let related = [operand.as_str()].into_iter().chain(more.iter().copied());
            let related: Vec<_> = related.map(|image| json!({ "name": "", "image": image })).collect();
            let version = json!({ "packageName": "lamp", "version": format!("1.{minor}.0") });
            objects.push(json!({
                "schema": "olm.bundle", "package": "lamp", "name": name,
                "image": format!("{host}/team/lamp-bundle@{digest}"), "relatedImages": related,
                "properties": [{ "type": "olm.package", "value": version }],
            }));
        }
        objects.push(
            json!({ "schema": "olm.channel", "package": "lamp", "name": "stable", "entries": entries }),
        );
        let text: String = objects.iter().map(Value::to_string).collect();
        let files = BTreeMap::from([("lamp/catalog.json".to_owned(), text.into_bytes())]);
        registry.add_image("team/lamp-catalog", "v1", &Image::catalog(&files).unwrap());
    }

    /// Empty registry that clients of the fixture trust.
    pub(super) async fn target(&self, name: &str) -> Registry {
        let registry = Registry::start().await.unwrap();
        self.fixture.write(&format!("cas/{name}.crt"), registry.ca_pem());
        registry
    }

    /// Mirrors the catalog, and parses the result.
    pub(super) async fn mirror(&self, to: &str) -> (i32, Value, String) {
        let line = format!("mirror {}/team/lamp-catalog:v1 {to} --ca-dir cas -o json", self.host());
        let ran = self.fixture.olm(&line).await;
        (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_default(), ran.stderr)
    }

    /// Manifests of the source that the catalog needs, with the names that they have below the prefix `m`.
    pub(super) fn expected(&self) -> BTreeMap<(String, String), Bytes> {
        let manifests = self.fixture.registry.manifests();
        let catalog = &manifests[&("team/lamp-catalog".to_owned(), "v1".to_owned())];
        let is_copied = |(repository, name): &(String, String), bytes: &Bytes| match repository.as_str() {
            // The tag, and its digest.
            "team/lamp-catalog" => bytes == catalog,
            // Bundles and the operand are named by digest.
            _ => name.starts_with("sha256"),
        };
        manifests
            .iter()
            .filter(|(key, bytes)| is_copied(key, bytes))
            .map(|((repository, tag), bytes)| ((format!("m/{repository}"), tag.clone()), bytes.clone()))
            .collect()
    }
}

pub(super) fn sent(registry: &Registry) -> Vec<String> {
    let is_write = |request: &String| request.starts_with("PUT") || request.starts_with("POST");
    registry.take_requests().into_iter().filter(is_write).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_has_the_same_bytes_tags_and_signatures_and_is_written_once() {
    let source = Source::new().await;
    let target = source.target("target").await;
    let to = format!("--to {}/m", target.host());
    let (code, result, stderr) = source.mirror(&to).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(result["images"], 5);
    assert!(target.manifests() == source.expected(), "{:?}", target.manifests().keys());
    assert!(target.blobs().is_subset(&source.fixture.registry.blobs()));
    assert!(!sent(&target).is_empty());

    let host = (source.host(), target.host());
    let conf = source.fixture.read("mirror/registries.conf");
    let expected = format!(
        "[[registry]]\nlocation = \"{}/team\"\n[[registry.mirror]]\nlocation = \"{}/m/team\"\n\n",
        host.0, host.1
    );
    assert_eq!(conf, expected);
    let catalog = source.fixture.read("mirror/cluster-catalog.yaml");
    assert!(catalog.contains("  name: lamp-catalog\n"), "{catalog}");
    assert!(catalog.contains(&format!("ref: {}/m/team/lamp-catalog:v1\n", host.1)), "{catalog}");
    let mapping = source.fixture.read("mirror/mapping.txt");
    let operand = &source.operand;
    assert!(
        mapping.contains(&format!("{}/team/operand@{operand}={}/m/team/operand@{operand}\n", host.0, host.1))
    );
    assert!(source.fixture.read("mirror/image-mirror-sets.yaml").contains("kind: ImageDigestMirrorSet\n"));

    let (code, result, _) = source.mirror(&to).await;
    assert_eq!((code, &result["blobsCopied"]), (0, &json!(0)));
    assert_eq!(sent(&target), Vec::<String>::new());
    let listed =
        source.fixture.works(&format!("ls {}/m/team/lamp-catalog:v1 --ca-dir cas", target.host())).await;
    assert!(listed.contains("lamp"), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_image_is_reported_and_all_others_are_copied() {
    let source = Source::new().await;
    let missing = format!("{}/team/gone:v1", source.host());
    source.publish(&[&missing, "not a reference"]);
    let target = source.target("target").await;
    let (code, result, stderr) = source.mirror(&format!("--to {}/m", target.host())).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("2 of 7 images were not copied"), "{stderr}");
    assert!(stderr.contains("REGISTRY/team/gone:v1: "), "{stderr}");
    assert_eq!(result["failures"].as_array().unwrap().len(), 2);
    assert!(target.manifests() == source.expected(), "{:?}", target.manifests().keys());
    // Without the related images.
    let target = source.target("other").await;
    let to = format!("--to {}/m --no-related-images --output-dir other", target.host());
    let (code, result, stderr) = source.mirror(&to).await;
    assert_eq!((code, &result["images"]), (0, &json!(4)), "{stderr}");
    assert!(target.manifests().keys().all(|(repository, _)| repository != "m/team/operand"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_mirror_is_completed_by_the_next_run() {
    let source = Source::new().await;
    let target = source.target("target").await;
    let to = format!("--to {}/m", target.host());
    // A short fault is retried.
    target.add_fault("PUT /v2/m/team/lamp-bundle/blobs", 1, Fault::Status(500, Vec::new(), String::new()));
    source.fixture.registry.add_fault("GET /v2/team/lamp-bundle/blobs", 1, Fault::Cut(10));
    target.add_fault(
        "PUT /v2/m/team/operand/blobs",
        usize::MAX,
        Fault::Status(403, Vec::new(), "full".to_owned()),
    );
    let (code, result, stderr) = source.mirror(&to).await;
    assert_eq!(code, 1, "{stderr}");
    assert_eq!(result["failures"].as_array().unwrap().len(), 1, "{result}");
    target.clear_faults();
    let present = target.blobs().len();
    let (code, result, stderr) = source.mirror(&to).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(target.manifests() == source.expected(), "{:?}", target.manifests().keys());
    assert_eq!(result["blobsCopied"], json!(target.blobs().len() - present));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_blob_is_refused() {
    let source = Source::new().await;
    let target = source.target("target").await;
    source.fixture.registry.add_fault("GET /v2/team/operand/blobs", usize::MAX, Fault::Corrupt);
    let (code, _, stderr) = source.mirror(&format!("--to {}/m", target.host())).await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("Digest did not match, expected sha256:"), "{stderr}");
    let (code, _, stderr) = source.mirror("--to-dir layout").await;
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("the content has digest sha256:"), "{stderr}");
    let blobs = target.blobs();
    assert!(blobs.is_subset(&source.fixture.registry.blobs()), "{blobs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layout_is_copied_to_a_registry_after_the_source_is_gone() {
    let source = Source::new().await;
    let (code, first, stderr) = source.mirror("--to-dir layout").await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_ne!(first["blobsCopied"], json!(0));

    // A second run only reads manifests, and a damaged blob.
    let blobs: BTreeSet<String> = source.fixture.registry.blobs();
    let damaged = blobs.iter().next().unwrap();
    let path = format!("layout/blobs/{}", damaged.replace(':', "/"));
    let length = std::fs::metadata(source.fixture.path(&path)).unwrap().len();
    source.fixture.write(&path, &"x".repeat(usize::try_from(length).unwrap()));
    let _ = source.fixture.registry.take_requests();
    let (code, second, _) = source.mirror("--to-dir layout").await;
    assert_eq!((code, &second["blobsCopied"]), (0, &json!(1)), "{second}");

    let expected = source.expected();
    source.fixture.registry.add_fault("/v2/", usize::MAX, Fault::Status(403, Vec::new(), String::new()));
    let target = source.target("target").await;
    let line = format!("mirror layout --to {}/m --ca-dir cas --output-dir config", target.host());
    let printed = source.fixture.works(&line).await;
    assert!(printed.contains("copied 7 of 7 images"), "{printed}");
    assert!(target.manifests() == expected, "{:?}", target.manifests().keys());
    let catalog = source.fixture.read("config/cluster-catalog.yaml");
    assert!(catalog.contains("  name: lamp-catalog\n"), "{catalog}");
    let _ = sent(&target);
    source.fixture.works(&line).await;
    assert_eq!(sent(&target), Vec::<String>::new());
    let ran = source.fixture.olm(&format!("{line} --heads")).await;
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catalog_of_the_cluster_is_copied_as_served_under_its_tag() {
    let source = Source::new().await;
    let registry = &source.fixture.registry;
    let served = registry.manifests()[&("team/lamp-catalog".to_owned(), "v1".to_owned())].clone();
    let name = |suffix: &str| json!(format!("{}/team/lamp-catalog{suffix}", source.host()));
    let mut object = catalog("lamps", true);
    object["spec"]["source"]["image"]["ref"] = name(":v1");
    let digests = registry.manifests().into_iter().filter(|((repository, tag), bytes)| {
        repository == "team/lamp-catalog" && tag.starts_with("sha256") && *bytes == served
    });
    let digest = digests.map(|((_, digest), _)| digest).next().unwrap();
    object["status"]["resolvedSource"]["image"]["ref"] = name(&format!("@{digest}"));
    registry.add_image("team/lamp-catalog", "v1", &image("newer"));
    let mut idle = catalog("idle", false);
    idle["status"].as_object_mut().unwrap().remove("resolvedSource");
    let cluster = Cluster::start(vec![object, idle], |_| unreachable!("no content is read")).await;
    let path = |option: &str, name: &str| format!("{option}={}", source.fixture.path(name).display());
    let options = [path("--to-dir", "layout"), path("--ca-dir", "cas")];
    let ran = cluster.olm(&["catalog", "mirror", "cluster/lamps", &options[0], &options[1]]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let index: Value = serde_json::from_str(&source.fixture.read("layout/index.json")).unwrap();
    let entries = index["manifests"].as_array().unwrap();
    let is_catalog =
        |entry: &&Value| entry["annotations"]["org.opencontainers.image.ref.name"] == name(":v1");
    let entry = entries.iter().find(is_catalog).unwrap();
    assert_eq!(entry["digest"], json!(digest));
    assert_eq!(entry["annotations"]["ext.olm.operatorframework.io/catalog"], "lamps");
    let ran = cluster.olm(&["catalog", "mirror", "cluster/idle", &options[0]]).await;
    let expected = "error: ClusterCatalog idle serves no content: status.resolvedSource is not set\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (1, expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_of_another_mirror_is_not_overwritten() {
    let source = Source::new().await;
    let target = source.target("target").await;
    let (code, _, stderr) = source.mirror(&format!("--to {}/m", target.host())).await;
    assert_eq!(code, 0, "{stderr}");
    let conf = source.fixture.read("mirror/registries.conf");
    let _ = sent(&target);
    let other = format!("--to {}/n", target.host());
    let (code, _, stderr) = source.mirror(&other).await;
    assert_eq!(code, 2, "{stderr}");
    let expected = "error: mirror/cluster-catalog.yaml: the file has other content, such as of another mirror; nothing was copied: choose another directory with --output-dir, or remove the file\n";
    assert_eq!(stderr, expected);
    assert_eq!(source.fixture.read("mirror/registries.conf"), conf);
    assert_eq!(sent(&target), Vec::<String>::new());
    let (code, _, stderr) = source.mirror(&format!("{other} --output-dir other")).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_catalog_name_in_a_layout_is_refused() {
    let source = Source::new().await;
    let (code, _, stderr) = source.mirror("--to-dir layout").await;
    assert_eq!(code, 0, "{stderr}");
    let index = source.fixture.read("layout/index.json");
    source.fixture.write("layout/index.json", &index.replace("\"lamp-catalog\"", r#""x\nspec:""#));
    let ran = source.fixture.olm("mirror layout --to r.example/m").await;
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let expected = "of the layout: \"x\\nspec:\" is not a valid name of a ClusterCatalog\n";
    assert!(ran.stderr.ends_with(expected), "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_that_nested_indexes_repeat_are_read_once() {
    let source = Source::new().await;
    let registry = &source.fixture.registry;
    let leaf = image("leaf");
    let mut digest = registry.add_image("team/nested", &leaf.digest(), &leaf);
    let mut size = leaf.manifest.len();
    for level in 0..3 {
        let list = index(&vec![(digest.as_str(), size); 10]);
        size = list.len();
        digest = registry.add_manifest("team/nested", &format!("level-{level}"), INDEX, list);
    }
    source.publish(&[&format!("{}/team/nested@{digest}", source.host())]);
    let _ = registry.take_requests();
    let (code, _, stderr) = source.mirror("--to-dir layout").await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let is_manifest = |request: &String| request.starts_with("GET /v2/team/nested/manifests/sha256:");
    assert_eq!(registry.take_requests().into_iter().filter(is_manifest).count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_the_layout_lacks_fail_its_copy_until_a_run_has_them() {
    let source = Source::new().await;
    source.publish(&[&format!("{}/team/late:v1", source.host())]);
    let (code, _, stderr) = source.mirror("--to-dir layout").await;
    assert_eq!(code, 1, "{stderr}");
    let target = source.target("target").await;
    let line = format!("mirror layout --to {}/m --ca-dir cas", target.host());
    let ran = source.fixture.olm(&line).await;
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("REGISTRY/team/late:v1: the layout does not have it: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: 1 of 8 images were not copied\n"), "{}", ran.stderr);

    source.fixture.registry.add_image("team/late", "v1", &image("late"));
    let (code, _, stderr) = source.mirror("--to-dir layout").await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let printed = source.fixture.works(&format!("{line} --output-dir second")).await;
    assert!(printed.contains("copied 8 of 8 images"), "{printed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reduced_catalog_keeps_its_tag_and_has_a_stable_digest() {
    let source = Source::new().await;
    let mut digests = BTreeSet::new();
    for name in ["one", "two"] {
        let target = source.target(name).await;
        let line = format!(
            "mirror {}/team/lamp-catalog:v1 --package lamp@>=1.1.0 --to {} --ca-dir cas --output-dir {name}",
            source.host(),
            target.host()
        );
        source.fixture.works(&line).await;
        let manifests = target.manifests();
        let digest = |key: &str| &manifests[&("team/lamp-catalog".to_owned(), key.to_owned())];
        digests.insert(digest("v1").clone());
        let bundles = manifests.keys().filter(|(repository, _)| repository == "team/lamp-bundle");
        assert_eq!(bundles.count(), 2);
        let mirrored = format!("{}/team/lamp-catalog:v1", target.host());
        assert_eq!(
            source
                .fixture
                .works(&format!("ls {mirrored} --ca-dir cas -o json"))
                .await
                .matches("\"lamp\"")
                .count(),
            1
        );
        let whole = format!("{}/team/lamp-catalog:v1", source.host());
        let diff = source.fixture.works(&format!("diff {whole} {mirrored} --ca-dir cas")).await;
        assert!(diff.contains("lamp.v1.0.0"), "{diff}");
    }
    assert_eq!(digests.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_onto_the_source_is_refused_without_a_write() {
    let source = Source::new().await;
    let host = source.host();
    let (code, _, stderr) = source.mirror("--to-dir layout").await;
    assert_eq!(code, 0, "{stderr}");
    let catalog = format!("{host}/team/lamp-catalog:v1");
    let before = source.fixture.registry.manifests();
    for line in [
        catalog.clone(),
        format!("{catalog} --package lamp@>=1.1.0"),
        format!("{catalog} --package lamp --catalog-ref quay.example/team/lamp-catalog:v1"),
        "layout".to_owned(),
    ] {
        let ran = source.fixture.olm(&format!("mirror {line} --to {host} --ca-dir cas")).await;
        assert_eq!(ran.code, 2, "{line}: {}", ran.stderr);
        let expected = "error: the copy would overwrite the catalog REGISTRY/team/lamp-catalog:v1; nothing was copied: add a path to --to, such as REGISTRY/mirror\n";
        assert_eq!(ran.stderr, expected, "{line}");
    }
    assert!(source.fixture.registry.manifests() == before);
    assert!(!source.fixture.path("mirror").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirror_of_catalog_directory_requires_catalog_ref_flag() {
    let source = Source::new().await;
    let host = source.host();
    super::prune::write_catalog(&source.fixture, |_| format!("{host}/team/lamp-bundle:v1.0.0"));
    let target = source.target("target").await;
    let line = format!("mirror catalog --to {}/m --ca-dir cas", target.host());
    let ran = source.fixture.olm(&line).await;
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("--catalog-ref REGISTRY/REPOSITORY:TAG"), "{}", ran.stderr);
    let printed = source.fixture.works(&format!("{line} --catalog-ref quay.example/team/all:v2")).await;
    assert!(printed.contains("/m/team/all:v2\n"), "{printed}");
    assert!(target.manifests().contains_key(&("m/team/all".to_owned(), "v2".to_owned())));
    assert!(target.manifests().contains_key(&("m/team/lamp-bundle".to_owned(), "v1.0.0".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docker_registry_with_password_takes_the_mirror_and_its_second_run() {
    let source = Source::new().await;
    let fixture = &source.fixture;
    fixture.write("htpasswd", "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n");
    std::fs::create_dir(fixture.path("registry")).unwrap();
    let settings = Settings { htpasswd: Some(fixture.path("htpasswd")), ..Settings::default() };
    let registry = DockerRegistry::start(&fixture.path("registry"), &settings).unwrap();
    let host = registry.host();
    let conf = format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true\n");
    fixture.write(".config/containers/registries.conf", &conf);
    let (code, _, stderr) = source.mirror(&format!("--to {host}/m")).await;
    assert_eq!(code, 1);
    assert!(stderr.contains("5 of 5 images were not copied"), "{stderr}");
    fixture.write("auth.json", &format!(r#"{{"auths":{{"{host}":{{"auth":"dXNlcjpzZWNyZXQ="}}}}}}"#));
    let to = format!("--to {host}/m --authfile auth.json");
    let (code, first, stderr) = source.mirror(&to).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    let (code, second, stderr) = source.mirror(&to).await;
    assert_eq!((code, &second["blobsCopied"]), (0, &json!(0)), "{stderr} {first}");
    let listed = fixture.works(&format!("ls {host}/m/team/lamp-catalog:v1 --authfile auth.json")).await;
    assert!(listed.contains("lamp"), "{listed}");
}
