//! Windows.

use std::ffi::OsString;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::FileExt;
use std::path::{Path, PathBuf};

/// Has no effect: a file or folder inherits the access list of its folder.
///
/// # Errors
/// None.
pub fn set_mode(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

/// Creates a file for writing. It inherits the access list of its folder.
///
/// # Errors
/// The file exists, or cannot be created.
pub fn create_new(path: &Path, _mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Fills `buffer` from `offset`. Moves the cursor of the file.
///
/// # Errors
/// The file ends before the buffer is full, or cannot be read.
pub fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        let read = file.seek_read(buffer, offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer = &mut buffer[read..];
        offset += read as u64;
    }
    Ok(())
}

/// Writes the start of `bytes` at `offset`. Returns the number of bytes. Moves the cursor of the file.
///
/// # Errors
/// Those of the system.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(bytes, offset)
}

/// Has no effect: a directory cannot be synced.
///
/// # Errors
/// None.
pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Unknown, and thus no limit.
///
/// # Errors
/// None.
pub fn free_bytes(_: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

/// Zero: the standard library has no number of a file.
pub fn inode(_: &Metadata) -> u64 {
    0
}

/// `false`: pipes have no names in folders.
pub fn is_pipe(_: FileType) -> bool {
    false
}

/// A number other than that of root: users have none.
pub fn user_id() -> u32 {
    1
}

/// Value of an environment variable. That of `HOME` is also in `USERPROFILE`.
pub fn variable(name: &str) -> Option<OsString> {
    let profile = || std::env::var_os("USERPROFILE").filter(|_| name == "HOME");
    std::env::var_os(name).or_else(profile)
}

/// None: such a path begins at the current drive, where every user can create it.
pub fn system_paths<const N: usize>(_: [&str; N]) -> Vec<PathBuf> {
    Vec::new()
}

/// Waits for Ctrl+C.
///
/// # Errors
/// It cannot be handled.
pub async fn stop_signal() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}

/// Terminal that does not show what [`HiddenInput::read_line`] reads.
pub struct HiddenInput;

impl HiddenInput {
    /// Has no effect.
    ///
    /// # Errors
    /// None.
    pub fn start() -> io::Result<Self> {
        Ok(Self)
    }

    /// Line that is typed. Blocks.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_line() -> io::Result<String> {
        console::Term::stderr().read_secure_line()
    }
}
