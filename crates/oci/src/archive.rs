//! Bounded reading of the archive of a layer: decompression, and limits on every size while it is read.

use std::cell::Cell;
use std::io::{self, BufReader, Read};

use crate::limits::{Exceeded, ImageLimits};
use crate::tree::TreeError;

/// Most bytes before the content of one entry: long names and extended attributes.
const HEADER_BYTES: u64 = 1 << 20;
const CHUNK: usize = 64 << 10;
const ZSTD_WINDOW_ERROR: &str = "Frame requires too much memory for decoding";

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// Local disk error, not a fault of the image.
    #[error("{0}")]
    Disk(#[from] io::Error),
    #[error("{0}")]
    Limit(#[from] Exceeded),
    #[error("{0}")]
    Tree(#[from] TreeError),
    /// Fault of the archive or of one entry.
    #[error("{0}")]
    Archive(String),
}

/// Byte counters and limits shared by the readers of one layer.
pub(crate) struct Meter<'a> {
    limits: &'a ImageLimits,
    stored: Cell<u64>,
    unpacked: Cell<u64>,
    /// Bytes that may be read before the next entry.
    allowance: Cell<u64>,
    exceeded: Cell<Option<Exceeded>>,
}

impl<'a> Meter<'a> {
    /// Continues the totals of the layers below: bytes as stored, and unpacked.
    pub(crate) fn new(limits: &'a ImageLimits, stored: u64, unpacked: u64) -> Self {
        Self {
            limits,
            stored: Cell::new(stored),
            unpacked: Cell::new(unpacked),
            allowance: Cell::new(HEADER_BYTES),
            exceeded: Cell::new(None),
        }
    }

    /// Archive of a layer, decompressed according to its first bytes.
    pub(crate) fn archive<R: Read + 'a>(
        &'a self,
        layer: R,
    ) -> Result<tar::Archive<Unpacked<'a>>, UnpackError> {
        let inner = decompress(Stored { meter: self, inner: layer }, self.limits.zstd_window)
            .map_err(|error| UnpackError::Archive(error.to_string()))?;
        Ok(tar::Archive::new(Unpacked { meter: self, inner }))
    }

    /// Bytes as stored, and unpacked, of this layer and those below.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.stored.get(), self.unpacked.get())
    }

    /// Allows `content` bytes and one header to be read.
    pub(crate) fn allow(&self, content: u64) {
        self.allowance.set(content.saturating_add(HEADER_BYTES));
    }

    fn count_unpacked(&self, bytes: u64) -> Result<(), Exceeded> {
        let unpacked = self.unpacked.get() + bytes;
        self.unpacked.set(unpacked);
        Exceeded::check("unpacked-bytes", unpacked, self.limits.unpacked_bytes)?;
        if unpacked > ImageLimits::RATIO_FROM {
            Exceeded::check("ratio", unpacked / self.stored.get().max(1), self.limits.ratio)?;
        }
        let allowance = self.allowance.get().checked_sub(bytes);
        self.allowance.set(allowance.ok_or(Exceeded {
            key: "header-bytes",
            value: HEADER_BYTES + 1,
            max: HEADER_BYTES,
        })?);
        Ok(())
    }

    /// The decoder reports a window above its limit only in its message.
    fn note_window(&self, error: &io::Error) {
        let max = self.limits.zstd_window;
        if error.to_string() == ZSTD_WINDOW_ERROR {
            self.exceeded.set(Some(Exceeded { key: "zstd-window", value: max + 1, max }));
        }
    }

    /// Error behind a failed read of the archive: an exceeded limit if any, otherwise the archive's own error.
    pub(crate) fn explain(&self, error: &io::Error) -> UnpackError {
        match self.exceeded.take() {
            Some(exceeded) => UnpackError::Limit(exceeded),
            None => UnpackError::Archive(error.to_string()),
        }
    }
}

/// Counts the bytes of the layer as stored.
struct Stored<'a, R> {
    meter: &'a Meter<'a>,
    inner: R,
}

impl<R: Read> Read for Stored<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.meter.stored.set(self.meter.stored.get() + read as u64);
        Ok(read)
    }
}

/// Counts and bounds the unpacked bytes of the layer.
pub(crate) struct Unpacked<'a> {
    meter: &'a Meter<'a>,
    inner: Box<dyn Read + 'a>,
}

impl Read for Unpacked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer).inspect_err(|error| self.meter.note_window(error))?;
        self.meter.count_unpacked(read as u64).map_err(|exceeded| {
            self.meter.exceeded.set(Some(exceeded));
            io::Error::other("limit exceeded")
        })?;
        Ok(read)
    }
}

/// Content of one entry, read in chunks and bounded by [`ImageLimits::file_bytes`].
pub(crate) struct EntryReader<'a> {
    entry: &'a mut dyn Read,
    meter: &'a Meter<'a>,
    read: u64,
    buffer: Box<[u8]>,
}

impl<'a> EntryReader<'a> {
    pub(crate) fn new(entry: &'a mut dyn Read, meter: &'a Meter<'a>) -> Self {
        Self { entry, meter, read: 0, buffer: vec![0; CHUNK].into_boxed_slice() }
    }

    pub(crate) fn next_chunk(&mut self) -> Result<Option<&[u8]>, UnpackError> {
        let read = self.entry.read(&mut self.buffer).map_err(|error| self.meter.explain(&error))?;
        self.read += read as u64;
        Exceeded::check("file-bytes", self.read, self.meter.limits.file_bytes)?;
        Ok((read > 0).then(|| &self.buffer[..read]))
    }
}

/// Decompresses `layer` according to its first bytes.
fn decompress<'a>(mut layer: impl Read + 'a, zstd_window: u64) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = Vec::with_capacity(6);
    (&mut layer).take(6).read_to_end(&mut head)?;
    let magic = head.clone();
    let whole = BufReader::with_capacity(CHUNK, io::Cursor::new(head).chain(layer));
    match magic.as_slice() {
        [0x1f, 0x8b, ..] => Ok(Box::new(flate2::bufread::MultiGzDecoder::new(whole))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut decoder = zstd::Decoder::with_buffer(whole)?;
            decoder.window_log_max(zstd_window.checked_ilog2().unwrap_or_default().clamp(10, 31))?;
            Ok(Box::new(decoder))
        }
        [b'B', b'Z', b'h', ..] => Err(unsupported("bzip2")),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Err(unsupported("xz")),
        _ => Ok(Box::new(whole)),
    }
}

fn unsupported(compression: &str) -> io::Error {
    io::Error::other(format!(
        "the layer is compressed with {compression}: only layers as plain, gzip or zstd tar are supported"
    ))
}
