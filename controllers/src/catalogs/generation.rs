//! One generation of a catalog on disk: its lines in one immutable file, and where in it each package is
//! (spec 03 §§1.3–1.5, §9 rows 1–5).
//!
//! ```text
//! <directory>/content.jsonl   the lines, as served
//! <directory>/index.json      the reference they belong to, and byte ranges by package
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use olm_fbc::{Meta, MetaError, PackageContent, read_metas};
use olm_resolve::PackageIndex;
use serde::{Deserialize, Serialize};

const CONTENT: &str = "content.jsonl";
const INDEX: &str = "index.json";
/// Changes with the meaning of the files; other formats are fetched anew.
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    format: u32,
    /// `status.resolvedSource.image.ref` of the catalog.
    reference: String,
    /// Length of the content file.
    length: u64,
    /// Offset and length of each line of a package, in the order of the catalog.
    packages: BTreeMap<String, Vec<(u64, u64)>>,
}

/// Why content cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The stream is no catalog content.
    #[error("error parsing catalog contents: {0}")]
    Content(#[from] MetaError),
    /// The disk.
    #[error("error writing catalog metadata to file: {0}")]
    Disk(#[from] io::Error),
    /// The index.
    #[error("error writing catalog metadata to file: {0}")]
    Index(#[from] serde_json::Error),
}

/// Why a package cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The disk.
    #[error("{0}")]
    Disk(#[from] io::Error),
    /// The lines are not what their schemas demand.
    #[error("{0}")]
    Model(#[from] olm_fbc::ModelError),
}

/// An open generation. Its files may be deleted while it is in use.
#[derive(Debug)]
pub(crate) struct Generation {
    index: Index,
    content: File,
    packages: Mutex<HashMap<String, Arc<PackageIndex>>>,
}

impl Generation {
    /// Takes in the content that `stream` delivers for `reference`, into the existing empty `directory`.
    pub(crate) fn write(directory: &Path, reference: &str, stream: impl Read) -> Result<Self, WriteError> {
        let mut packages: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        let mut file = BufWriter::new(File::create_new(directory.join(CONTENT))?);
        let mut offset = 0;
        read_metas::<WriteError>(stream, olm_yaml::Limits::default(), &mut |meta: Meta| {
            file.write_all(&meta.blob)?;
            let length = meta.blob.len() as u64;
            let owner = if meta.schema == olm_fbc::SCHEMA_PACKAGE { meta.name } else { meta.package };
            // Content of no package is of no use here.
            if !owner.is_empty() {
                packages.entry(owner).or_default().push((offset, length));
            }
            offset += length;
            Ok(())
        })?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        let index = Index { format: FORMAT, reference: reference.to_owned(), length: offset, packages };
        let mut file = BufWriter::new(File::create_new(directory.join(INDEX))?);
        serde_json::to_writer(&mut file, &index)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(Self::with(index, File::open(directory.join(CONTENT))?))
    }

    /// Opens what an earlier process wrote; `None` where that is not whole.
    pub(crate) fn open(directory: &Path) -> Option<Self> {
        let index: Index = serde_json::from_slice(&fs::read(directory.join(INDEX)).ok()?).ok()?;
        let content = File::open(directory.join(CONTENT)).ok()?;
        let is_whole = index.format == FORMAT && content.metadata().ok()?.len() == index.length;
        is_whole.then(|| Self::with(index, content))
    }

    fn with(index: Index, content: File) -> Self {
        Self { index, content, packages: Mutex::default() }
    }

    /// The reference whose content this is.
    pub(crate) fn reference(&self) -> &str {
        &self.index.reference
    }

    /// The package, prepared for resolving; `None` if the catalog does not have it. Reads the disk the first time.
    pub(crate) fn package(
        &self,
        name: &str,
        release_support: bool,
    ) -> Result<Option<Arc<PackageIndex>>, ReadError> {
        let Some(ranges) = self.index.packages.get(name) else {
            return Ok(None);
        };
        let known = self.packages.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let lines = ranges.iter().map(|range| self.line(*range)).collect::<Result<Vec<_>, _>>()?;
        let content = PackageContent::from_metas(name, lines.iter().map(Vec::as_slice))?;
        let package = Arc::new(PackageIndex::new(&content, release_support));
        self.packages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), Arc::clone(&package));
        Ok(Some(package))
    }

    fn line(&self, (offset, length): (u64, u64)) -> io::Result<Vec<u8>> {
        // An index of somebody else's making must not make us allocate more than the file has.
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.index.length);
        let length = usize::try_from(length).ok().filter(|_| inside);
        let mut line =
            vec![0; length.ok_or_else(|| io::Error::other("index points outside of the content"))?];
        self.content.read_exact_at(&mut line, offset)?;
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"schema":"olm.package","name":"a","defaultChannel":"s"}"#,
        "\n",
        r#"{"schema":"acme","name":"loose"}"#,
        "\n",
        r#"{"schema":"olm.bundle","package":"a","name":"a.v1","image":"i","properties":[{"type":"olm.package","value":{"packageName":"a","version":"1.0.0"}}]}"#,
        "\n",
    );

    #[test]
    fn what_was_written_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let written = Generation::write(directory.path(), "r@sha256:1", LINES.as_bytes()).unwrap();
        let opened = Generation::open(directory.path()).unwrap();
        for generation in [written, opened] {
            assert_eq!(generation.reference(), "r@sha256:1");
            let package = generation.package("a", false).unwrap().unwrap();
            assert_eq!(package.offers().map(olm_resolve::Offer::name).collect::<Vec<_>>(), ["a.v1"]);
            // spec 03 acceptance 10
            assert!(generation.package("acme", false).unwrap().is_none());
            assert!(generation.package("../a", false).unwrap().is_none());
        }
    }

    #[test]
    fn half_of_it_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Generation::open(directory.path()).is_none());
        drop(Generation::write(directory.path(), "r", LINES.as_bytes()).unwrap());
        let content = fs::read(directory.path().join(CONTENT)).unwrap();
        fs::write(directory.path().join(CONTENT), &content[..20]).unwrap();
        assert!(Generation::open(directory.path()).is_none());
    }

    // spec 03 acceptance 6
    #[test]
    fn content_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = Generation::write(directory.path(), "r", &b"{\"schema\":"[..]).unwrap_err().to_string();
        assert!(error.starts_with("error parsing catalog contents: "), "{error}");
    }
}
