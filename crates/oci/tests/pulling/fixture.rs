//! Test fixture: a registry, a puller that trusts it, and images built from single entries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use olm_image::registry::Registry;
use olm_image::{CATALOG_LABEL, Image, Layer, Runtime};
use olm_oci::{
    CanonicalRef, Config, CredentialSource, ImageLimits, Proxies, PullError, PulledFolder, Puller, Reference,
    RegistryPaths, catalog_folder,
};
use tempfile::TempDir;

pub(crate) struct Fixture {
    pub(crate) registry: Registry,
    pub(crate) puller: Puller,
    folder: TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let registry = Registry::start().await.unwrap();
        let folder = TempDir::new().unwrap();
        for name in ["cas", "work"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        registry.write_ca(&folder.path().join("cas")).unwrap();
        let mut config = Config::new(ImageLimits::CATALOG);
        config.cas_dir = Some(folder.path().join("cas"));
        config.credentials = CredentialSource::File(folder.path().join("auth.json"));
        config.paths = RegistryPaths {
            registries_conf: Some(folder.path().join("registries.conf")),
            ..RegistryPaths::default()
        };
        config.proxies = Proxies::default();
        std::fs::write(folder.path().join("registries.conf"), "").unwrap();
        config.retry.first_delay = Duration::from_millis(1);
        change(&mut config);
        Self { registry, puller: Puller::new(config), folder }
    }

    pub(crate) fn cas_dir(&self) -> PathBuf {
        self.folder.path().join("cas")
    }

    pub(crate) fn auth_file(&self) -> PathBuf {
        self.folder.path().join("auth.json")
    }

    pub(crate) fn write_auth(&self, text: &str) {
        std::fs::write(self.auth_file(), text).unwrap();
    }

    pub(crate) fn registries_conf(&self) -> PathBuf {
        self.folder.path().join("registries.conf")
    }

    pub(crate) fn write_registries(&self, text: &str) {
        std::fs::write(self.registries_conf(), text).unwrap();
    }

    /// Makes the puller trust another registry too.
    pub(crate) fn trust(&self, registry: &Registry) {
        std::fs::write(self.cas_dir().join(registry.host()), registry.ca_pem()).unwrap();
    }

    pub(crate) fn destination(&self) -> PathBuf {
        self.folder.path().join("work/out")
    }

    pub(crate) fn reference(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.registry.host()).parse().unwrap()
    }

    pub(crate) async fn try_resolve(&self, rest: &str) -> Result<CanonicalRef, PullError> {
        self.puller.resolve(&self.reference(rest)).await
    }

    pub(crate) async fn resolve(&self, rest: &str) -> CanonicalRef {
        self.try_resolve(rest).await.unwrap()
    }

    pub(crate) async fn pull(&self, image: &CanonicalRef) -> Result<PulledFolder, PullError> {
        self.pull_to("out", image).await
    }

    pub(crate) async fn pull_to(&self, name: &str, image: &CanonicalRef) -> Result<PulledFolder, PullError> {
        let destination = self.folder.path().join("work").join(name);
        self.puller.pull_folder(image, catalog_folder, &destination).await.map(|(folder, _)| folder)
    }

    /// Stores an image of `layers` with content in `configs` and pulls it by tag. Fails with the text of the error.
    pub(crate) async fn pull_layers(&self, layers: &[Layer]) -> Result<PulledFolder, String> {
        self.registry.add_image("a/cat", "v1", &image(layers, "/configs"));
        self.pull(&self.resolve("a/cat:v1").await).await.map_err(|error| error.to_string())
    }

    /// Names in the folder of destinations, where nothing else may remain.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let listing = std::fs::read_dir(self.folder.path().join("work")).unwrap();
        let mut names: Vec<_> =
            listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// `path=content` of each pulled file and `path/` of each empty folder, sorted.
    pub(crate) fn listing(&self) -> Vec<String> {
        let root = self.destination();
        let mut lines = Vec::new();
        list(&root, &root, &mut lines);
        lines.sort();
        lines
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = olm_oci::remove_folder(&self.destination());
    }
}

fn list(root: &Path, folder: &Path, lines: &mut Vec<String>) {
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).collect();
    if entries.is_empty() {
        lines.push(format!("{}/", folder.strip_prefix(root).unwrap().display()));
    }
    for entry in entries {
        if entry.file_type().unwrap().is_dir() {
            list(root, &entry.path(), lines);
        } else {
            assert!(
                entry.file_type().unwrap().is_file(),
                "{} is neither file nor folder",
                entry.path().display()
            );
            let content = std::fs::read_to_string(entry.path()).unwrap();
            lines.push(format!("{}={content}", entry.path().strip_prefix(root).unwrap().display()));
        }
    }
}

/// Archive entry with arbitrary content.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) link: String,
    pub(crate) content: Vec<u8>,
}

pub(crate) fn entry(name: &str, kind: u8, link: &str) -> Entry {
    Entry { name: name.to_owned(), kind, link: link.to_owned(), content: Vec::new() }
}

pub(crate) fn file(name: &str, content: &str) -> Entry {
    Entry { content: content.into(), ..entry(name, b'0', "") }
}

pub(crate) fn dir(name: &str) -> Entry {
    entry(name, b'5', "")
}

pub(crate) fn link(name: &str, target: &str) -> Entry {
    entry(name, b'2', target)
}

pub(crate) fn hard_link(name: &str, target: &str) -> Entry {
    entry(name, b'1', target)
}

/// Tar with names and targets exactly as given.
pub(crate) fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        let old = header.as_old_mut();
        old.name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
        old.linkname[..entry.link.len()].copy_from_slice(entry.link.as_bytes());
        old.linkflag = [entry.kind];
        header.set_mode(0o4777);
        header.set_size(entry.content.len() as u64);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&entry.content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

pub(crate) fn tar_layer(entries: &[Entry]) -> Layer {
    Layer::from_tar(&tar(entries)).unwrap()
}

/// Layer with these bytes, not compressed again.
pub(crate) fn stored(blob: &[u8]) -> Layer {
    Layer { blob: blob.to_vec().into(), diff_id: olm_image::digest_of(blob) }
}

pub(crate) fn image(layers: &[Layer], folder: &str) -> Image {
    let labels = BTreeMap::from([(CATALOG_LABEL.to_owned(), folder.to_owned())]);
    Image::new(layers.to_vec(), &labels, &Runtime::default()).unwrap()
}

pub(crate) fn catalog() -> Image {
    image(&[tar_layer(&[file("configs/index.yaml", "schema: olm.package")])], "/configs")
}
