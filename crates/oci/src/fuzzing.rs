//! Entry points for the fuzz targets: parsers of untrusted input that are not part of the public interface.

use std::path::Path;

use bytes::Bytes;
use oci_distribution::manifest::OciManifest;
use tokio::sync::mpsc;

use crate::fetch::{Hasher, LayerReader};
use crate::image;
use crate::registries::Registries;
use crate::store::MemoryStore;
use crate::tree::FolderFilter;
use crate::unpack::Unpacker;
use crate::{Digest, ImageLimits, ImagePlatform, Reference};

pub use crate::policy::fuzzing::{policy, registries_d, signature};

/// Parses a `registries.conf` and returns the sources of `image`.
pub fn registries_conf(text: &str, image: &Reference) -> Option<Vec<Reference>> {
    let mut registries = Registries::default();
    registries.add(Path::new("registries.conf"), text).ok()?;
    Some(registries.sources(image).ok()?.into_iter().map(|source| source.reference).collect())
}

/// Parts of a manifest that a pull uses.
#[derive(Debug)]
pub enum Manifest {
    /// Image manifest: digest and size of each layer.
    Layers(Vec<(Digest, u64)>),
    /// Index: the image for this platform.
    Chosen(Digest),
}

/// Parses an image manifest or an index.
pub fn manifest(bytes: &[u8], limits: &ImageLimits) -> Option<Manifest> {
    Some(match image::parse(bytes, &Hasher::sha256(bytes)).ok()? {
        OciManifest::Image(image) => {
            image::descriptor(&image.config).ok()?;
            Manifest::Layers(image::layers(&image, limits).ok()?)
        }
        OciManifest::ImageIndex(index) => {
            Manifest::Chosen(image::choose(&index.manifests, &ImagePlatform::current()).ok()?)
        }
    })
}

/// Unpacks layers, lowest first. Returns path and size of each file below `folder`.
pub fn unpack(layers: &[&[u8]], folder: &str, limits: &ImageLimits) -> Option<Vec<(String, usize)>> {
    let mut unpacker = Unpacker::new(FolderFilter::new([folder.to_owned()]), limits.clone(), MemoryStore);
    for layer in layers {
        let (sink, chunks) = mpsc::channel(1);
        sink.blocking_send(Bytes::copy_from_slice(layer)).ok()?;
        drop(sink);
        unpacker.apply(&mut LayerReader::new(chunks, &Hasher::sha256(b""))).ok()?;
    }
    let (tree, MemoryStore) = unpacker.finish().ok()?;
    tree.files().map(|file| file.ok().map(|(path, bytes)| (path.to_owned(), bytes.len()))).collect()
}
