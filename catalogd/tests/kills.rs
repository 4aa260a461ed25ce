//! `kill -9` at every kind of moment while content is pulled, unpacked, written and renamed: the next process
//! serves either the complete old content or the complete new one, then stores the new one without leftovers.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Instant;

use fixture::strace::{self, Strace, points};
use fixture::{Catalogd, Fixture, IDLE_CACHE, STANDALONE, eventually, files_below, image_of};
use olm_image::digest_of;
use olm_image::registry::Fault;
use serde_json::json;

/// Minimum number of distinct places where the process is killed.
const PLACES: usize = 50;
const FILES: usize = 6;
const OBJECTS: usize = 100;

/// Content of a version. Each part names the version, so that a mixture is detected.
fn content(version: usize) -> BTreeMap<String, Vec<u8>> {
    (0..FILES)
        .map(|file| {
            let mut text = String::new();
            for object in 0..OBJECTS {
                // Digits that hardly compress, so that the layer is large enough.
                let noise = (0..90).fold(String::new(), |mut noise, place| {
                    write!(noise, "{:x}", (version + 1) * 7_919_u64 as usize * (object + 1) * (place + 3) * (file + 11)).unwrap();
                    noise
                });
                let object =
                    json!({"name": format!("{file}-{object}"), "noise": noise, "schema": format!("v{version}")});
                writeln!(text, "{object}").unwrap();
            }
            (format!("part-{file}/catalog.json"), text.into_bytes())
        })
        .collect()
}

fn all(version: usize) -> String {
    content(version).into_values().map(|text| String::from_utf8(text).unwrap()).collect()
}

struct CrashTest {
    fixture: Fixture,
    catalogd: Catalogd,
    version: usize,
    digest: String,
    /// Digest of the newest version's layer.
    layer: String,
    places: BTreeSet<String>,
}

impl CrashTest {
    async fn start() -> Self {
        let fixture = Fixture::start().await;
        let digest = fixture.registry.add_image("a/cat", "v1", &image_of(&content(0)));
        fixture.create("cat", "a/cat:v1", json!({})).await;
        let catalogd = Catalogd::start_alone(&fixture, "pod", &[]).await;
        let (layer, places) = (String::new(), BTreeSet::new());
        let this = Self { fixture, catalogd, version: 0, digest, layer, places };
        this.converged().await;
        this
    }

    /// Waits until the newest content is served, and nothing else is on the disk.
    async fn converged(&self) {
        self.fixture.until_served("cat", &self.digest).await;
        let served = self.catalogd.get(&self.fixture, "cat/api/v1/all").await;
        assert!(served == (200, all(self.version)), "version {} is not served", self.version);
        let cache = self.fixture.cache("pod");
        let clean = async || (files_below(&cache) == IDLE_CACHE).then_some(());
        eventually("leftovers are removed", clean).await;
    }

    /// Adds a newer version to the registry.
    async fn publish(&mut self) {
        self.version += 1;
        let image = image_of(&content(self.version));
        self.layer = digest_of(&image.layers[0].blob);
        self.digest = self.fixture.registry.add_image("a/cat", "v1", &image);
    }

    /// Restarts the killed process and checks that it serves complete content at once.
    async fn recover(&mut self) {
        self.catalogd = Catalogd::start_alone(&self.fixture, "pod", &[]).await;
        let (status, text) = self.catalogd.get(&self.fixture, "cat/api/v1/all").await;
        let whole = text == all(self.version - 1) || text == all(self.version);
        assert!(status == 200 && whole, "after a kill: {status}, {} bytes", text.len());
        self.converged().await;
    }

    /// Kills the process when the registry has sent `bytes` of the answer to `request` and then stalls.
    async fn kill_while_downloading(&mut self, request: &str, bytes: usize) {
        self.publish().await;
        let asked = request.replace("LAYER", &self.layer);
        let _ = self.fixture.registry.take_requests();
        self.fixture.registry.add_fault(&asked, 1, Fault::Stall(bytes));
        self.fixture.refresh("cat").await;
        eventually("registry receives the request", async || {
            let requests = self.fixture.registry.take_requests();
            requests.iter().any(|line| line.contains(&asked)).then_some(())
        })
        .await;
        self.catalogd.kill_and_wait();
        self.places.insert(format!("download {request} {bytes}"));
        self.recover().await;
    }

    /// Kills the process during a download, and the next one while it removes the leftovers.
    async fn kill_while_cleaning(&mut self, ordinal: usize) {
        self.publish().await;
        let layer = format!("GET /v2/a/cat/blobs/{}", self.layer);
        self.fixture.registry.add_fault(&layer, 1, Fault::Stall(40_000));
        self.fixture.refresh("cat").await;
        let cache = self.fixture.cache("pod");
        let begun = async || files_below(&cache).iter().any(|file| file.ends_with("/0")).then_some(());
        eventually("a file is being unpacked", begun).await;
        self.catalogd.kill_and_wait();

        let point = strace::Point { call: "unlinkat".to_owned(), ordinal };
        let log = self.fixture.file("strace");
        let mut program = strace::command(&log, Some(&point));
        // The tracer runs as a detached child, so that the child process of the test is catalogd.
        program.extend(["-D", env!("CARGO_BIN_EXE_catalogd")].map(str::to_owned));
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        self.catalogd = Catalogd::launch(&self.fixture, "pod", &program, &STANDALONE);
        eventually("killed", async || self.catalogd.ended()).await;
        self.places.insert(format!("start, unlinkat {ordinal}"));
        self.recover().await;
    }

    /// Kills the process at a system call. If the process does not reach the call, it continues.
    async fn kill_at(&mut self, point: &strace::Point) {
        self.publish().await;
        let trace = Strace::attach(self.catalogd.id(), &self.fixture.file("strace"), Some(point));
        self.fixture.refresh("cat").await;
        let digest = self.digest.clone();
        let killed = eventually("killed or done", async || {
            if self.catalogd.ended().is_some() {
                return Some(true);
            }
            let catalog = self.fixture.catalogs().get("cat").await.unwrap();
            fixture::resolved(&catalog).ends_with(&digest).then_some(false)
        })
        .await;
        let trace = trace.finish();
        if killed || self.catalogd.ended().is_some() {
            self.places.extend(trace.killed_at(&self.fixture.cache("pod"), point));
            self.recover().await;
        } else {
            self.converged().await;
        }
    }
}

// kill -9 during download, unpack, index write and swap
// Case operations-a60
#[tokio::test(flavor = "multi_thread")]
async fn content_survives_kill_at_any_point() {
    let Some(_) = olm_require::program("strace", "strace") else { return };
    let mut killing = CrashTest::start().await;
    let begun = Instant::now();
    for (request, bytes) in [
        ("GET /v2/a/cat/manifests/", 0),
        ("GET /v2/a/cat/manifests/", 100),
        ("GET /v2/a/cat/blobs/", 0),
        ("GET /v2/a/cat/blobs/LAYER", 0),
        ("GET /v2/a/cat/blobs/LAYER", 20_000),
    ] {
        killing.kill_while_downloading(request, bytes).await;
    }

    for ordinal in 1..=3 {
        killing.kill_while_cleaning(ordinal).await;
    }

    // The system calls of a complete update.
    killing.publish().await;
    let trace = Strace::attach(killing.catalogd.id(), &killing.fixture.file("strace"), None);
    killing.fixture.refresh("cat").await;
    killing.converged().await;
    let calls = trace.finish().calls_below(&killing.fixture.cache("pod"));
    for expect in ["openat", "write", "rename", "fdatasync", "fsync", "mkdir", "unlink"] {
        assert!(calls.iter().any(|(point, _)| point.call.starts_with(expect)), "no {expect} in {calls:?}");
    }
    for point in points(calls) {
        killing.kill_at(&point).await;
    }
    println!("{} places in {:?}:", killing.places.len(), begun.elapsed());
    killing.places.iter().for_each(|place| println!("  {place}"));
    assert!(killing.places.len() >= PLACES, "only {} places", killing.places.len());
}
