//! A file with one value, its key and a checksum that shows damage: checksum, key and content, separated by line
//! breaks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// End of the names of temporary files.
const TEMPORARY: &str = ".tmp";

/// Maximum size of a file that is read. Image limits keep stored files below it, rendered or encoded.
const MAX_BYTES: u64 = 256 << 20;

/// Returns the content stored under `key`, which must not contain a line break, or `None` if there is no intact one.
pub(super) fn read(path: &Path, key: &str) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut all).ok()?;
    let (checksum, rest) = split(&all)?;
    let (found, content) = split(rest)?;
    let is_whole = found == key.as_bytes() && checksum == checksum_of(key, content).as_bytes();
    let start = all.len() - content.len();
    is_whole.then(|| all.split_off(start))
}

/// Replaces the file atomically, with the mode of temporary files, 0600, because the configuration of an extension may
/// be secret. A failed attempt removes its temporary file, since the disk may be full.
pub(super) fn write(path: &Path, key: &str, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let prefix = format!("{}.", path.file_stem().unwrap_or_default().display());
    let mut file = tempfile::Builder::new().prefix(&prefix).suffix(TEMPORARY).tempfile_in(folder)?;
    file.write_all(format!("{}\n{key}\n", checksum_of(key, content)).as_bytes())?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

/// Removes the temporary files of killed processes. No other task may write to the folder. Failures are ignored: the
/// files are removed with the folder, or when the digest in their name is not needed.
pub(super) fn remove_temporary(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(TEMPORARY) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn checksum_of(key: &str, content: &[u8]) -> String {
    hex::encode(Sha256::new().chain_update(key).chain_update("\n").chain_update(content).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_intact_file_with_matching_key_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x/rendered");
        assert_eq!(read(&path, "a"), None);
        write(&path, "a", b"one\ntwo").unwrap();
        assert_eq!(read(&path, "a").unwrap(), b"one\ntwo");
        assert_eq!(read(&path, "b"), None);
        let left = directory.path().join("x/rendered.1.tmp");
        fs::write(&left, "").unwrap();
        remove_temporary(&directory.path().join("x"));
        assert!(!left.exists());
        let whole = fs::read(&path).unwrap();
        for position in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[position] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(read(&path, "a"), None, "byte {position}");
            fs::write(&path, &whole[..position]).unwrap();
            assert_eq!(read(&path, "a"), None, "cut at {position}");
        }
        write(&path, "b", b"").unwrap();
        assert_eq!((read(&path, "a"), read(&path, "b")), (None, Some(Vec::new())));
        assert_eq!(fs::read_dir(directory.path().join("x")).unwrap().count(), 1);
    }

    #[test]
    fn failed_write_removes_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rendered");
        fs::create_dir_all(path.join("in the way")).unwrap();
        assert!(write(&path, "a", b"one").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
