//! Compressed copies of a catalog's data, made once on first demand and sent while they are written.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::disk::read_range;
use crate::encoding::Encoding;

/// Limits compressing to one copy at a time in this process, because each takes a core.
static COMPRESSING: Semaphore = Semaphore::const_new(1);
/// Maximum wait of a request for the copies of other catalogs. After that it gets uncompressed data.
const PATIENCE: Duration = Duration::from_secs(5);
/// Delay after a failure before the next attempt.
const PAUSE: Duration = Duration::from_secs(60);
/// Bytes per read.
const CHUNK: usize = 128 << 10;

/// The whole data in one encoding, complete or still being written.
#[derive(Clone, Debug)]
pub struct CompressedCopy {
    /// The unnamed file, which the kernel frees with its last reader, even after a crash.
    pub file: Arc<File>,
    /// The sender is dropped when the copy is complete or has failed.
    progress: watch::Receiver<Progress>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    written: u64,
    is_complete: bool,
}

impl CompressedCopy {
    /// Length in bytes, if complete.
    pub fn length(&self) -> Option<u64> {
        let progress = *self.progress.borrow();
        progress.is_complete.then_some(progress.written)
    }

    /// Waits for bytes after `position`. Returns the end of the bytes written, or `None` at the end of the copy.
    ///
    /// # Errors
    /// The copy failed.
    pub async fn written_behind(&mut self, position: u64) -> io::Result<Option<u64>> {
        let progress = self.progress.wait_for(|now| now.written > position || now.is_complete).await;
        let written = progress.map_err(|_| io::Error::other("the compressed copy failed"))?.written;
        Ok(Some(written).filter(|written| *written > position))
    }
}

/// The copies of one catalog's data, by encoding.
#[derive(Debug, Default)]
pub(super) struct CompressedCopies([watch::Sender<Option<CopyState>>; 2]);

/// A copy, or the time at which making it failed.
type CopyState = Result<CompressedCopy, Instant>;

/// `true` if the copy, or its failure, is still valid. Otherwise a new copy must be made.
fn is_current(state: &CopyState) -> bool {
    match state {
        // A copy that is incomplete and has no writer has failed.
        Ok(copy) => copy.progress.has_changed().is_ok() || copy.length().is_some(),
        Err(failed) => failed.elapsed() < PAUSE,
    }
}

/// Data in a file.
#[derive(Clone, Debug)]
pub struct CopySource {
    /// The file, which begins with the data.
    pub file: Arc<File>,
    /// Length of the data in bytes.
    pub length: u64,
    /// Directory in which copies are created.
    pub(super) directory: Arc<Path>,
}

impl CompressedCopies {
    /// The copy, started now unless it exists. `None` if it is not available soon. A client that disconnects does
    /// not stop the work.
    pub(super) async fn get(
        self: &Arc<Self>,
        encoding: Encoding,
        original: &CopySource,
    ) -> Option<CompressedCopy> {
        let slot = &self.0[encoding as usize];
        let known = async || {
            let mut copy = slot.subscribe();
            copy.wait_for(|copy| copy.as_ref().is_some_and(is_current)).await.ok()?.clone()?.ok()
        };
        let copy = async {
            let turn = tokio::select! {
                biased;
                copy = known() => return copy,
                turn = COMPRESSING.acquire() => turn.ok()?,
            };
            let (copies, original) = (Arc::clone(self), original.clone());
            tokio::task::spawn_blocking(move || {
                let _turn = turn;
                if let Err(error) = copies.make(encoding, &original) {
                    tracing::warn!(encoding = encoding.name(), length = original.length, %error, "failed to compress catalog content");
                    copies.0[encoding as usize].send_replace(Some(Err(Instant::now())));
                }
            });
            known().await
        };
        timeout(PATIENCE, copy).await.ok()?
    }

    fn make(&self, encoding: Encoding, original: &CopySource) -> io::Result<()> {
        // Keeps enough disk space for the next update of the catalog.
        let free = olm_os::free_bytes(&original.directory)?;
        if free < original.length.saturating_mul(2) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, format!("only {free} bytes are free")));
        }
        let file = Arc::new(tempfile::tempfile_in(&original.directory)?);
        let (sender, progress) = watch::channel(Progress::default());
        let mut encoder = encoding.encoder(Sink { file: Arc::clone(&file), progress: sender })?;
        self.0[encoding as usize].send_replace(Some(Ok(CompressedCopy { file, progress })));
        let mut chunk = vec![0; CHUNK];
        let mut position = 0;
        while position < original.length {
            let read = read_range(&original.file, position..original.length, &mut chunk)?;
            encoder.write_all(&chunk[..read])?;
            position += read as u64;
        }
        encoder.finish()?.progress.send_modify(|progress| progress.is_complete = true);
        Ok(())
    }
}

/// Appends to the file and publishes the progress to readers.
struct Sink {
    file: Arc<File>,
    progress: watch::Sender<Progress>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.progress.borrow().written;
        // Readers may move the cursor of the file.
        let count = olm_os::write_at(&self.file, bytes, end)?;
        self.progress.send_modify(|progress| progress.written += count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;

    fn original(directory: &Path, length: u64) -> CopySource {
        let path = directory.join("data");
        std::fs::write(&path, b"catalog content\n".repeat(1000)).unwrap();
        CopySource { file: Arc::new(File::open(path).unwrap()), length, directory: directory.into() }
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_copy_per_encoding() {
        let directory = tempfile::tempdir().unwrap();
        let original = original(directory.path(), 16_000);
        let copies = Arc::new(CompressedCopies::default());
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let made = join_all((0..8).map(|_| copies.get(encoding, &original))).await;
            let mut first = made[0].clone().unwrap();
            let mut end = 0;
            while let Some(written) = first.written_behind(end).await.unwrap() {
                end = written;
            }
            assert_eq!(first.length(), Some(end));
            assert!(end > 0 && end < 1000);
            for other in made {
                assert!(Arc::ptr_eq(&other.unwrap().file, &first.file));
            }
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn failed_copy_returns_error_to_readers_and_is_retried() {
        let directory = tempfile::tempdir().unwrap();
        let original = original(directory.path(), 16_000);
        let (writer, progress) = watch::channel(Progress { written: 10, is_complete: false });
        let mut broken = CompressedCopy { file: Arc::clone(&original.file), progress };
        let copies = Arc::new(CompressedCopies::default());
        copies.0[Encoding::Gzip as usize].send_replace(Some(Ok(broken.clone())));
        let kept = copies.get(Encoding::Gzip, &original).await.unwrap();
        assert!(Arc::ptr_eq(&kept.file, &broken.file));
        assert_eq!(broken.written_behind(0).await.unwrap(), Some(10));
        drop(writer);
        assert_eq!(broken.written_behind(10).await.unwrap_err().to_string(), "the compressed copy failed");
        let again = copies.get(Encoding::Gzip, &original).await.unwrap();
        assert!(!Arc::ptr_eq(&again.file, &broken.file));
    }

    #[tokio::test]
    async fn full_disk_fails_copy_without_immediate_retry() {
        let directory = tempfile::tempdir().unwrap();
        let copies = Arc::new(CompressedCopies::default());
        assert!(copies.get(Encoding::Gzip, &original(directory.path(), 1 << 60)).await.is_none());
        // The failure delays the next attempt, for this encoding only.
        assert!(copies.get(Encoding::Gzip, &original(directory.path(), 16_000)).await.is_none());
        assert!(copies.get(Encoding::Zstd, &original(directory.path(), 16_000)).await.is_some());
    }
}
