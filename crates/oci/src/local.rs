//! Files of an image whose layers are in memory, such as those of an image layout.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::archive::UnpackError;
use crate::fetch::{Hasher, LayerReader};
use crate::store::MemoryStore;
use crate::tree::{FolderFilter, clean};
use crate::unpack::Unpacker;
use crate::{ImageLimits, PullError};

/// Unpacks the files below `folders` (paths from the image root) from `layers`, lowest first, by their paths from the
/// image root. The caller has checked the digests of the layers. The same limits and rules as for
/// [`Puller::pull_files`](crate::Puller::pull_files) apply.
///
/// # Errors
/// Invalid content, or a limit is exceeded.
pub async fn unpack_layers(
    layers: Vec<Bytes>,
    folders: &[&str],
    limits: ImageLimits,
) -> Result<BTreeMap<String, Vec<u8>>, PullError> {
    let folders = FolderFilter::new(folders.iter().filter_map(|folder| clean(folder)));
    let unpacked = tokio::task::spawn_blocking(move || unpack(layers, folders, limits)).await;
    unpacked.map_err(PullError::applying)?.map_err(|error| PullError::content(true, error))
}

fn unpack(
    layers: Vec<Bytes>,
    folders: FolderFilter,
    limits: ImageLimits,
) -> Result<BTreeMap<String, Vec<u8>>, UnpackError> {
    let mut unpacker = Unpacker::new(folders, limits, MemoryStore);
    for layer in layers {
        let (sink, chunks) = mpsc::channel(1);
        // The channel is empty and its receiver exists, so that this neither waits nor fails.
        let _ = sink.try_send(layer);
        drop(sink);
        unpacker.apply(&mut LayerReader::new(chunks, &Hasher::sha256(b"")))?;
    }
    let (tree, MemoryStore) = unpacker.finish()?;
    let files = tree.files().map(|file| file.map(|(path, bytes)| (path.to_owned(), bytes.to_vec())));
    Ok(files.collect::<Result<_, _>>()?)
}
