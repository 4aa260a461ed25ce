//! Images as one file: an OCI image layout in a tar, as `ctr images import` and `skopeo` read it.

use std::io::Write;

use anyhow::Result;
use bytes::Bytes;
use oci_distribution::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE};
use serde_json::json;

use crate::{Image, digest_of};

/// Writes `image` as an OCI archive under `name` (`registry/repository:tag`), the name that a container runtime gives it
/// on import.
///
/// # Errors
/// Writing to `out` failed.
pub fn write_archive(image: &Image, name: &str, out: impl Write) -> Result<()> {
    let mut annotations = json!({ "io.containerd.image.name": name });
    if let Some((_, tag)) = name.rsplit_once(':') {
        annotations["org.opencontainers.image.ref.name"] = json!(tag);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE,
        "manifests": [{
            "mediaType": OCI_IMAGE_MEDIA_TYPE,
            "digest": image.digest(),
            "size": image.manifest.len(),
            "annotations": annotations,
        }],
    });
    let mut tar = tar::Builder::new(out);
    append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut tar, "index.json", &serde_json::to_vec(&index)?)?;
    let mut blobs: Vec<(String, &Bytes)> = image
        .blobs()
        .chain([&image.manifest])
        .map(|blob| (digest_of(blob).replace(':', "/"), blob))
        .collect();
    blobs.sort_unstable();
    blobs.dedup();
    for (path, blob) in blobs {
        append(&mut tar, &format!("blobs/{path}"), blob)?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn append(tar: &mut tar::Builder<impl Write>, path: &str, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    Ok(tar.append_data(&mut header, path, content)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    #[test]
    fn archive_names_the_image_and_holds_every_blob() {
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
