//! Images made to exhaust a server. Each gets its condition, none ends the process, and other catalogs are served
//! meanwhile. An image that ends the process nevertheless is unpacked last by the next one.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime};

use fixture::cgroup::Cgroup;
use fixture::{
    Catalogd, Fixture, STANDALONE, condition, eventually, files_below, image, image_of, message, reason,
    resolved,
};
use olm_image::registry::Fault;
use olm_image::{CATALOG_LABEL, Image, Layer, Runtime, digest_of};
use serde_json::json;
use tokio::sync::watch;

/// Memory limit of the process, page cache included.
const MEMORY: u64 = 256 << 20;
const LONG: usize = 5 << 20;

fn catalog(file: &str, content: String) -> Image {
    image_of(&BTreeMap::from([(file.to_owned(), content.into_bytes())]))
}

fn repeated(count: usize, mut item: impl FnMut(usize, &mut String)) -> String {
    let mut text = String::new();
    (0..count).for_each(|number| item(number, &mut text));
    text
}

fn layered(blob: Vec<u8>) -> Image {
    let layer = Layer { diff_id: digest_of(&blob), blob: blob.into() };
    let labels = BTreeMap::from([(CATALOG_LABEL.to_owned(), "/configs".to_owned())]);
    Image::new(vec![layer], &labels, &Runtime::default()).unwrap()
}

/// A plain tar of empty files.
fn tar_of(paths: impl Iterator<Item = String>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for path in paths {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        tar.append_data(&mut header, path, std::io::empty()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// 128 MiB of zeros as one file.
fn gzip_bomb() -> Vec<u8> {
    let size = 128 << 20;
    let mut header = tar::Header::new_gnu();
    header.set_path("configs/zeros").unwrap();
    header.set_size(size);
    header.set_cksum();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(header.as_bytes()).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), size), &mut gzip).unwrap();
    gzip.finish().unwrap()
}

fn zstd_with_window(log: u32) -> Vec<u8> {
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    zstd.window_log(log).unwrap();
    zstd.write_all(&tar_of(["configs/a.yaml".to_owned()].into_iter())).unwrap();
    zstd.finish().unwrap()
}

/// Catalog names, images and a substring of the condition message.
fn hostile_images() -> Vec<(&'static str, Image, &'static str)> {
    let object = |count| repeated(count, |_, text| text.push_str("{\"schema\":\"a\"}\n"));
    let named = |count| {
        repeated(count, |number, text| writeln!(text, "{{\"schema\":\"a\",\"name\":\"{number}\"}}").unwrap())
    };
    let long = repeated(4, |number, text| {
        writeln!(text, "{{\"schema\":\"a\",\"name\":\"{number}{}\"}}", "n".repeat(LONG)).unwrap();
    });
    let members = repeated(300_000, |number, text| write!(text, "\"{number}\":0,").unwrap());
    let list = repeated(600_000, |_, text| text.push_str("- 0\n"));
    let deep = |name: usize| format!("configs/{name}{}/x", "/a".repeat(60));
    let wide = |name: usize| format!("configs/{name}{}", "a".repeat(3900));
    let json = |text: String| catalog("c.json", text);
    vec![
        ("objects", json(object(200_001)), "catalog exceeds limit objects: 200001 > 200000"),
        ("names", json(named(200_001)), "catalog exceeds limit names: 200001 > 200000"),
        ("name-bytes", json(long), "catalog exceeds limit name-bytes: "),
        (
            "document",
            json(format!("{{\"x\":\"{}\"}}", "x".repeat(17 << 20))),
            "document is larger than 16777216 bytes",
        ),
        ("members", json(format!("{{{members}\"x\":0}}")), "document has more than 500000 values"),
        ("values", catalog("c.yaml", format!("x:\n{list}")), "document has more than 500000 values"),
        ("nesting", json(format!("{{\"x\":{}", "[".repeat(20_000))), "exceeded max depth"),
        (
            "ignore",
            catalog(".indexignore", "a\n".repeat(2000)),
            "the folder has more than 1000 ignore patterns",
        ),
        ("files", layered(tar_of((0..3500).map(deep))), "image exceeds limit files: 200"),
        ("paths", layered(tar_of((0..4500).map(wide))), "image exceeds limit tree-path-bytes: 167"),
        ("window", layered(zstd_with_window(27)), "image exceeds limit zstd-window: 33554433 > 33554432"),
        ("gzip", layered(gzip_bomb()), "image exceeds limit ratio: "),
    ]
}

/// A manifest with almost 4 MiB of nested lists in a field that is not read.
fn with_lists(manifest: &[u8]) -> Vec<u8> {
    let list = format!("{}0{},", "[".repeat(100), "]".repeat(100));
    let head = manifest.strip_suffix(b"}").unwrap();
    [head, b",\"unread\":[", list.repeat(20_000).as_bytes(), b"0]}"].concat()
}

/// Nearly as many objects and names as are allowed.
fn largest() -> Image {
    let object = |number, text: &mut String| {
        writeln!(text, "{{\"name\":\"{number:075}\",\"schema\":\"a\"}}").unwrap();
    };
    catalog("c.json", repeated(199_990, object))
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_images_in_256_mib_get_conditions_and_other_catalogs_are_served() {
    let fixture = Fixture::start().await;
    let cgroup = Cgroup::with_memory(MEMORY);
    let command = cgroup.command(env!("CARGO_BIN_EXE_catalogd"));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut catalogd = Catalogd::launch(&fixture, "pod", &command, &STANDALONE);
    let first = fixture.registry.add_image("a/good", "v1", &image("schema: first\n"));
    fixture.create("good", "a/good:v1", json!({})).await;
    fixture.until_served("good", &first).await;

    let digest = fixture.registry.add_image("a/largest", "v1", &largest());
    fixture.create("largest", "a/largest:v1", json!({})).await;
    for (name, hostile, expected) in hostile_images() {
        fixture.registry.add_image(&format!("a/{name}"), "v1", &hostile);
        fixture.create(name, &format!("a/{name}:v1"), json!({})).await;
        let good = fixture.registry.add_image("a/good", "v1", &image(&format!("schema: {name}\n")));
        fixture.refresh("good").await;
        fixture.until_served("good", &good).await;
        let failing = fixture
            .until(name, |catalog| {
                assert_eq!(cgroup.kills(), 0, "{name}: catalogd ran out of memory");
                condition(catalog, "Progressing").is_some()
            })
            .await;
        let text = message(&failing, "Progressing");
        assert!(text.contains(expected), "{name}: {text}");
        assert_eq!(reason(&failing, "Progressing"), "Retrying", "{name}");
        println!("{name}: {text}");
    }
    fixture.until_served("largest", &digest).await;
    let manifest = with_lists(&fixture.registry.manifest("a/good", "v1").unwrap());
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let digest = fixture.registry.add_manifest("a/good", "lists", media_type, manifest.into());
    fixture.create("lists", "a/good:lists", json!({})).await;
    fixture
        .until("lists", |catalog| {
            assert_eq!(cgroup.kills(), 0, "catalogd ran out of memory");
            resolved(catalog).ends_with(&digest)
        })
        .await;
    assert_eq!(catalogd.get(&fixture, "good/api/v1/all").await, (200, "{\"schema\":\"gzip\"}\n".to_owned()));
    assert_eq!((catalogd.ended(), cgroup.kills()), (None, 0));
    let status = std::fs::read_to_string(format!("/proc/{}/status", catalogd.id())).unwrap();
    println!("{:?}", status.lines().find(|line| line.starts_with("VmHWM")));
    catalogd.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_that_ended_the_process_is_unpacked_after_all_other_catalogs() {
    let fixture = Fixture::start().await;
    let attempts = fixture.cache("pod").join("attempts");
    // Without the content served before, it is not ready for a while, so this does not wait for readiness.
    let launch = || Catalogd::launch(&fixture, "pod", &[env!("CARGO_BIN_EXE_catalogd")], &STANDALONE);
    let digests = ["deadly", "good"].map(|name| {
        let image = image(&format!("schema: {name}\n"));
        let layer = format!("/v2/a/{name}/blobs/{}", digest_of(&image.layers[0].blob));
        (fixture.registry.add_image(&format!("a/{name}"), "v1", &image), layer)
    });
    let [(deadly, deadly_layer), (good, good_layer)] = digests;
    fixture.registry.add_fault(&deadly_layer, 1, Fault::Stall(10));
    fixture.create("deadly", "a/deadly:v1", json!({})).await;
    let mut catalogd = launch();
    let is_unpacking = async || files_below(&attempts).contains(&deadly).then_some(());
    eventually("image is being unpacked", is_unpacking).await;
    catalogd.kill_and_wait();

    // Holds the pull of the other catalog.
    let (release, held) = watch::channel(());
    fixture.registry.add_fault(&good_layer, 1, Fault::Held(held));
    fixture.create("good", "a/good:v1", json!({})).await;
    let _ = fixture.registry.take_requests();
    let mut catalogd = launch();
    let postponed =
        |catalog: &_| message(catalog, "Progressing").contains("it is unpacked again after all other");
    let failing = fixture.until("deadly", postponed).await;
    assert_eq!(reason(&failing, "Progressing"), "Retrying");
    assert!(message(&failing, "Progressing").contains(&deadly));
    let requests = fixture.registry.take_requests();
    assert!(!requests.iter().any(|request| request.contains(&deadly_layer)), "{requests:?}");
    drop(release);
    fixture.until_served("good", &good).await;
    fixture.until_served("deadly", &deadly).await;
    assert_eq!(files_below(&attempts), [""; 0]);

    // From the second crash on there is a wait, even without other catalogs.
    fixture.delete("good").await;
    fixture.until_gone("good", Duration::from_secs(30)).await;
    catalogd.kill_and_wait();
    std::fs::remove_dir_all(fixture.cache("pod").join("catalogs")).unwrap();
    std::fs::write(attempts.join(&deadly), "..").unwrap();
    let mut catalogd = launch();
    fixture.until("deadly", postponed).await;
    assert_eq!(catalogd.get(&fixture, "deadly/api/v1/all").await.0, 503);
    catalogd.kill_and_wait();
    let marker = std::fs::File::options().append(true).open(attempts.join(&deadly)).unwrap();
    marker.set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
    let catalogd = launch();
    fixture.until_served("deadly", &deadly).await;
    eventually("its content is served", async || {
        (catalogd.get(&fixture, "deadly/api/v1/all").await.0 == 200).then_some(())
    })
    .await;
    catalogd.stop().await;
}
