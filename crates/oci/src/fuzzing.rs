//! Doors for the fuzz targets: readers of foreign input that are no part of this crate's interface. Nothing else uses them.

use std::path::Path;

use bytes::Bytes;
use oci_distribution::manifest::OciManifest;
use tokio::sync::mpsc;

use crate::fetch::{Hasher, LayerReader};
use crate::image;
use crate::registries::Registries;
use crate::store::MemoryStore;
use crate::tree::Wanted;
use crate::unpack::Unpacker;
use crate::{Digest, Limits, Platform, Reference};

pub use crate::policy::fuzzing::{policy, registries_d, signature};

/// Reads a `registries.conf` and names the sources of `image`.
#[must_use]
pub fn registries_conf(text: &str, image: &Reference) -> Option<Vec<Reference>> {
    let mut registries = Registries::default();
    registries.add(Path::new("registries.conf"), text).ok()?;
    Some(registries.sources(image).ok()?.into_iter().map(|source| source.reference).collect())
}

/// A manifest as far as a pull goes by it.
#[derive(Debug)]
pub enum Manifest {
    /// Of an image: digest and size of each layer.
    Layers(Vec<(Digest, u64)>),
    /// Of an index: the image for this platform.
    Chosen(Digest),
}

/// Reads an image manifest or an index.
#[must_use]
pub fn manifest(bytes: &[u8], limits: &Limits) -> Option<Manifest> {
    Some(match image::parse(bytes, &Hasher::sha256(bytes)).ok()? {
        OciManifest::Image(image) => {
            image::descriptor(&image.config).ok()?;
            Manifest::Layers(image::layers(&image, limits).ok()?)
        }
        OciManifest::ImageIndex(index) => {
            Manifest::Chosen(image::choose(&index.manifests, &Platform::current()).ok()?)
        }
    })
}

/// Unpacks layers, lowest first, and gives the files below `folder` by their paths, with their sizes.
#[must_use]
pub fn unpack(layers: &[&[u8]], folder: &str, limits: &Limits) -> Option<Vec<(String, usize)>> {
    let mut unpacker = Unpacker::new(Wanted::new([folder.to_owned()]), limits.clone(), MemoryStore);
    for layer in layers {
        let (sink, chunks) = mpsc::channel(1);
        sink.blocking_send(Bytes::copy_from_slice(layer)).ok()?;
        drop(sink);
        unpacker.apply(&mut LayerReader::new(chunks, &Hasher::sha256(b""))).ok()?;
    }
    let (tree, MemoryStore) = unpacker.finish().ok()?;
    tree.files().map(|file| file.ok().map(|(path, bytes)| (path.to_owned(), bytes.len()))).collect()
}
