//! Images as one file: an OCI image layout in a tar, as `ctr images import` and `skopeo` read it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use bytes::Bytes;

use crate::{Image, ImageIndex, PackError, layout};

/// Writes `image` as an OCI archive under `name` (`registry/repository:tag`), the name under which a container
/// runtime imports it.
///
/// # Errors
/// Writing to `out` failed.
pub fn write_archive(image: &Image, name: &str, out: impl Write) -> Result<(), PackError> {
    write(layout::files(image, Some(name))?, out)
}

/// Writes `index` and its images as an OCI archive under `name`, see [`write_archive`].
///
/// # Errors
/// Writing to `out` failed.
pub fn write_index_archive(index: &ImageIndex, name: &str, out: impl Write) -> Result<(), PackError> {
    write(index.layout_files(name)?, out)
}

fn write(files: BTreeMap<String, Bytes>, out: impl Write) -> Result<(), PackError> {
    let mut tar = tar::Builder::new(out);
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, Path::new(&path), &content[..])
            .map_err(|cause| PackError::Archive { path, cause })?;
    }
    tar.into_inner()
        .and_then(|mut out| out.flush())
        .map_err(|cause| PackError::Archive { path: "the end".to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::digest_of;

    #[test]
    fn archive_names_image_and_contains_every_blob() {
        let image = Image::catalog(&BTreeMap::from([("x".to_owned(), b"y".to_vec())])).unwrap();
        let mut bytes = Vec::new();
        write_archive(&image, "example.com/olm/cat:dev", &mut bytes).unwrap();

        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(path, content);
        }
        let index: serde_json::Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let manifest = &index["manifests"][0];
        assert_eq!(manifest["annotations"]["io.containerd.image.name"], "example.com/olm/cat:dev");
        assert_eq!(manifest["annotations"]["org.opencontainers.image.ref.name"], "dev");
        assert_eq!(manifest["digest"], image.digest());
        for (path, content) in files.iter().filter(|(path, _)| path.starts_with("blobs/")) {
            assert_eq!(format!("blobs/{}", digest_of(content).replace(':', "/")), *path);
        }
        assert_eq!(files.len(), 5, "layout, index, layer, configuration, manifest");
    }
}
