//! Differences between Linux, macOS and Windows: permissions, positioned reads, signals, hidden input, paths, trust.
//!
//! All functions exist on each system. Servers run on Linux only: code that only servers need does not belong here.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod not_linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub use linux::{limit_unsent, read_cached, trusted_certificates};
#[cfg(not(target_os = "linux"))]
pub use not_linux::{limit_unsent, read_cached, trusted_certificates};
#[cfg(unix)]
pub use unix::{
    HiddenInput, create_new, free_bytes, inode, is_pipe, read_exact_at, set_mode, stop_signal,
    sync_directory, system_paths, user_id, variable, write_at,
};
#[cfg(windows)]
pub use windows::{
    HiddenInput, create_new, free_bytes, inode, is_pipe, read_exact_at, set_mode, stop_signal,
    sync_directory, system_paths, user_id, variable, write_at,
};

/// Reports whether this system reads each segment of a slash-separated path of an archive as the name of one file.
pub fn is_plain(path: &str) -> bool {
    !cfg!(windows) || is_plain_on_windows(path)
}

/// Windows has more separators, and removes final dots and blanks.
fn is_plain_on_windows(path: &str) -> bool {
    path.split('/').all(|name| !name.contains(['\\', ':']) && !name.ends_with(['.', ' ']))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn path_that_windows_would_split_is_not_plain() {
        for (path, expected) in [
            ("configs/a.b/index.yaml", true),
            ("configs/..\\..\\x", false),
            ("configs/C:x", false),
            ("configs/.. /x", false),
            ("configs/.../x", false),
        ] {
            assert_eq!(is_plain_on_windows(path), expected, "{path}");
            assert_eq!(is_plain(path), expected || !cfg!(windows), "{path}");
        }
    }

    #[test]
    fn positioned_writes_and_reads_need_no_cursor() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(write_at(&file, b"world", 6).unwrap(), 5);
        assert_eq!(write_at(&file, b"hello ", 0).unwrap(), 6);
        let mut read = [0; 11];
        read_exact_at(&file, &mut read, 0).unwrap();
        assert_eq!(&read, b"hello world");
        assert_eq!(read_exact_at(&file, &mut read, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[cfg(unix)]
    #[test]
    fn new_file_has_mode_and_replaces_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let mode = |file: &File| file.metadata().unwrap().permissions().mode() & 0o777;
        let file = create_new(&path, 0o600).unwrap();
        assert_eq!(mode(&file), 0o600);
        assert_eq!(create_new(&path, 0o600).unwrap_err().kind(), ErrorKind::AlreadyExists);
        set_mode(&path, 0o444).unwrap();
        assert_eq!(mode(&file), 0o444);
    }
}
