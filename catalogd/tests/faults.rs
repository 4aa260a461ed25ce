//! Registries and disks that fail: the status names the cause, served content stays served, other catalogs are
//! unaffected, and catalogs recover without user action.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::{
    Catalogd, Fixture, IDLE_CACHE, condition, eventually, files_below, image, image_of, message, reason,
};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use olm_api::ClusterCatalog;
use olm_image::registry::Fault;
use olm_image::{CATALOG_LABEL, Image, Layer, LayerEntry, Runtime, digest_of};
use olm_require::Need;
use serde_json::json;

const FOREVER: usize = usize::MAX;

/// A failure of a registry, and the status message after `source catalog content: `. `HOST` stands for the
/// registry, `LAYER` for the digest of the image's layer.
struct RegistryFault {
    name: &'static str,
    request: &'static str,
    fault: Fault,
    expected: &'static str,
}

fn status(code: u16, body: &str) -> Fault {
    Fault::Status(code, vec![], body.to_owned())
}

fn refusal(code: u16, error: &str, text: &str) -> Fault {
    status(code, &json!({"errors": [{"code": error, "message": text}]}).to_string())
}

fn registry_faults() -> Vec<RegistryFault> {
    let row = |name, request, fault, expected| RegistryFault { name, request, fault, expected };
    vec![
        row(
            "unauthorized",
            "/manifests/",
            refusal(401, "UNAUTHORIZED", "who are you"),
            "error creating image source: reading manifest v1 in HOST/a/unauthorized: unauthorized: who are you",
        ),
        row(
            "denied",
            "/manifests/",
            refusal(403, "DENIED", "not for you"),
            "error creating image source: reading manifest v1 in HOST/a/denied: denied: not for you",
        ),
        row(
            "unknown",
            "/manifests/",
            refusal(404, "MANIFEST_UNKNOWN", "no such tag"),
            "error creating image source: reading manifest v1 in HOST/a/unknown: manifest unknown: no such tag",
        ),
        row(
            "busy",
            "/manifests/",
            Fault::Status(429, vec![("retry-after", "0".to_owned())], "slow down".to_owned()),
            "error creating image source: reading manifest v1 in HOST/a/busy: StatusCode: 429",
        ),
        row("broken", "/manifests/", status(503, "out of order"), "error creating image source: "),
        row("slow", "/blobs/LAYER", Fault::Stall(10), "error copying image: "),
        row("cut", "/blobs/LAYER", Fault::Cut(10), "error copying image: reading blob LAYER: "),
        row(
            "corrupt",
            "/blobs/LAYER",
            Fault::Corrupt,
            "error copying image: reading blob LAYER: Digest did not match, ",
        ),
    ]
}

fn image_for(catalog: &str) -> Image {
    image(&format!("schema: {catalog}\n"))
}

/// A text of the row of `name` with its placeholders replaced.
fn filled(text: &str, name: &str, fixture: &Fixture) -> String {
    let layer = digest_of(&image_for(name).layers[0].blob);
    text.replace("HOST", &fixture.registry.host()).replace("LAYER", &layer)
}

/// Adds all images to the registry. Returns their digests by catalog.
fn publish(fixture: &Fixture) -> BTreeMap<&'static str, String> {
    let add = |name| (name, fixture.registry.add_image(&format!("a/{name}"), "v1", &image_for(name)));
    registry_faults().iter().map(|row| add(row.name)).chain([add("healthy")]).collect()
}

// Case catalogd-36: each cause is reported, all are retried, and other catalogs are unaffected
#[tokio::test(flavor = "multi_thread")]
async fn registry_faults_are_reported_and_retried() {
    let fixture = Fixture::start().await;
    let digests = publish(&fixture);
    for row in registry_faults() {
        let request = format!("/v2/a/{}{}", row.name, filled(row.request, row.name, &fixture));
        fixture.registry.add_fault(&request, FOREVER, row.fault);
        fixture.create(row.name, &format!("a/{}:v1", row.name), json!({})).await;
    }
    let flags = ["--image-limits=pull-timeout=10s,file-bytes=1Mi,unpacked-bytes=80Mi,ratio=50"];
    let catalogd = Catalogd::start_alone(&fixture, "pod", &flags).await;
    fixture.create("healthy", "a/healthy:v1", json!({})).await;
    fixture.until_served("healthy", &digests["healthy"]).await;

    for row in registry_faults() {
        let failing = fixture.until(row.name, |catalog| condition(catalog, "Progressing").is_some()).await;
        let expected = format!("source catalog content: {}", filled(row.expected, row.name, &fixture));
        let text = message(&failing, "Progressing");
        assert!(text.starts_with(&expected), "{}: {text}", row.name);
        assert_eq!(reason(&failing, "Progressing"), "Retrying", "{}", row.name);
        assert_eq!(condition(&failing, "Serving"), None, "{}", row.name);
        println!("{}: {text}", row.name);
    }
    hostile_images(&fixture, &catalogd).await;
    assert_eq!(catalogd.get(&fixture, "healthy/api/v1/all").await.0, 200);

    fixture.registry.clear_faults();
    for row in registry_faults() {
        fixture.until_served(row.name, &digests[row.name]).await;
        assert_eq!(catalogd.get(&fixture, &format!("{}/api/v1/all", row.name)).await.0, 200);
    }
    let unpack = fixture.cache("pod").join("unpack");
    eventually("leftovers are removed", async || files_below(&unpack).is_empty().then_some(())).await;
}

// docs/design/additions.md#events; case operations-a55
#[tokio::test(flavor = "multi_thread")]
async fn registry_in_denied_network_is_not_contacted() {
    let fixture = Fixture::start().await;
    fixture.registry.add_image("a/cat", "v1", &image("schema: any\n"));
    let flags = ["--registry-deny-cidrs=169.254.0.0/16,127.0.0.0/8,::1"];
    let catalogd = Catalogd::start_alone(&fixture, "pod", &flags).await;
    fixture.create("denied", "a/cat:v1", json!({})).await;
    let failing = fixture.until("denied", |catalog| condition(catalog, "Progressing").is_some()).await;
    let text = message(&failing, "Progressing");
    assert!(text.contains("the address is in 127.0.0.0/8, which --registry-deny-cidrs forbids"), "{text}");
    assert_eq!(reason(&failing, "Progressing"), "Retrying");
    assert_eq!(fixture.registry.take_requests(), [""; 0]);
    let events: Api<Event> = Api::namespaced(fixture.plane.client(), "default");
    let about = ListParams::default().fields("reason=CatalogUnavailable");
    eventually("Event is published", async || {
        let all = events.list(&about).await.unwrap().items;
        all.iter().any(|event| event.note.as_deref() == Some(text.as_str())).then_some(())
    })
    .await;
    catalogd.stop().await;
}

/// An image with these entries.
fn hostile(entries: &[(&str, LayerEntry)]) -> Image {
    let entries = entries.iter().map(|(path, entry)| ((*path).to_owned(), entry.clone())).collect();
    labeled(vec![Layer::new(&entries).unwrap()])
}

fn labeled(layers: Vec<Layer>) -> Image {
    let labels = BTreeMap::from([(CATALOG_LABEL.to_owned(), "/configs".to_owned())]);
    Image::new(layers, &labels, &Runtime::default()).unwrap()
}

/// A tar with one entry of this type.
fn tar_with(name: &str, kind: tar::EntryType, link: Option<&str>) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_entry_type(kind);
    header.set_size(0);
    link.iter().for_each(|target| header.set_link_name(target).unwrap());
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, std::io::empty()).unwrap();
    archive.into_inner().unwrap()
}

// docs/design/images.md#special-files, docs/design/images.md#image-limits, docs/design/images.md#catalog-folder,
// docs/design/catalogd.md#directory-walk; cases catalogd-32, catalogd-33: invalid or far too large images are
// refused once and not pulled again
async fn hostile_images(fixture: &Fixture, catalogd: &Catalogd) {
    let large = LayerEntry::file(vec![b' '; 2 << 20]);
    let bomb: Vec<_> =
        (0..90).map(|n| (format!("configs/{n}"), LayerEntry::file(vec![b' '; 1 << 20]))).collect();
    let bomb: Vec<_> = bomb.iter().map(|(path, entry)| (path.as_str(), entry.clone())).collect();
    let outside = tar_with("configs/s.yaml", tar::EntryType::Symlink, Some("/etc/passwd"));
    let pipe = tar_with("configs/pipe", tar::EntryType::Fifo, None);
    let rows = [
        ("large", hostile(&[("configs/a", large)]), "image exceeds limit file-bytes: 2097152 > 1048576"),
        ("bomb", hostile(&bomb), "image exceeds limit "),
        ("pipe", labeled(vec![Layer::from_tar(&pipe).unwrap()]), "entry \"configs/pipe\" is a FIFO"),
        ("link", labeled(vec![Layer::from_tar(&outside).unwrap()]), ""),
        ("nowhere", hostile(&[("other/a", LayerEntry::file("schema: a"))]), "which is not in the image"),
    ];
    for (name, image, expected) in &rows {
        let digest = fixture.registry.add_image(&format!("a/{name}"), "v1", image);
        for (catalog, reference, expect) in [
            (format!("{name}-tag"), format!("a/{name}:v1"), "Retrying"),
            (format!("{name}-digest"), format!("a/{name}@{digest}"), "Blocked"),
        ] {
            fixture.create(&catalog, &reference, json!({})).await;
            let refused =
                fixture.until(&catalog, |catalog| condition(catalog, "Progressing").is_some()).await;
            let text = message(&refused, "Progressing");
            assert_eq!(reason(&refused, "Progressing"), expect, "{catalog}: {text}");
            assert!(text.contains(expected), "{catalog}: {text}");
            assert!(!text.contains("root:"), "{catalog}: {text}");
            assert_eq!(catalogd.get(fixture, &format!("{catalog}/api/v1/all")).await.0, 404);
        }
    }
    // Tags are resolved again, but their images are not pulled again.
    let _ = fixture.registry.take_requests();
    let mut seen: Vec<String> = Vec::new();
    eventually("all tags are resolved twice", async || {
        seen.extend(fixture.registry.take_requests());
        let looks = |name: &str| {
            seen.iter().filter(|line| **line == format!("HEAD /v2/a/{name}/manifests/v1")).count()
        };
        rows.iter().all(|(name, _, _)| looks(name) > 1).then_some(())
    })
    .await;
    let again = seen.iter().filter(|line| {
        rows.iter().any(|(name, _, _)| line.contains(&format!("/a/{name}/")) && !line.starts_with("HEAD "))
    });
    assert_eq!(again.collect::<Vec<_>>(), [""; 0]);
}

/// A small disk that is unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// Mounts a tmpfs. `None` if mounting is not allowed.
    fn mount(path: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(path)
            .status()
            .unwrap();
        mounted.success().then(|| Self(path.to_owned()))
    }

    /// Waits for the removal of files that exceed the new size.
    async fn resize(&self, size: &str) {
        let option = format!("remount,size={size}");
        let resize = || Command::new("mount").args(["-o", &option]).arg(&self.0).status().unwrap().success();
        eventually("the disk has the new size", async || resize().then_some(())).await;
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazy, because a process may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// An image with about this much content in files of 256 KiB.
fn sized(bytes: usize, version: &str) -> Image {
    const FILE: usize = 256 << 10;
    let object = json!({"schema": version, "text": "x".repeat(1 << 10)}).to_string() + "\n";
    let text = object.repeat(FILE / object.len());
    let files = (0..bytes / FILE).map(|n| (format!("{n}.json"), text.clone().into_bytes()));
    image_of(&files.collect())
}

fn is_full(catalog: &ClusterCatalog) -> bool {
    reason(catalog, "Progressing") == "Retrying"
}

// A full disk is reported as a condition, and the old content stays served
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_reported_and_old_content_stays_served() {
    let fixture = Fixture::start().await;
    let cache = fixture.cache("pod");
    let Some(disk) = Disk::mount(&cache, "4m") else {
        return olm_require::report(Need::Root, "mounting a small disk needs root");
    };
    let first = fixture.registry.add_image("a/cat", "v1", &sized(256 << 10, "v1"));
    let catalogd = Catalogd::start_alone(&fixture, "pod", &[]).await;
    fixture.create("cat", "a/cat:v1", json!({})).await;
    let mut before = fixture.until_served("cat", &first).await;
    let old = catalogd.get(&fixture, "cat/api/v1/all").await;
    assert_eq!(old.0, 200);

    let full = "No space left on device (os error 28)";
    for (tag, bytes, expected) in [
        // Too large when unpacked.
        (
            "v2",
            8 << 20,
            format!("source catalog content: error applying image: error applying layer[0]: {full}"),
        ),
        // Too large when stored beside the unpacked files.
        ("v3", 5 << 19, format!("error storing fbc: error writing catalog content: {full}")),
    ] {
        let serving = condition(&before, "Serving");
        let digest = fixture.registry.add_image("a/cat", tag, &sized(bytes, tag));
        let reference = format!("{}/a/cat:{tag}", fixture.registry.host());
        fixture.patch("cat", json!({"spec": {"source": {"image": {"ref": reference}}}})).await;
        let failing = fixture.until("cat", is_full).await;
        assert_eq!(message(&failing, "Progressing"), expected, "{tag}");
        assert_eq!(condition(&failing, "Serving"), serving);
        assert_eq!(fixture::resolved(&failing), fixture::resolved(&before));
        assert!(catalogd.get(&fixture, "cat/api/v1/all").await == old, "{tag}: the old content is served");
        // Between two attempts their files are removed.
        eventually("leftovers are removed", async || (files_below(&cache) == IDLE_CACHE).then_some(())).await;
        println!("{tag}: {expected}");

        disk.resize("64m").await;
        fixture.until_served("cat", &digest).await;
        assert!(catalogd.get(&fixture, "cat/api/v1/all").await.1.contains(tag));
        let reference = format!("{}/a/cat:v1", fixture.registry.host());
        fixture.patch("cat", json!({"spec": {"source": {"image": {"ref": reference}}}})).await;
        before = fixture.until_served("cat", &first).await;
        disk.resize("4m").await;
    }
    catalogd.stop().await;
}
