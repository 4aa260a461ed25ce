//! Images as a folder: an OCI image layout, as `skopeo copy oci:…` and `oras` read it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use bytes::Bytes;
use oci_distribution::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciImageIndex};
use serde_json::json;

use crate::files::{file_error, read, unusable};
use crate::{Image, PackError, digest_of};

/// File that identifies an OCI image layout.
pub(crate) const MARK: &str = "oci-layout";
const VERSION: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
pub(crate) const INDEX: &str = "index.json";
pub(crate) const BLOBS: &str = "blobs/sha256";
/// Largest index, manifest or configuration that is read, in bytes.
pub(crate) const MAX_JSON: u64 = 4 << 20;

/// `true` if `folder` is an OCI image layout rather than a catalog.
pub fn is_layout(folder: &Path) -> bool {
    folder.join(MARK).is_file()
}

/// All files of a layout that contains `image` under `name`, by path.
pub(crate) fn files(image: &Image, name: Option<&str>) -> Result<BTreeMap<String, Bytes>, PackError> {
    files_of(OCI_IMAGE_MEDIA_TYPE, &image.manifest, image.blobs(), name)
}

/// All files of a layout with `manifest` under `name` and the `blobs` that it needs, by path.
pub(crate) fn files_of<'a>(
    media_type: &str,
    manifest: &'a Bytes,
    blobs: impl Iterator<Item = &'a Bytes>,
    name: Option<&str>,
) -> Result<BTreeMap<String, Bytes>, PackError> {
    let mut entry = json!({
        "mediaType": media_type,
        "digest": digest_of(manifest),
        "size": manifest.len(),
    });
    if let Some(name) = name {
        // The full name is for imports into containerd. The specification of the layout only knows the tag.
        entry["annotations"]["io.containerd.image.name"] = json!(name);
        if let Some((_, tag)) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            entry["annotations"]["org.opencontainers.image.ref.name"] = json!(tag);
        }
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE,
        "manifests": [entry],
    });
    let mut files = BTreeMap::from([
        (MARK.to_owned(), Bytes::from_static(VERSION.as_bytes())),
        (INDEX.to_owned(), serde_json::to_vec(&index)?.into()),
    ]);
    for blob in blobs.chain([manifest]) {
        files.insert(format!("blobs/{}", digest_of(blob).replace(':', "/")), blob.clone());
    }
    Ok(files)
}

/// Writes `image` as the only one of the layout in `folder`, which is created if missing. `name`
/// (`registry/repository:tag`) is the name that tools display. The previous image of the layout remains readable
/// until the new one is complete. Then its blobs are removed.
///
/// # Errors
/// `folder` contains something else than a layout or several images, or cannot be written.
pub fn write_layout(image: &Image, name: Option<&str>, folder: &Path) -> Result<(), PackError> {
    let blobs = folder.join(BLOBS);
    let empty = match fs::read_dir(folder) {
        Ok(mut listing) => listing.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(cause) => return Err(file_error("read", folder, cause)),
    };
    if !empty && !is_layout(folder) {
        let why = "the folder is neither empty nor an OCI image layout; nothing was written";
        return Err(unusable(folder, why));
    }
    check_replaceable(folder)?;
    let files = files(image, name)?;
    for (path, content) in in_order(&files) {
        write_file(folder, path, content)?;
    }
    let listing = fs::read_dir(&blobs).map_err(|cause| file_error("read", &blobs, cause))?;
    for entry in listing {
        let entry = entry.map_err(|cause| file_error("read", &blobs, cause))?;
        let kept =
            entry.file_name().to_str().is_some_and(|hex| files.contains_key(&format!("{BLOBS}/{hex}")));
        if !kept {
            fs::remove_file(entry.path()).map_err(|cause| file_error("remove", &entry.path(), cause))?;
        }
    }
    Ok(())
}

/// Fails if the layout in `folder` contains several images, of which all but the new one would be lost. An
/// unreadable index does not prevent the replacement.
fn check_replaceable(folder: &Path) -> Result<(), PackError> {
    let path = folder.join(INDEX);
    let index = read(&path, MAX_JSON).map(|json| serde_json::from_slice::<OciImageIndex>(&json));
    match index.and_then(|index| Ok(index?.manifests.len())) {
        Ok(count) if count > 1 => {
            let why = format!("the layout holds {count} images, which would be lost; nothing was written");
            Err(unusable(&path, &why))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Write order. `oci-layout` comes first, so that an incomplete folder can be written again. The index comes last,
/// so that the folder keeps its previous image until then.
fn in_order(files: &BTreeMap<String, Bytes>) -> Vec<(&str, &Bytes)> {
    let mut files: Vec<_> = files.iter().map(|(path, content)| (path.as_str(), content)).collect();
    files.sort_by_key(|(path, _)| (*path != MARK, *path == INDEX));
    files
}

/// Writes a file of the layout atomically.
fn write_file(folder: &Path, path: &str, content: &[u8]) -> Result<(), PackError> {
    let target = folder.join(path);
    let failed = |cause| file_error("write", &target, cause);
    let parent = target.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(|cause| file_error("create", parent, cause))?;
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    // Temporary files are readable only for their owner.
    olm_os::set_mode(file.path(), 0o644).map_err(failed)?;
    file.persist(&target).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::read_layout;

    fn image(text: &str) -> Image {
        Image::catalog(&BTreeMap::from([("index.yaml".to_owned(), text.into())])).unwrap()
    }

    fn blobs(folder: &Path) -> BTreeSet<String> {
        let listing = fs::read_dir(folder.join(BLOBS)).unwrap();
        listing.map(|entry| format!("sha256:{}", entry.unwrap().file_name().to_str().unwrap())).collect()
    }

    fn digests(image: &Image) -> BTreeSet<String> {
        image.blobs().chain([&image.manifest]).map(|blob| digest_of(blob)).collect()
    }

    #[test]
    fn layout_round_trips() {
        let folder = tempfile::TempDir::new().unwrap();
        let layout = folder.path().join("new/layout");
        write_layout(&image("schema: x"), Some("r.example:5000/a/cat:v1"), &layout).unwrap();
        let index: serde_json::Value =
            serde_json::from_slice(&fs::read(layout.join(INDEX)).unwrap()).unwrap();
        assert_eq!(
            index["manifests"][0]["annotations"],
            json!({
                "io.containerd.image.name": "r.example:5000/a/cat:v1",
                "org.opencontainers.image.ref.name": "v1",
            })
        );
        let back = read_layout(&layout).unwrap();
        assert_eq!(back.digest(), image("schema: x").digest());
        assert_eq!(digests(&back), digests(&image("schema: x")));
        assert_eq!(back.layers[0].diff_id, image("schema: x").layers[0].diff_id);
    }

    #[test]
    fn rewritten_layout_contains_only_new_image() {
        let folder = tempfile::TempDir::new().unwrap();
        write_layout(&image("schema: old"), None, folder.path()).unwrap();
        write_layout(&image("schema: new"), None, folder.path()).unwrap();
        assert_eq!(read_layout(folder.path()).unwrap().digest(), image("schema: new").digest());
        assert_eq!(blobs(folder.path()), digests(&image("schema: new")));
    }

    #[test]
    fn folder_with_other_files_is_not_written() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::write(folder.path().join("index.yaml"), "mine").unwrap();
        let error = write_layout(&image("schema: x"), None, folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("neither empty nor an OCI image layout; nothing was written"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn incomplete_layout_can_be_written_again() {
        let files = files(&image("schema: x"), None).unwrap();
        let order: Vec<_> = in_order(&files).into_iter().map(|(path, _)| path).collect();
        assert_eq!(order.len(), files.len());
        assert_eq!((order.first(), order.last()), (Some(&MARK), Some(&INDEX)));
        let folder = tempfile::TempDir::new().unwrap();
        write_file(folder.path(), MARK, &files[MARK]).unwrap();
        write_layout(&image("schema: x"), None, folder.path()).unwrap();
        assert_eq!(read_layout(folder.path()).unwrap().digest(), image("schema: x").digest());
    }

    #[test]
    fn layout_with_multiple_images_is_not_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        write_layout(&image("schema: x"), None, folder.path()).unwrap();
        let index = folder.path().join(INDEX);
        let mut two: serde_json::Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
        let entry = two["manifests"][0].clone();
        two["manifests"].as_array_mut().unwrap().push(entry);
        fs::write(&index, two.to_string()).unwrap();
        let error = write_layout(&image("schema: y"), None, folder.path()).unwrap_err().to_string();
        let expected = "index.json: the layout holds 2 images, which would be lost; nothing was written";
        assert!(error.ends_with(expected), "{error}");
        assert_eq!(blobs(folder.path()), digests(&image("schema: x")));
    }

    /// Modification of a layout, and the end of the resulting error.
    type Case = (fn(&Path, &Image), &'static str);

    #[test]
    fn damaged_layout_is_rejected_with_its_path() {
        let cases: [Case; 6] = [
            (|folder, _| fs::remove_file(folder.join(MARK)).unwrap(), "the file oci-layout is missing"),
            (
                |folder, _| fs::write(folder.join(INDEX), "{").unwrap(),
                "EOF while parsing an object at line 1 column 1",
            ),
            (
                |folder, _| fs::write(folder.join(INDEX), r#"{"schemaVersion":2,"manifests":[]}"#).unwrap(),
                "index.json: the layout holds 0 images, expected one",
            ),
            (
                |folder, _| {
                    let text = fs::read_to_string(folder.join(INDEX)).unwrap();
                    let start = text.find("sha256:").unwrap();
                    fs::write(folder.join(INDEX), text.replace(&text[start..start + 71], "sha256:../../x"))
                        .unwrap();
                },
                "digest \"sha256:../../x\" is not sha256:<64 hex digits>",
            ),
            (
                |folder, image| {
                    let layer = digest_of(&image.layers[0].blob).replace("sha256:", "");
                    fs::write(folder.join(BLOBS).join(layer), "changed").unwrap();
                },
                "the content has digest sha256:d67e2e944994496c8d8ec76eed0cf9f09679448d584b532bebf941852a37f5ed",
            ),
            (
                |folder, image| {
                    let config = digest_of(&image.config).replace("sha256:", "");
                    fs::remove_file(folder.join(BLOBS).join(config)).unwrap();
                },
                "No such file or directory (os error 2)",
            ),
        ];
        for (damage, expected) in cases {
            let folder = tempfile::TempDir::new().unwrap();
            let image = image("schema: x");
            write_layout(&image, None, folder.path()).unwrap();
            damage(folder.path(), &image);
            let error = read_layout(folder.path()).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
            assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
        }
    }
}
