//! Entry points for the fuzz targets: images from disk, without the disk.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::files::{Files, archived};
use crate::{Image, PackError, read};

/// Files of a tar archive.
///
/// # Errors
/// It is not one, or too large.
pub fn archive(bytes: &[u8]) -> Result<BTreeMap<String, Bytes>, PackError> {
    archived(Path::new("archive"), Cursor::new(bytes))
}

/// Image in the files of a layout, or of an archive of `docker save`.
///
/// # Errors
/// Those of [`read_layout`](crate::read_layout), or with `is_whole` of [`read_whole_layout`](crate::read_whole_layout).
pub fn image(files: BTreeMap<String, Bytes>, is_whole: bool) -> Result<Image, PackError> {
    let path = PathBuf::from("archive");
    read::of_files(&Files::Archive { path: path.clone(), files }, &path, is_whole)
}
