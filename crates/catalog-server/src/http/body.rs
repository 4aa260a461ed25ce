//! Response bodies: pieces of text and byte ranges of a file, read only as fast as the client receives them.
//!
//! Data in the page cache is read on the async thread, other data on blocking threads.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use futures::stream;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::content::{CompressedCopy, read_range};
use crate::encoding::{Encoder, Encoding};

/// Bytes per read, and thus about the memory per slow client.
const CHUNK: u64 = 128 << 10;

/// Memory of the answers that clients have not received yet, in KiB, apart from chunks.
const UNSENT_KIB: u32 = 32 << 10;
static UNSENT: Semaphore = Semaphore::const_new(UNSENT_KIB as usize);

/// Permits for an answer that stays in memory until its client has received it.
pub struct Unsent(SemaphorePermit<'static>);

impl Unsent {
    /// Reserves permits for `length` bytes, none for a chunk. `None` if slow clients hold too many.
    pub fn reserve(length: u64) -> Option<Self> {
        UNSENT.try_acquire_many(permits(length)).ok().map(Self)
    }

    /// Waits for permits for `length` bytes. `None` if slow clients hold too many for longer than `patience`.
    pub async fn wait(length: u64, patience: Duration) -> Option<Self> {
        tokio::time::timeout(patience, UNSENT.acquire_many(permits(length))).await.ok()?.ok().map(Self)
    }

    /// A body of `bytes`, which holds the permits for its length as long as the memory.
    pub fn body(mut self, bytes: Bytes) -> Body {
        let surplus = self.0.num_permits().saturating_sub(bytes.len().div_ceil(1024));
        drop(self.0.split(surplus));
        Body::from(Bytes::from_owner(UnsentBytes { bytes, _permits: self.0 }))
    }
}

/// Permits for an answer of `length` bytes, at most all of them.
fn permits(length: u64) -> u32 {
    if length <= CHUNK {
        return 0;
    }
    u32::try_from(length.div_ceil(1024)).map_or(UNSENT_KIB, |size| size.min(UNSENT_KIB))
}

struct UnsentBytes {
    bytes: Bytes,
    _permits: SemaphorePermit<'static>,
}

impl AsRef<[u8]> for UnsentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// These bytes.
    Text(Bytes),
    /// A range of the file.
    File(Range<u64>),
}

impl Piece {
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

/// A body of `pieces`.
pub fn body(file: Arc<File>, pieces: impl IntoIterator<Item = Piece, IntoIter: Send + 'static>) -> Body {
    let reader = PieceReader::new(file, pieces.into_iter());
    Body::from_stream(stream::try_unfold(reader, |mut reader| async {
        let Some(chunk) = reader.next() else {
            return Ok::<_, io::Error>(None);
        };
        let bytes = match read_cached(&reader.file, &chunk) {
            Some(bytes) => bytes,
            None => {
                let file = Arc::clone(&reader.file);
                blocking(move || read(&file, &chunk)).await?
            }
        };
        Ok(Some((bytes, reader)))
    }))
}

/// Reads `ranges` into memory, for an answer that is cached.
///
/// # Errors
/// The file ends before a range does.
pub async fn gather(
    file: Arc<File>,
    ranges: impl Iterator<Item = Range<u64>> + Send + 'static,
) -> io::Result<Bytes> {
    to_bytes(body(file, ranges.map(Piece::File)), usize::MAX).await.map_err(io::Error::other)
}

/// Reads and compresses `ranges` in memory, for an answer that is cached. Returns `permit` with them. If the client
/// disconnects, `permit` is held until the work is done.
///
/// # Errors
/// The file ends before a range does.
pub async fn gather_compressed(
    file: Arc<File>,
    ranges: impl Iterator<Item = Range<u64>> + Send + 'static,
    encoding: Encoding,
    permit: SemaphorePermit<'static>,
) -> io::Result<(Bytes, SemaphorePermit<'static>)> {
    let mut reader = PieceReader::new(file, ranges.map(Piece::File));
    blocking(move || {
        let mut encoder = encoding.encoder(Vec::new())?;
        while let Some(chunk) = reader.next() {
            encoder.write_all(&read(&reader.file, &chunk)?)?;
        }
        Ok((encoder.finish()?.into(), permit))
    })
    .await
}

/// A body of `ranges` that is compressed while it is sent. Holds `permit` until its end.
///
/// # Errors
/// The compressor cannot be allocated.
pub fn compressing_body(
    file: Arc<File>,
    ranges: impl Iterator<Item = Range<u64>> + Send + 'static,
    encoding: Encoding,
    permit: SemaphorePermit<'static>,
) -> io::Result<Body> {
    let reader = PieceReader::new(file, ranges.map(Piece::File));
    let begin = Some((reader, encoding.encoder(Vec::new())?, permit));
    Ok(Body::from_stream(stream::try_unfold(begin, |state| async {
        let Some((reader, encoder, permit)) = state else {
            return Ok::<_, io::Error>(None);
        };
        let (chunk, next) = blocking(move || compress_some(reader, encoder)).await?;
        Ok(Some((chunk, next.map(|(reader, encoder)| (reader, encoder, permit)))))
    })))
}

type Compressing = (PieceReader, Encoder<Vec<u8>>);

/// Compresses until there is something to send. The last chunk has no next state.
fn compress_some(
    mut reader: PieceReader,
    mut encoder: Encoder<Vec<u8>>,
) -> io::Result<(Bytes, Option<Compressing>)> {
    while let Some(chunk) = reader.next() {
        encoder.write_all(&read(&reader.file, &chunk)?)?;
        let compressed = encoder.take();
        if !compressed.is_empty() {
            return Ok((compressed.into(), Some((reader, encoder))));
        }
    }
    Ok((encoder.finish()?.into(), None))
}

/// A body of `copy`, sent while it is written. It fails if the copy fails.
pub fn copied_body(copy: CompressedCopy) -> Body {
    Body::from_stream(stream::try_unfold((copy, 0), |(mut copy, position)| async move {
        let Some(written) = copy.written_behind(position).await? else {
            return Ok::<_, io::Error>(None);
        };
        let end = written.min(position + CHUNK);
        let chunk = gather(Arc::clone(&copy.file), std::iter::once(position..end)).await?;
        Ok(Some((chunk, (copy, end))))
    }))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reader of the pieces of a body.
struct PieceReader {
    file: Arc<File>,
    /// Unread end of the current piece.
    current: Option<Piece>,
    pieces: Box<dyn Iterator<Item = Piece> + Send>,
}

impl PieceReader {
    fn new(file: Arc<File>, pieces: impl Iterator<Item = Piece> + Send + 'static) -> Self {
        Self { file, current: None, pieces: Box::new(pieces) }
    }

    /// The next pieces, together about [`CHUNK`] bytes long.
    fn next(&mut self) -> Option<Vec<Piece>> {
        let (mut chunk, mut room) = (Vec::new(), CHUNK);
        while room > 0 {
            let Some(mut piece) = self.current.take().or_else(|| self.pieces.next()) else {
                break;
            };
            if let Piece::File(range) = &mut piece
                && range.end - range.start > room
            {
                self.current = Some(Piece::File(range.start + room..range.end));
                range.end = range.start + room;
            }
            room = room.saturating_sub(piece.length());
            chunk.push(piece);
        }
        (!chunk.is_empty()).then_some(chunk)
    }
}

/// Reads pieces, waiting for the disk if necessary.
fn read(file: &File, pieces: &[Piece]) -> io::Result<Bytes> {
    collect(pieces, |range, into| read_range(file, range, into).map(drop))
}

/// Reads pieces if all are in the page cache. Errors are left to [`read`].
fn read_cached(file: &File, pieces: &[Piece]) -> Option<Bytes> {
    collect(pieces, |range, into| olm_os::read_cached(file, into, range.start)).ok()
}

fn collect(pieces: &[Piece], read: impl Fn(Range<u64>, &mut [u8]) -> io::Result<()>) -> io::Result<Bytes> {
    let length = pieces.iter().map(Piece::length).sum::<u64>();
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut rest = bytes.as_mut_slice();
    for piece in pieces {
        // The sum of the lengths equals that of `bytes`.
        let (into, behind) = rest.split_at_mut(usize::try_from(piece.length()).map_err(io::Error::other)?);
        rest = behind;
        match piece {
            Piece::Text(text) => into.copy_from_slice(text),
            Piece::File(range) => read(range.clone(), into)?,
        }
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(length: usize) -> (Arc<File>, Vec<u8>) {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        (Arc::new(file), bytes)
    }

    async fn sent(body: Body) -> io::Result<Vec<u8>> {
        axum::body::to_bytes(body, 1 << 30).await.map(|bytes| bytes.to_vec()).map_err(io::Error::other)
    }

    #[tokio::test]
    async fn truncated_file_fails_body() {
        let (file, _) = file(10);
        assert!(sent(body(Arc::clone(&file), [Piece::File(5..11)])).await.is_err());
        assert!(gather(file, [0..4, 9..11].into_iter()).await.is_err());
    }

    /// A semaphore with one permit, and that permit.
    fn one_permit() -> (&'static Semaphore, SemaphorePermit<'static>) {
        let semaphore = Box::leak(Box::new(Semaphore::new(1)));
        (semaphore, semaphore.try_acquire().unwrap())
    }

    // Clients that repeatedly ask and disconnect must not cause more parallel work than the permits allow.
    #[test]
    fn work_without_client_keeps_permit() {
        let (file, _) = file(10);
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let (semaphore, permit) = one_permit();
            let mut asked =
                Box::pin(gather_compressed(file, [0..4, 5..9].into_iter(), Encoding::Gzip, permit));
            assert!(futures::poll!(&mut asked).is_pending());
            drop(asked);
            assert_eq!(semaphore.available_permits(), 0);
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            let _done = semaphore.acquire().await.unwrap();
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn all_body_types_return_the_same_bytes(cuts in proptest::collection::vec(0u64..300_000, 0..8)) {
            let (file, bytes) = file(300_000);
            let ranges: Vec<Range<u64>> =
                cuts.chunks_exact(2).map(|pair| pair[0].min(pair[1])..pair[0].max(pair[1])).collect();
            let mut pieces: Vec<Piece> = ranges.iter().cloned().map(Piece::File).collect();
            pieces.insert(0, Piece::Text(Bytes::from_static(b"head")));
            let expect: Vec<u8> =
                ranges.iter().flat_map(|range| &bytes[range.start as usize..range.end as usize]).copied().collect();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let whole = sent(body(Arc::clone(&file), pieces)).await.unwrap();
                assert_eq!(whole, [b"head", expect.as_slice()].concat());
                assert_eq!(gather(Arc::clone(&file), ranges.clone().into_iter()).await.unwrap(), expect);
                let (gzip, _) = gather_compressed(file, ranges.into_iter(), Encoding::Zstd, one_permit().1).await.unwrap();
                assert_eq!(zstd::decode_all(&gzip[..]).unwrap(), expect);
            });
        }
    }
}
