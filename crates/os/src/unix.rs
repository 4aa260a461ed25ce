//! Linux and macOS.

use std::ffi::OsString;
use std::fs::{self, File, FileType, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

/// Sets the permission bits of a file or folder.
///
/// # Errors
/// Those of the system.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Creates a file with these permission bits, for writing.
///
/// # Errors
/// The file exists, or cannot be created.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Fills `buffer` from `offset`.
///
/// # Errors
/// The file ends before the buffer is full, or cannot be read.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Writes the start of `bytes` at `offset`. Returns the number of bytes.
///
/// # Errors
/// Those of the system.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(bytes, offset)
}

/// Syncs a directory, so that its names survive a power failure.
///
/// # Errors
/// Those of the system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Free bytes of the disk that holds `path`.
///
/// # Errors
/// Those of the system.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Number that differs between a file and its replacement.
pub fn inode(metadata: &Metadata) -> u64 {
    metadata.ino()
}

/// Reports whether reading such a file waits for a writer.
pub fn is_pipe(kind: FileType) -> bool {
    kind.is_fifo()
}

/// User ID of this process.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Value of an environment variable.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Paths that belong to the administrator.
pub fn system_paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
    paths.map(PathBuf::from).to_vec()
}

/// Waits for a signal that ends the process: SIGINT or SIGTERM.
///
/// # Errors
/// The signals cannot be handled.
pub async fn stop_signal() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}

/// Terminal that does not show what is typed, until the drop.
pub struct HiddenInput(Termios);

impl HiddenInput {
    /// Hides what is typed from now on.
    ///
    /// # Errors
    /// Standard input is not a terminal.
    pub fn start() -> io::Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }

    /// Line that is typed, with its end. Blocks.
    ///
    /// # Errors
    /// Those of the system.
    pub fn read_line() -> io::Result<String> {
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        // The end of the line is hidden, too.
        writeln!(io::stderr())?;
        Ok(line)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // There is nowhere to report an error.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &self.0);
    }
}
