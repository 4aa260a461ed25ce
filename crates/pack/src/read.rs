//! Images from disk: an OCI image layout, as a folder or as one tar archive, and the archive of `docker save`.
//!
//! Tools write one image in several forms: directly in `index.json`, as an index of platforms with attestations
//! (`docker buildx build -o type=oci`), under several tags, or as an artifact whose configuration is empty
//! (`oras push`). A catalog and a bundle are the same on each platform.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE,
    OCI_IMAGE_MEDIA_TYPE,
};
use serde::Deserialize;

use crate::docker_archive;
use crate::files::{Files, is_archive, unusable};
use crate::layout::{BLOBS, INDEX, MARK, MAX_JSON, is_layout};
use crate::{Image, Layer, PackError, digest_of};

/// Configuration of an artifact, which has none.
const EMPTY_CONFIG: &str = "application/vnd.oci.empty.v1+json";
/// Largest layer that is read, in bytes.
pub(crate) const MAX_LAYER: u64 = 2 << 30;
/// Deepest nesting of indexes.
const MAX_DEPTH: usize = 4;
/// Annotation with the tag of an image in a layout.
const TAG: &str = "org.opencontainers.image.ref.name";
/// Annotation of an attestation.
const ATTACHED: &str = "vnd.docker.reference.type";

/// `true` if `path` is an OCI image layout, or a tar archive of images.
pub fn is_image(path: &Path) -> bool {
    is_layout(path) || is_archive(path)
}

/// Reads the image at `path`: of several platforms, that of this machine, else the first one. Every part is checked
/// against its digest.
///
/// # Errors
/// There is no image or more than one, or a part is missing, invalid or too large. The message names the tags.
pub fn read_layout(path: &Path) -> Result<Image, PackError> {
    read(path, false)
}

/// [`read_layout`] for an image that is published, so that no platform may be lost.
///
/// # Errors
/// Those of [`read_layout`], or the image is one of several platforms.
pub fn read_whole_layout(path: &Path) -> Result<Image, PackError> {
    read(path, true)
}

fn read(path: &Path, is_whole: bool) -> Result<Image, PackError> {
    let files = Files::open(path)?;
    if path.is_dir() && !files.has(MARK) {
        return Err(unusable(path, &format!("not an OCI image layout: the file {MARK} is missing")));
    }
    of_files(&files, path, is_whole)
}

pub(crate) fn of_files(files: &Files, path: &Path, is_whole: bool) -> Result<Image, PackError> {
    if path.is_dir() || files.has(INDEX) {
        return Layout { files }.image(is_whole);
    }
    if files.has(docker_archive::INDEX) {
        return docker_archive::image(files);
    }
    let known = docker_archive::INDEX;
    Err(unusable(path, &format!("not an archive of images: it has neither {INDEX} nor {known}")))
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    artifact_type: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

#[derive(Debug, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// Fields of an image configuration that [`Image`] needs.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Configuration {
    #[serde(default)]
    pub(crate) rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct RootFs {
    #[serde(default)]
    pub(crate) diff_ids: Vec<String>,
}

impl Descriptor {
    fn tag(&self) -> Option<&str> {
        self.annotations.as_ref()?.get(TAG).map(String::as_str)
    }

    /// Reports whether this is something about an image, such as an attestation or a signature.
    fn is_attachment(&self) -> bool {
        let has_type =
            self.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(ATTACHED));
        let is_unknown = self.platform.as_ref().is_some_and(|platform| platform.os == "unknown");
        has_type || is_unknown
    }

    /// Reports whether the tag or type is that of a signature or another artifact.
    fn may_be_artifact(&self) -> bool {
        let ends = [".sig", ".att", ".sbom"];
        self.artifact_type.is_some()
            || self.tag().is_some_and(|tag| ends.iter().any(|end| tag.ends_with(end)))
    }

    /// Text that distinguishes the image from others of a layout.
    fn shown(&self) -> String {
        let digest: String = self.digest.chars().take(19).collect();
        self.tag().map_or_else(|| digest.clone(), |tag| format!("{tag} ({digest})"))
    }
}

struct Layout<'a> {
    files: &'a Files,
}

impl Layout<'_> {
    fn image(&self, is_whole: bool) -> Result<Image, PackError> {
        let index_path = self.files.path(INDEX);
        let index: Index = self.parse(INDEX, &self.files.read(INDEX, MAX_JSON)?)?;
        let mut images: Vec<Descriptor> = without_attachments(index.manifests);
        images.sort_by_key(|image| image.tag().map(str::to_owned));
        let mut seen = BTreeSet::new();
        images.retain(|image| seen.insert(image.digest.clone()));
        let mut platforms = Vec::new();
        match images.as_slice() {
            [image] => self.platforms(image, MAX_DEPTH, &mut platforms)?,
            [] => return Err(unusable(&index_path, "the layout holds 0 images, expected one")),
            images if are_platforms(images) => platforms = images.to_vec(),
            images => {
                let shown: Vec<String> = images.iter().map(Descriptor::shown).collect();
                let why = format!(
                    "the layout holds {} images, expected one: {}; copy one of them to a layout of its own, such as with \
                     `skopeo copy oci:LAYOUT:TAG oci:NEW:TAG`",
                    images.len(),
                    shown.join(", ")
                );
                return Err(unusable(&index_path, &why));
            }
        }
        let digests: BTreeSet<&str> = platforms.iter().map(|image| image.digest.as_str()).collect();
        if is_whole && digests.len() > 1 {
            let why = format!(
                "the image is one of {} platforms, which this command does not push: use `skopeo copy --all`",
                digests.len()
            );
            return Err(unusable(&index_path, &why));
        }
        let chosen = choose(&platforms).ok_or_else(|| unusable(&index_path, "the index has no image"))?;
        self.manifest(chosen)
    }

    /// Adds the manifests of an image, without attestations.
    fn platforms(
        &self,
        image: &Descriptor,
        depth: usize,
        found: &mut Vec<Descriptor>,
    ) -> Result<(), PackError> {
        match image.media_type.as_str() {
            OCI_IMAGE_MEDIA_TYPE | IMAGE_MANIFEST_MEDIA_TYPE => found.push(image.clone()),
            OCI_IMAGE_INDEX_MEDIA_TYPE | IMAGE_MANIFEST_LIST_MEDIA_TYPE if depth > 0 => {
                let (name, json) = self.blob(&image.digest, MAX_JSON)?;
                let index: Index = self.parse(&name, &json)?;
                for image in without_attachments(index.manifests) {
                    self.platforms(&image, depth - 1, found)?;
                }
            }
            other => {
                let why = format!("the image is of type {other:?}, expected {OCI_IMAGE_MEDIA_TYPE:?}");
                return Err(unusable(&self.files.path(INDEX), &why));
            }
        }
        Ok(())
    }

    fn manifest(&self, image: &Descriptor) -> Result<Image, PackError> {
        let (name, manifest) = self.blob(&image.digest, MAX_JSON)?;
        let parsed: Manifest = self.parse(&name, &manifest)?;
        let config = match self.blob(&parsed.config.digest, MAX_JSON) {
            // Its content is known.
            Err(_) if parsed.config.media_type == EMPTY_CONFIG => Bytes::from_static(b"{}"),
            config => config?.1,
        };
        // As for an image from a registry, the digests of the uncompressed layers are not needed.
        let configuration: Configuration = serde_json::from_slice(&config).unwrap_or_default();
        let diff_ids = configuration.rootfs.diff_ids;
        let layers = parsed.layers.iter().enumerate().map(|(index, layer)| {
            let diff_id = diff_ids.get(index).cloned().unwrap_or_default();
            self.blob(&layer.digest, MAX_LAYER).map(|(_, blob)| Layer { blob, diff_id })
        });
        Ok(Image { layers: layers.collect::<Result<_, _>>()?, config, manifest })
    }

    /// Name of the file of a blob, and its content.
    fn blob(&self, digest: &str, limit: u64) -> Result<(String, Bytes), PackError> {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            let why = format!("digest {digest:?} is not sha256:<64 hex digits>");
            return Err(unusable(&self.files.path(""), &why));
        }
        let name = format!("{BLOBS}/{hex}");
        let content = self.files.read(&name, limit)?;
        let actual = digest_of(&content);
        if actual != digest {
            return Err(unusable(&self.files.path(&name), &format!("the content has digest {actual}")));
        }
        Ok((name, content))
    }

    fn parse<T: for<'de> Deserialize<'de>>(&self, name: &str, json: &[u8]) -> Result<T, PackError> {
        parse(self.files, name, json)
    }
}

pub(crate) fn parse<T: for<'de> Deserialize<'de>>(
    files: &Files,
    name: &str,
    json: &[u8],
) -> Result<T, PackError> {
    serde_json::from_slice(json).map_err(|error| unusable(&files.path(name), &error.to_string()))
}

/// Entries of an index that are images. Artifacts are left out only if something else remains.
fn without_attachments(mut entries: Vec<Descriptor>) -> Vec<Descriptor> {
    entries.retain(|entry| !entry.is_attachment());
    if entries.iter().any(|entry| !entry.may_be_artifact()) {
        entries.retain(|entry| !entry.may_be_artifact());
    }
    entries
}

/// Reports whether the entries are one image for several platforms, without an index.
fn are_platforms(images: &[Descriptor]) -> bool {
    let tags: BTreeSet<Option<&str>> = images.iter().map(Descriptor::tag).collect();
    let platforms: Option<Vec<&Platform>> = images.iter().map(|image| image.platform.as_ref()).collect();
    let is_distinct = |platforms: Vec<&Platform>| {
        platforms.iter().enumerate().all(|(index, one)| !platforms[..index].contains(one))
    };
    tags.len() == 1 && platforms.is_some_and(is_distinct)
}

/// Manifest for this machine, else the first one.
fn choose(platforms: &[Descriptor]) -> Option<&Descriptor> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        same => same,
    };
    let is_own = |image: &&Descriptor| {
        image.platform.as_ref().is_some_and(|one| one.os == "linux" && one.architecture == architecture)
    };
    platforms.iter().find(is_own).or_else(|| platforms.first())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use oci_distribution::manifest::IMAGE_CONFIG_MEDIA_TYPE;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::{ImageIndex, Runtime, write_archive, write_layout};

    fn image(text: &str) -> Image {
        Image::catalog(&BTreeMap::from([("index.yaml".to_owned(), text.into())])).unwrap()
    }

    /// Layout with these entries in its index, and blobs.
    fn layout(entries: &[Value], blobs: &[&Bytes]) -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::create_dir_all(folder.path().join(BLOBS)).unwrap();
        fs::write(folder.path().join(MARK), "{}").unwrap();
        fs::write(folder.path().join(INDEX), json!({"schemaVersion": 2, "manifests": entries}).to_string())
            .unwrap();
        for blob in blobs {
            fs::write(folder.path().join("blobs").join(digest_of(blob).replace(':', "/")), blob).unwrap();
        }
        folder
    }

    fn entry(media_type: &str, blob: &[u8], more: &Value) -> Value {
        let mut entry = json!({"mediaType": media_type, "digest": digest_of(blob), "size": blob.len()});
        for (key, value) in more.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        entry
    }

    fn of_image(image: &Image, more: &Value) -> Value {
        entry(OCI_IMAGE_MEDIA_TYPE, &image.manifest, more)
    }

    fn platform(os: &str, architecture: &str) -> Value {
        json!({"platform": {"os": os, "architecture": architecture}})
    }

    fn tag(name: &str) -> Value {
        json!({"annotations": {TAG: name}})
    }

    fn all_blobs<'a>(images: &[&'a Image]) -> Vec<&'a Bytes> {
        images.iter().flat_map(|image| image.blobs().chain([&image.manifest])).collect()
    }

    #[test]
    fn index_is_followed_to_the_image_and_attestations_are_not() {
        let (one, other, attestation) = (image("a"), image("b"), image("attestation"));
        let attached = json!({"platform": {"os": "unknown", "architecture": "unknown"}, "annotations": {ATTACHED: "attestation-manifest"}});
        let index =
            |entries: &[Value]| Bytes::from(json!({"schemaVersion": 2, "manifests": entries}).to_string());
        let single = index(&[of_image(&one, &platform("linux", "s390x")), of_image(&attestation, &attached)]);
        let nested = index(&[entry(OCI_IMAGE_INDEX_MEDIA_TYPE, &single, &json!({}))]);
        for blob in [&single, &nested] {
            let mut blobs = all_blobs(&[&one]);
            blobs.extend([&single, &nested]);
            let folder = layout(&[entry(OCI_IMAGE_INDEX_MEDIA_TYPE, blob, &json!({}))], &blobs);
            assert_eq!(read_layout(folder.path()).unwrap().digest(), one.digest());
            assert_eq!(read_whole_layout(folder.path()).unwrap().digest(), one.digest());
        }
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let two =
            [of_image(&other, &platform("linux", "s390x")), of_image(&one, &platform("linux", machine))];
        let several = index(&two);
        let mut blobs = all_blobs(&[&one, &other]);
        blobs.push(&several);
        for entries in [&two[..], &[entry(IMAGE_MANIFEST_LIST_MEDIA_TYPE, &several, &json!({}))]] {
            let folder = layout(entries, &blobs);
            assert_eq!(read_layout(folder.path()).unwrap().digest(), one.digest());
            let error = read_whole_layout(folder.path()).unwrap_err().to_string();
            assert!(error.ends_with("the image is one of 2 platforms, which this command does not push: use `skopeo copy --all`"), "{error}");
        }
    }

    #[test]
    fn tags_of_one_image_are_one_image_and_several_images_are_named() {
        let (one, other) = (image("a"), image("b"));
        let blobs = all_blobs(&[&one, &other]);
        let folder = layout(&[of_image(&one, &tag("v1")), of_image(&one, &tag("latest"))], &blobs);
        assert_eq!(read_layout(folder.path()).unwrap().digest(), one.digest());
        let folder = layout(&[of_image(&one, &tag("v1")), of_image(&other, &tag("sha256-1.sig"))], &blobs);
        assert_eq!(read_layout(folder.path()).unwrap().digest(), one.digest());
        let folder = layout(&[of_image(&one, &tag("v2")), of_image(&other, &tag("v1"))], &blobs);
        let error = read_layout(folder.path()).unwrap_err().to_string();
        let shown = |image: &Image| image.digest()[..19].to_owned();
        let expected = format!(
            "the layout holds 2 images, expected one: v1 ({}), v2 ({}); copy one",
            shown(&other),
            shown(&one)
        );
        assert!(error.contains(&expected), "{error}");
    }

    #[test]
    fn artifact_with_empty_or_partial_configuration_is_read() {
        let image = image("a");
        let layer = &image.layers[0].blob;
        for (media_type, config, is_there) in [
            (EMPTY_CONFIG, "{}", true),
            (EMPTY_CONFIG, "{}", false),
            (IMAGE_CONFIG_MEDIA_TYPE, "{\"rootfs\": {\"diff_ids\": []}}", true),
            ("application/vnd.example.config", "[]", true),
        ] {
            let config = Bytes::from_static(config.as_bytes());
            let manifest = Bytes::from(
                json!({"schemaVersion": 2, "artifactType": "a/b", "config": entry(media_type, &config, &json!({})),
                    "layers": [entry("x", layer, &json!({}))]})
                .to_string(),
            );
            let mut blobs = vec![layer, &manifest];
            blobs.extend(is_there.then_some(&config));
            let more = json!({"artifactType": "a/b"});
            let folder = layout(&[entry(OCI_IMAGE_MEDIA_TYPE, &manifest, &more)], &blobs);
            let read = read_layout(folder.path()).unwrap();
            assert_eq!((read.layers.len(), &read.layers[0].blob, &read.config), (1, layer, &config));
        }
        let manifest = Bytes::from(json!({"config": entry(EMPTY_CONFIG, b"{}", &json!({}))}).to_string());
        let folder = layout(&[entry(OCI_IMAGE_MEDIA_TYPE, &manifest, &json!({}))], &[&manifest]);
        assert!(read_layout(folder.path()).unwrap().layers.is_empty());
    }

    #[test]
    fn archive_of_a_layout_or_of_docker_save_is_read() {
        let folder = TempDir::new().unwrap();
        let (image, path) = (image("a"), folder.path().join("image.tar"));
        write_archive(&image, "r.example/a:v1", fs::File::create(&path).unwrap()).unwrap();
        assert!(is_image(&path) && !is_image(folder.path()));
        assert_eq!(read_layout(&path).unwrap().digest(), image.digest());

        let save = |manifest: &Value| {
            let mut tar = tar::Builder::new(fs::File::create(&path).unwrap());
            let manifest = Bytes::from(manifest.to_string());
            for (name, content) in [
                ("./manifest.json", &manifest),
                ("c.json", &image.config),
                ("l/layer.tar", &image.layers[0].blob),
            ] {
                let mut header = tar::Header::new_ustar();
                header.set_size(content.len() as u64);
                tar.append_data(&mut header, name, &content[..]).unwrap();
            }
            tar.finish().unwrap();
        };
        let saved = json!({"Config": "c.json", "RepoTags": ["a:v1"], "Layers": ["l/layer.tar"]});
        save(&json!([saved]));
        let read = read_layout(&path).unwrap();
        assert_eq!(read.layers[0].blob, image.layers[0].blob);
        assert_eq!(read.layers[0].diff_id, image.layers[0].diff_id);
        assert_eq!(
            serde_json::from_slice::<Value>(&read.manifest).unwrap()["config"]["digest"],
            digest_of(&image.config)
        );
        save(&json!([saved, saved]));
        let error = read_layout(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("manifest.json: the archive holds 2 images, expected one: a:v1, a:v1"),
            "{error}"
        );
    }

    #[test]
    fn index_of_our_own_is_read_back() {
        let folder = TempDir::new().unwrap();
        let runtime =
            |architecture: &str| Runtime { architecture: architecture.to_owned(), ..Runtime::default() };
        let of = |architecture: &str| {
            (
                architecture.to_owned(),
                Image::new(Vec::new(), &BTreeMap::new(), &runtime(architecture)).unwrap(),
            )
        };
        let index = ImageIndex::new(BTreeMap::from(["amd64", "arm64"].map(of))).unwrap();
        let path = folder.path().join("index.tar");
        crate::write_index_archive(&index, "r.example/a:v1", fs::File::create(&path).unwrap()).unwrap();
        assert!(index.images.values().any(|image| read_layout(&path).unwrap().digest() == image.digest()));
        write_layout(&image("a"), None, &folder.path().join("layout")).unwrap();
        assert!(is_image(&folder.path().join("layout")));
    }
}
