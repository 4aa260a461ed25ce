//! Application of layers: decompress, read the tar, keep the wanted files (docs/design/images.md#layers).
//!
//! This code blocks and runs on blocking threads. Archives are untrusted: links and devices are never created,
//! names are used only within the tree, and every size is bounded while it is read.

use std::cell::Cell;
use std::io::{self, BufReader, Read};

use crate::fetch::LayerReader;
use crate::limits::{Exceeded, Limits};
use crate::store::Store;
use crate::tree::{Node, Tree, TreeError, Wanted, clean};

/// Most bytes before the content of one entry: long names and extended attributes.
const HEADER_BYTES: u64 = 1 << 20;
const CHUNK: usize = 64 << 10;
/// Longest path of any entry, wanted or not. No system has longer ones, and each takes time to resolve.
const PATH_BYTES: u64 = 4096;
const ZSTD_WINDOW_ERROR: &str = "Frame requires too much memory for decoding";
const WHITEOUT: &str = ".wh.";
/// Prefix of whiteouts that are metadata of the layer. Only the opaque one has a meaning.
const WHITEOUT_MARK: &str = ".wh..wh.";
const OPAQUE: &str = ".wh..wh..opq";

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// Local disk error, not a fault of the image.
    #[error("{0}")]
    Disk(#[from] io::Error),
    #[error("{0}")]
    Limit(Exceeded),
    #[error("{0}")]
    Tree(#[from] TreeError),
    /// Fault of the archive or of one entry.
    #[error("{0}")]
    Archive(String),
}

impl From<Exceeded> for UnpackError {
    fn from(exceeded: Exceeded) -> Self {
        Self::Limit(exceeded)
    }
}

/// Byte counters shared by the readers of one layer.
struct Meter<'a> {
    limits: &'a Limits,
    stored: Cell<u64>,
    unpacked: Cell<u64>,
    /// Bytes that may be read before the next entry.
    allowance: Cell<u64>,
    refusal: Cell<Option<Exceeded>>,
}

impl Meter<'_> {
    fn unpacked(&self, bytes: u64) -> Result<(), Exceeded> {
        let unpacked = self.unpacked.get() + bytes;
        self.unpacked.set(unpacked);
        Exceeded::check("unpacked-bytes", unpacked, self.limits.unpacked_bytes)?;
        if unpacked > Limits::RATIO_FROM {
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
            self.refusal.set(Some(Exceeded { key: "zstd-window", value: max + 1, max }));
        }
    }

    /// Error behind a failed read of the archive: an exceeded limit if any, otherwise the archive's own error.
    fn explain(&self, error: &io::Error) -> UnpackError {
        match self.refusal.take() {
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
struct Unpacked<'a> {
    meter: &'a Meter<'a>,
    inner: Box<dyn Read + 'a>,
}

impl Read for Unpacked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer).inspect_err(|error| self.meter.note_window(error))?;
        self.meter.unpacked(read as u64).map_err(|exceeded| {
            self.meter.refusal.set(Some(exceeded));
            io::Error::other("limit exceeded")
        })?;
        Ok(read)
    }
}

/// Content of one entry, read in chunks and bounded by [`Limits::file_bytes`].
pub(crate) struct EntryReader<'a> {
    entry: &'a mut dyn Read,
    meter: &'a Meter<'a>,
    read: u64,
    buffer: Box<[u8]>,
}

impl EntryReader<'_> {
    pub(crate) fn next_chunk(&mut self) -> Result<Option<&[u8]>, UnpackError> {
        let read = self.entry.read(&mut self.buffer).map_err(|error| self.meter.explain(&error))?;
        self.read += read as u64;
        Exceeded::check("file-bytes", self.read, self.meter.limits.file_bytes)?;
        Ok((read > 0).then(|| &self.buffer[..read]))
    }
}

/// Result of the layers applied so far.
pub(crate) struct Unpacker<S: Store> {
    wanted: Wanted,
    limits: Limits,
    store: S,
    tree: Tree<S::Content>,
    stored: u64,
    unpacked: u64,
    /// Stored files and their bytes, including those that later entries replace, since they cost as much.
    saved: u64,
    kept: u64,
}

impl<S: Store> Unpacker<S> {
    pub(crate) fn new(wanted: Wanted, limits: Limits, store: S) -> Self {
        Self { wanted, limits, store, tree: Tree::new(), stored: 0, unpacked: 0, saved: 0, kept: 0 }
    }

    /// Applies the next layer. The reader stops where the archive ends or is invalid.
    pub(crate) fn apply(&mut self, layer: &mut LayerReader) -> Result<(), UnpackError> {
        let limits = self.limits.clone();
        let meter = Meter {
            limits: &limits,
            stored: Cell::new(self.stored),
            unpacked: Cell::new(self.unpacked),
            allowance: Cell::new(HEADER_BYTES),
            refusal: Cell::new(None),
        };
        self.tree.next_layer();
        let inner = decompress(Stored { meter: &meter, inner: layer }, limits.zstd_window)
            .map_err(|error| UnpackError::Archive(error.to_string()))?;
        let mut archive = tar::Archive::new(Unpacked { meter: &meter, inner });
        let result = self.apply_archive(&mut archive, &meter);
        self.stored = meter.stored.get();
        self.unpacked = meter.unpacked.get();
        result
    }

    fn apply_archive(
        &mut self,
        archive: &mut tar::Archive<Unpacked<'_>>,
        meter: &Meter<'_>,
    ) -> Result<(), UnpackError> {
        let entries = archive.entries().map_err(|error| meter.explain(&error))?;
        meter.allowance.set(HEADER_BYTES);
        for entry in entries {
            let mut entry = entry.map_err(|error| meter.explain(&error))?;
            if entry.header().entry_type().is_gnu_sparse() {
                return Err(unhandled(entry.header().entry_type()));
            }
            // Unread content of this entry is skipped before the next one.
            meter.allowance.set(entry.size().saturating_add(HEADER_BYTES));
            self.apply_entry(&mut entry, meter)?;
        }
        Ok(())
    }

    fn apply_entry(
        &mut self,
        entry: &mut tar::Entry<'_, Unpacked<'_>>,
        meter: &Meter<'_>,
    ) -> Result<(), UnpackError> {
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(path) = clean(&name) else {
            return Ok(());
        };
        Exceeded::check("path-bytes", path.len() as u64, self.limits.path_bytes.max(PATH_BYTES))?;
        let Some(path) = self.tree.locate(&path) else {
            return Ok(());
        };
        let (folder, base) = path.rsplit_once('/').unwrap_or(("", &path));
        if base.starts_with(WHITEOUT) {
            return self.hide(folder, base);
        }
        if !self.wanted.covers(&path) {
            return Ok(());
        }
        if name.contains('\u{fffd}') {
            return Err(UnpackError::Archive(format!("entry {name:?}: names must be UTF-8")));
        }
        Exceeded::check("path-bytes", path.len() as u64, self.limits.path_bytes)?;
        Exceeded::check("path-depth", path.split('/').count() as u64, self.limits.path_depth)?;
        self.keep(&path, entry, meter)?;
        Exceeded::check("tree-path-bytes", self.tree.path_bytes(), self.limits.tree_path_bytes)?;
        Ok(Exceeded::check("files", self.tree.len() as u64, self.limits.files)?)
    }

    fn keep(
        &mut self,
        path: &str,
        entry: &mut tar::Entry<'_, Unpacked<'_>>,
        meter: &Meter<'_>,
    ) -> Result<(), UnpackError> {
        use tar::EntryType;
        let target = entry.link_name_bytes().map(|target| String::from_utf8_lossy(&target).into_owned());
        let target = target.unwrap_or_default();
        Exceeded::check("path-bytes", target.len() as u64, self.limits.path_bytes)?;
        match entry.header().entry_type() {
            EntryType::Directory => self.tree.put(path, Node::Dir)?,
            // Form of folders in archives older than the type for folders.
            EntryType::Regular if entry.path_bytes().ends_with(b"/") => self.tree.put(path, Node::Dir)?,
            EntryType::Symlink => self.tree.put(path, Node::Link(target))?,
            EntryType::Link => {
                let target = clean(&target).ok_or_else(|| TreeError::HardLink(path.to_owned()))?;
                self.tree.put_hard_link(path, &target)?;
            }
            EntryType::Regular | EntryType::Continuous => {
                Exceeded::check("file-bytes", entry.size(), self.limits.file_bytes)?;
                Exceeded::check(
                    "kept-bytes",
                    self.kept.saturating_add(entry.size()),
                    self.limits.kept_bytes,
                )?;
                self.saved += 1;
                Exceeded::check("files", self.saved, self.limits.files)?;
                let mut reader =
                    EntryReader { entry, meter, read: 0, buffer: vec![0; CHUNK].into_boxed_slice() };
                let content = self.store.save(&mut reader)?;
                self.kept += S::size(&content);
                self.tree.put(path, Node::File(content))?;
            }
            EntryType::XGlobalHeader => {}
            kind @ (EntryType::Char | EntryType::Block | EntryType::Fifo) => {
                let kind = match kind {
                    EntryType::Char => "character device",
                    EntryType::Block => "block device",
                    _ => "FIFO",
                };
                return Err(UnpackError::Archive(format!(
                    "entry {path:?} is a {kind}: only files, folders and links are allowed"
                )));
            }
            kind => return Err(unhandled(kind)),
        }
        Ok(())
    }

    /// Applies the whiteout entry `base` in `folder`. A whiteout above a wanted folder hides that folder too.
    fn hide(&mut self, folder: &str, base: &str) -> Result<(), UnpackError> {
        if base == OPAQUE {
            if self.wanted.covers(folder) {
                self.tree.hide_below(folder);
            }
            for wanted in self.wanted.within(folder).filter(|wanted| *wanted != folder) {
                self.tree.hide(wanted);
            }
            return Ok(());
        }
        if base.starts_with(WHITEOUT_MARK) {
            return Ok(());
        }
        let name = &base[WHITEOUT.len()..];
        if matches!(name, "" | "." | "..") {
            return Err(UnpackError::Archive(format!("invalid whiteout name: {base}: invalid archive")));
        }
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        if self.wanted.covers(&path) {
            self.tree.hide(&path);
        }
        for wanted in self.wanted.within(&path) {
            self.tree.hide(wanted);
        }
        Ok(())
    }

    /// Finished tree and its store. Checks that links resolve to files and stay within the limits.
    pub(crate) fn finish(self) -> Result<(Tree<S::Content>, S), UnpackError> {
        let mut kept: u64 = 0;
        for file in self.tree.files() {
            kept = kept.saturating_add(S::size(file?.1));
            Exceeded::check("kept-bytes", kept, self.limits.kept_bytes)?;
        }
        Ok((self.tree, self.store))
    }
}

fn unhandled(kind: tar::EntryType) -> UnpackError {
    UnpackError::Archive(format!("unhandled tar header type {}", kind.as_byte()))
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use tokio::sync::mpsc;

    use super::*;
    use crate::fetch::Hasher;
    use crate::store::MemoryStore;

    fn archive() -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let long = format!("configs/{}", "long/".repeat(40));
        for (path, content) in [("configs/a.yaml", "schema: a"), (&long, ""), ("bin/opm", "elf")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        tar.append_pax_extensions([("path", &b"configs/pax.yaml"[..])]).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        tar.append_data(&mut header, "short", &b"p"[..]).unwrap();
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        tar.append_link(&mut link, "configs/link", "a.yaml").unwrap();
        tar.into_inner().unwrap()
    }

    fn unpack(blob: &[u8]) -> Result<Vec<String>, UnpackError> {
        let (sender, receiver) = mpsc::channel(1);
        sender.blocking_send(bytes::Bytes::copy_from_slice(blob)).unwrap();
        drop(sender);
        let limits = Limits { unpacked_bytes: 1 << 20, ..Limits::BUNDLE };
        let mut unpacker = Unpacker::new(Wanted::new(["configs".to_owned()]), limits, MemoryStore);
        unpacker.apply(&mut LayerReader::new(receiver, &Hasher::sha256(b"")))?;
        let (tree, MemoryStore) = unpacker.finish()?;
        Ok(tree.files().map(|file| file.unwrap().0.to_owned()).collect())
    }

    #[test]
    fn gnu_and_pax_long_names_are_read() {
        let mut files = unpack(&archive()).unwrap();
        files.retain(|path| !path.contains("long"));
        assert_eq!(files, ["configs/a.yaml", "configs/link", "configs/pax.yaml"]);
    }

    #[test]
    fn old_style_folder_entry_is_a_folder() {
        let mut header = tar::Header::new_old();
        header.set_path("configs/d/").unwrap();
        header.set_size(0);
        header.set_cksum();
        assert_eq!(unpack(header.as_bytes()).unwrap(), [""; 0]);
    }

    #[test]
    fn sparse_file_is_an_error() {
        let mut header = tar::Header::new_gnu();
        header.set_path("bin/sparse").unwrap();
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.as_gnu_mut().unwrap().set_real_size(0);
        header.set_size(0);
        header.set_cksum();
        assert_eq!(unpack(header.as_bytes()).unwrap_err().to_string(), "unhandled tar header type 83");
    }

    proptest! {
        /// Property: damaged archives and noise return a result without panic.
        #[test]
        fn any_bytes_unpack_without_panic(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            fix_checksums in any::<bool>(),
            compressed in any::<bool>(),
            noise in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut tar = archive();
            for (at, byte) in damage {
                // Most damage falls on headers.
                let at = at.index(tar.len());
                tar[at] = byte;
            }
            if fix_checksums {
                for block in tar.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
                    let mut header = tar::Header::from_byte_slice(block).clone();
                    header.set_cksum();
                    block.copy_from_slice(header.as_bytes());
                }
            }
            tar.extend_from_slice(&noise);
            if compressed {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gzip.write_all(&tar).unwrap();
                tar = gzip.finish().unwrap();
                let cut = tar.len() - noise.len().min(tar.len());
                tar.truncate(cut);
            }
            let _ = unpack(&tar);
            let _ = unpack(&noise);
        }
    }
}
