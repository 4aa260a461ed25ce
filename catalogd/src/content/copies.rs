//! Compressed copies of a catalog's data, made once on first demand.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::read_range;
use crate::http::Encoding;

/// Compressing takes one core: this process does one at a time, however many clients and catalogs.
static COMPRESSING: Semaphore = Semaphore::const_new(1);
/// How long a request waits for its copy; after that it gets the data as it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a failure no copy is tried for so long.
const PAUSE: Duration = Duration::from_secs(60);
/// Bytes read at once.
const CHUNK: usize = 128 << 10;

/// The whole data in one encoding.
#[derive(Clone, Debug)]
pub struct CompressedCopy {
    /// The file; it has no name and is gone with its last reader, whatever becomes of this process.
    pub file: Arc<File>,
    /// Its length in bytes.
    pub length: u64,
}

/// The copies of one catalog's data, by encoding.
#[derive(Debug, Default)]
pub(super) struct Copies([Copy; 2]);

#[derive(Debug, Default)]
struct Copy {
    made: OnceLock<CompressedCopy>,
    failed: Mutex<Option<Instant>>,
}

/// What is copied: the first `length` bytes of `file`, into `directory`.
#[derive(Clone, Debug)]
pub(super) struct Original {
    pub(super) file: Arc<File>,
    pub(super) length: u64,
    pub(super) directory: Arc<Path>,
}

impl Copies {
    /// The copy, made now unless it exists; `None` where it cannot be had soon. A client that goes away
    /// does not stop the work.
    pub(super) async fn get(
        self: &Arc<Self>,
        encoding: Encoding,
        original: &Original,
    ) -> Option<CompressedCopy> {
        if let Some(made) = self.0[encoding as usize].made.get() {
            return Some(made.clone());
        }
        let (copies, original) = (Arc::clone(self), original.clone());
        let making = tokio::spawn(async move { copies.0[encoding as usize].make(encoding, original).await });
        tokio::time::timeout(PATIENCE, making).await.ok()?.ok()?
    }
}

impl Copy {
    async fn make(&self, encoding: Encoding, original: Original) -> Option<CompressedCopy> {
        let turn = COMPRESSING.acquire().await;
        if let Some(made) = self.made.get() {
            return Some(made.clone());
        }
        if self.failed().is_some_and(|at| at.elapsed() < PAUSE) {
            return None;
        }
        let length = original.length;
        let written = tokio::task::spawn_blocking(move || write(encoding, &original)).await;
        drop(turn);
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(copy) => Some(self.made.get_or_init(|| copy).clone()),
            Err(error) => {
                tracing::warn!(encoding = encoding.name(), length, %error, "no compressed copy of catalog content");
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                None
            }
        }
    }

    fn failed(&self) -> Option<Instant> {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(encoding: Encoding, original: &Original) -> io::Result<CompressedCopy> {
    // A copy must never take the room that the next update of the catalog needs.
    let disk = rustix::fs::statvfs(&*original.directory)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < original.length.saturating_mul(2) {
        return Err(io::Error::new(io::ErrorKind::StorageFull, format!("only {free} bytes are free")));
    }
    let file = tempfile::tempfile_in(&original.directory)?;
    let mut encoder = encoding.encoder(BufWriter::with_capacity(CHUNK, file))?;
    let mut chunk = vec![0; CHUNK];
    let mut position = 0;
    while position < original.length {
        let read = read_range(&original.file, position..original.length, &mut chunk)?;
        encoder.write_all(&chunk[..read])?;
        position += read as u64;
    }
    let file = encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    let length = file.metadata()?.len();
    Ok(CompressedCopy { file: Arc::new(file), length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;

    fn original(directory: &Path, length: u64) -> Original {
        let path = directory.join("data");
        std::fs::write(&path, b"catalog content\n".repeat(1000)).unwrap();
        Original { file: Arc::new(File::open(path).unwrap()), length, directory: directory.into() }
    }

    #[tokio::test]
    async fn one_copy_for_all() {
        let directory = tempfile::tempdir().unwrap();
        let original = original(directory.path(), 16_000);
        let copies = Arc::new(Copies::default());
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let made = join_all((0..8).map(|_| copies.get(encoding, &original))).await;
            let first = made[0].clone().unwrap();
            assert!(first.length > 0 && first.length < 1000);
            for other in made {
                assert!(Arc::ptr_eq(&other.unwrap().file, &first.file));
            }
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn without_room_there_is_no_copy() {
        let directory = tempfile::tempdir().unwrap();
        let copies = Arc::new(Copies::default());
        assert!(copies.get(Encoding::Gzip, &original(directory.path(), 1 << 60)).await.is_none());
        // It is not tried again at once, and the other encoding is not concerned.
        assert!(copies.get(Encoding::Gzip, &original(directory.path(), 16_000)).await.is_none());
        assert!(copies.get(Encoding::Zstd, &original(directory.path(), 16_000)).await.is_some());
    }
}
