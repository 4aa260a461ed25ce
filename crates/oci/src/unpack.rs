//! Application of layers: keeps the entries below the selected folders, and applies whiteouts
//! (docs/design/images.md#layers).
//!
//! This code blocks and runs on blocking threads. Archives are untrusted: links and devices are never created,
//! names are used only within the tree, and every size is bounded while it is read.

use crate::archive::{EntryReader, Meter, UnpackError, Unpacked};
use crate::fetch::LayerReader;
use crate::limits::{Exceeded, ImageLimits};
use crate::store::Store;
use crate::tree::{FolderFilter, Node, Tree, TreeError, clean};

/// Longest path of any entry, selected or not. No system has longer ones, and each takes time to resolve.
const PATH_BYTES: u64 = 4096;
const WHITEOUT: &str = ".wh.";
/// Prefix of whiteouts that are metadata of the layer. Only the opaque one has a meaning.
const WHITEOUT_MARK: &str = ".wh..wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// Result of the layers applied so far.
pub(crate) struct Unpacker<S: Store> {
    folders: FolderFilter,
    limits: ImageLimits,
    store: S,
    tree: Tree<S::Content>,
    stored: u64,
    unpacked: u64,
    /// Stored files and their bytes, including those that later entries replace, since they cost as much.
    saved: u64,
    kept: u64,
}

impl<S: Store> Unpacker<S> {
    pub(crate) fn new(folders: FolderFilter, limits: ImageLimits, store: S) -> Self {
        Self { folders, limits, store, tree: Tree::new(), stored: 0, unpacked: 0, saved: 0, kept: 0 }
    }

    /// Applies the next layer. The reader stops where the archive ends or is invalid.
    pub(crate) fn apply(&mut self, layer: &mut LayerReader) -> Result<(), UnpackError> {
        let limits = self.limits.clone();
        let meter = Meter::new(&limits, self.stored, self.unpacked);
        self.tree.next_layer();
        let mut archive = meter.archive(layer)?;
        let result = self.apply_archive(&mut archive, &meter);
        (self.stored, self.unpacked) = meter.totals();
        result
    }

    fn apply_archive(
        &mut self,
        archive: &mut tar::Archive<Unpacked<'_>>,
        meter: &Meter<'_>,
    ) -> Result<(), UnpackError> {
        let entries = archive.entries().map_err(|error| meter.explain(&error))?;
        meter.allow(0);
        for (index, entry) in entries.enumerate() {
            let mut entry = entry.map_err(|error| match meter.explain(&error) {
                UnpackError::Archive(cause) if index == 0 => not_an_archive(&cause),
                other => other,
            })?;
            if entry.header().entry_type().is_gnu_sparse() {
                return Err(unhandled(entry.header().entry_type()));
            }
            // Unread content of this entry is skipped before the next one.
            meter.allow(entry.size());
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
        if !self.folders.covers(&path) {
            return Ok(());
        }
        if name.contains('\u{fffd}') {
            return Err(UnpackError::Archive(format!("entry {name:?}: names must be UTF-8")));
        }
        if !olm_os::is_plain(&path) {
            return Err(UnpackError::Archive(format!(
                "entry {name:?}: not a valid file name on this system"
            )));
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
                let kept = self.kept.saturating_add(entry.size());
                Exceeded::check("kept-bytes", kept, self.limits.kept_bytes)?;
                self.saved += 1;
                Exceeded::check("files", self.saved, self.limits.files)?;
                let content = self.store.save(&mut EntryReader::new(entry, meter))?;
                self.kept += S::size(&content);
                self.tree.put(path, Node::File(content))?;
            }
            EntryType::XGlobalHeader => {}
            EntryType::Char => return Err(forbidden(path, "character device")),
            EntryType::Block => return Err(forbidden(path, "block device")),
            EntryType::Fifo => return Err(forbidden(path, "FIFO")),
            kind => return Err(unhandled(kind)),
        }
        Ok(())
    }

    /// Applies the whiteout entry `base` in `folder`. A whiteout above a selected folder hides that folder too.
    fn hide(&mut self, folder: &str, base: &str) -> Result<(), UnpackError> {
        if base == OPAQUE {
            if self.folders.covers(folder) {
                self.tree.hide_below(folder);
            }
            for selected in self.folders.within(folder).filter(|selected| *selected != folder) {
                self.tree.hide(selected);
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
        if self.folders.covers(&path) {
            self.tree.hide(&path);
        }
        for selected in self.folders.within(&path) {
            self.tree.hide(selected);
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

/// Fault of a layer without a first entry.
fn not_an_archive(cause: &str) -> UnpackError {
    UnpackError::Archive(format!(
        "the layer is not a tar archive, or is damaged at its start: {cause}; a catalog or bundle is an image, not an \
         artifact of single files"
    ))
}

fn forbidden(path: &str, kind: &str) -> UnpackError {
    let allowed = "only files, folders and links are allowed";
    UnpackError::Archive(format!("entry {path:?} is a {kind}: {allowed}"))
}

fn unhandled(kind: tar::EntryType) -> UnpackError {
    UnpackError::Archive(format!("unhandled tar header type {}", kind.as_byte()))
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
        let limits = ImageLimits { unpacked_bytes: 1 << 20, ..ImageLimits::BUNDLE };
        let mut unpacker = Unpacker::new(FolderFilter::new(["configs".to_owned()]), limits, MemoryStore);
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
