//! The console as a process with a browser, axe-core, and the pictures of the documents.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use serde_json::{Value, json};

use super::browser::{Browser, Screen};
use crate::fixture::{olm_in, tests};

/// Largest picture of a document, in bytes.
const PICTURE_LIMIT: usize = 120_000;

/// Process that ends when the value is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Browser with a session of a console.
pub(crate) struct Visit {
    pub(crate) browser: Browser,
    /// Scheme, host and port of the console.
    origin: String,
    _console: Process,
}

impl Visit {
    /// Console with a directory as its catalog. `None` if the machine has no browser.
    pub(crate) async fn of_catalog(name: &str, folder: &Path) -> Option<Self> {
        let source = format!("{name}={}", folder.display());
        Self::begin(olm_in(folder, &["console", "--no-open", "--catalog", &source])).await
    }

    /// Console with the catalog of the pictures.
    pub(crate) async fn of_demo() -> Option<Self> {
        Self::of_catalog("demo", &tests("commands/console/data/catalog")).await
    }

    /// Console that `command` starts.
    pub(crate) async fn begin(mut command: Command) -> Option<Self> {
        let browser = Browser::start().await?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut login = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut login).unwrap();
        let (origin, _) = login.split_once("/login").expect("an address of the console");
        let visit = Self { browser, origin: origin.to_owned(), _console: Process(child) };
        visit.browser.open(login.trim()).await;
        visit.browser.until("document.querySelector('#results .count') && location.pathname === '/'").await;
        Some(visit)
    }

    /// Opens a page of the console.
    pub(crate) async fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.origin)).await;
        self.browser.until("document.querySelector('h1')").await;
    }

    /// Waits until the address has this path and query.
    pub(crate) async fn until_at(&self, path: &str) {
        let condition =
            format!("location.pathname + location.search === {path:?} && document.querySelector('h1')");
        self.browser.until(&condition).await;
    }

    /// Asserts that the page has no serious issue in both themes and on a phone, where it does not scroll sideways.
    pub(crate) async fn assert_accessible(&self, page: &str) {
        for (screen, scheme) in [(Screen::Wide, "light"), (Screen::Wide, "dark"), (Screen::Narrow, "dark")] {
            self.browser.screen(screen).await;
            self.browser.media("screen", scheme).await;
            let found = self.browser.serious_issues(axe()).await;
            assert_eq!(found, json!([]), "{page} {screen:?} {scheme}");
        }
        let width = self.browser.value("document.documentElement.scrollWidth").await;
        assert!(width.as_u64() <= Some(360), "{page} is {width} pixels wide");
        self.browser.screen(Screen::Wide).await;
        self.browser.media("screen", "light").await;
    }

    /// Compares the existence of a picture in the documents. `OLM_PICTURES_WRITE=1` writes it: its pixels depend on the
    /// fonts of the machine.
    pub(crate) async fn picture(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tasks");
        let file = folder.join("images").join(format!("console-{name}.png"));
        if std::env::var_os("OLM_PICTURES_WRITE").is_some() {
            let taken = self.browser.devtools("Page.captureScreenshot", json!({"format": "png"})).await;
            let taken = BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
            std::fs::create_dir_all(folder.join("images")).unwrap();
            std::fs::write(&file, compressed(&taken)).unwrap();
        }
        let size = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len();
        assert!(size <= PICTURE_LIMIT, "{} has {size} bytes", file.display());
        let document = std::fs::read_to_string(folder.join("console.md")).unwrap();
        assert!(
            document.contains(&format!("(images/console-{name}.png)")),
            "console.md does not show {name}"
        );
    }

    /// Ends the visit. Asserts that the browser requested nothing from other hosts, and reported no error except those
    /// that contain one of `expected`.
    pub(crate) async fn finish(self, expected: &[&str]) {
        for record in self.browser.log("performance").await {
            let event: Value = serde_json::from_str(record["message"].as_str().unwrap()).unwrap();
            let event = &event["message"];
            let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
            if event["method"] == "Network.requestWillBeSent" {
                let is_local = url.starts_with(&format!("{}/", self.origin)) || url.starts_with("data:");
                assert!(is_local, "the browser requested {url}");
            }
        }
        for record in self.browser.log("browser").await {
            let text = record["message"].as_str().unwrap();
            let is_error = record["level"] == "SEVERE" || text.contains("Content Security Policy");
            let is_expected = expected.iter().any(|part| text.contains(part));
            assert!(!is_error || is_expected, "the browser reported: {record}");
        }
        self.browser.quit().await;
    }
}

/// The same picture in fewer bytes.
fn compressed(png: &[u8]) -> Vec<u8> {
    let picture = image::load_from_memory(png).unwrap().into_rgb8();
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Best, FilterType::Adaptive);
    picture.write_with_encoder(encoder).unwrap();
    bytes
}

/// Source of axe-core, which npm installs by the lock file into the folder of build results.
fn axe() -> &'static str {
    static AXE: OnceLock<String> = OnceLock::new();
    AXE.get_or_init(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let folder = cache.expect("HOME").join("olm/axe");
        let script = folder.join("node_modules/axe-core/axe.min.js");
        let source = |name| std::fs::read(tests("commands/console/axe").join(name)).unwrap();
        let lock = source("package-lock.json");
        let installed = folder.join("installed.json");
        if std::fs::read(&installed).ok() != Some(lock.clone()) {
            std::fs::create_dir_all(&folder).unwrap();
            for name in ["package.json", "package-lock.json"] {
                std::fs::write(folder.join(name), source(name)).unwrap();
            }
            let mut npm = Command::new("npm");
            npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder);
            let ran = npm.output().expect("npm");
            assert!(ran.status.success(), "npm ci: {}", String::from_utf8_lossy(&ran.stderr));
            std::fs::write(&installed, lock).unwrap();
        }
        std::fs::read_to_string(script).unwrap()
    })
}
