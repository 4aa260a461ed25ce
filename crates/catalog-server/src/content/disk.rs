//! File operations of the store.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Reads the start of `range` into `buffer`, as much as fits. Returns the number of bytes.
///
/// # Errors
/// The file ends before the range does.
pub fn read_range(file: &File, range: Range<u64>, buffer: &mut [u8]) -> io::Result<usize> {
    let left = range.end.saturating_sub(range.start);
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    olm_os::read_exact_at(file, &mut buffer[..length], range.start)?;
    Ok(length)
}

/// Removes `path`, and logs failures. The next attempt or start retries.
pub(super) fn discard(path: &Path) {
    if let Err(error) = remove(path) {
        tracing::warn!(path = %path.display(), %error, "failed to remove leftover");
    }
}

/// Removes `path` of any kind, read-only directories and special files included. Succeeds if it is absent.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => olm_oci::remove_folder(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
