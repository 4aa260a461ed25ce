//! Files of images: those of a folder, and those that a dynamically linked program needs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::LayerEntry;

const CA_BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";
/// User database with the user of the servers.
const USERS: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n";
const GROUPS: &str = "root:x:0:\nnonroot:x:65532:\n";

/// Files of an image that runs `program` as `/<file name>`: the program, the loader and libraries that `ldd` lists
/// for it, the machine's CA certificates, `/etc/passwd`, `/etc/group` and an empty `/tmp`.
///
/// # Errors
/// `program` or one of its libraries cannot be read, or `ldd` does not find one.
pub fn runtime_files(program: &Path) -> Result<BTreeMap<String, LayerEntry>> {
    let name = program
        .file_name()
        .and_then(|name| name.to_str())
        .with_context(|| format!("{program:?} names no file"))?;
    let mut files = BTreeMap::from([
        ("etc/group".to_owned(), LayerEntry::file(GROUPS)),
        ("etc/passwd".to_owned(), LayerEntry::file(USERS)),
        (CA_BUNDLE.to_owned(), LayerEntry::file(read(Path::new(&format!("/{CA_BUNDLE}")))?)),
        (name.to_owned(), LayerEntry::File { mode: 0o755, content: read(program)? }),
        ("tmp".to_owned(), LayerEntry::Dir { mode: 0o1777 }),
    ]);
    let ldd = Command::new("ldd").arg(program).output().context("run ldd")?;
    let listing = String::from_utf8_lossy(&ldd.stdout);
    for path in libraries(&listing)? {
        files.insert(
            path.trim_start_matches('/').to_owned(),
            LayerEntry::File { mode: 0o755, content: read(Path::new(path))? },
        );
    }
    Ok(files)
}

/// All regular files below `folder` by relative path, following symbolic links.
///
/// # Errors
/// A file or folder cannot be read, or a name is not UTF-8. The error contains its path.
pub fn read_folder(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![String::new()];
    while let Some(parent) = pending.pop() {
        let path = folder.join(&parent);
        let listing = std::fs::read_dir(&path).with_context(|| format!("read {}", path.display()))?;
        for entry in listing {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.with_context(|| format!("{} is not UTF-8", path.display()))?;
            let inside = if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
            if path.is_dir() {
                pending.push(inside);
            } else {
                let content = read(&path)?;
                files.insert(inside, content);
            }
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Absolute paths in the output of `ldd`: `name => /path (address)` or `/path (address)`. Empty for a statically
/// linked program.
fn libraries(listing: &str) -> Result<Vec<&str>> {
    let mut paths = Vec::new();
    for line in listing.lines().map(str::trim) {
        let target = line.split_once("=> ").map_or(line, |(_, target)| target);
        ensure!(target != "not found", "ldd: {line}");
        if target.starts_with('/') {
            paths.push(target.split(" (").next().unwrap_or(target));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_parses_ldd_output() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(listing).unwrap(), expected);
        assert_eq!(libraries("\tstatically linked\n").unwrap(), [""; 0]);
        let error = libraries("\tlibx.so => not found\n").unwrap_err().to_string();
        assert_eq!(error, "ldd: libx.so => not found");
    }

    #[test]
    fn runtime_files_include_the_loader_and_libraries() {
        let files = runtime_files(&std::env::current_exe().unwrap()).unwrap();
        assert!(files.keys().any(|path| path.contains("ld-linux")), "{:?}", files.keys());
        assert!(files.keys().any(|path| path.ends_with("libc.so.6")), "{:?}", files.keys());
        assert_eq!(files["tmp"], LayerEntry::Dir { mode: 0o1777 });
    }
}
