//! Files of images: those of a folder, and those that a dynamically linked program needs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use olm_oci::ImagePlatform;

use crate::LayerEntry;

const CA_BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";
/// User database with the user of the servers.
const USERS: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n";
const GROUPS: &str = "root:x:0:\nnonroot:x:65532:\n";

/// Dynamically linked Linux program, with the folder that contains its loader and libraries.
#[derive(Debug, Clone)]
pub struct Program {
    /// Path of the program.
    pub path: PathBuf,
    /// Architecture with Go's name, as the ELF header states it.
    pub architecture: String,
    /// Root of an unpacked system of that architecture. `None` for the machine's own.
    root: Option<PathBuf>,
}

impl Program {
    /// Reads the architecture of the program in `path`. Libraries of another architecture than the machine's are
    /// those in `roots`/ARCHITECTURE.
    ///
    /// # Errors
    /// It cannot be read, is not an ELF file, or is for an unknown architecture.
    pub fn open(path: &Path, roots: &Path) -> Result<Self> {
        let mut header = [0; 20];
        let opened = File::open(path).and_then(|mut file| file.read_exact(&mut header));
        opened.with_context(|| format!("read {}", path.display()))?;
        let architecture = architecture(&header).with_context(|| path.display().to_string())?.to_owned();
        let is_foreign = architecture != ImagePlatform::current().architecture;
        let root = is_foreign.then(|| roots.join(&architecture));
        Ok(Self { path: path.to_owned(), architecture, root })
    }

    /// Files of an image that runs the program as `/<file name>`: the program, its loader and libraries, the
    /// machine's CA certificates, `/etc/passwd`, `/etc/group` and an empty `/tmp`.
    ///
    /// # Errors
    /// The program or one of its libraries cannot be read or found.
    pub fn files(&self) -> Result<BTreeMap<String, LayerEntry>> {
        let path = &self.path;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} names no file", path.display()))?;
        let mut files = BTreeMap::from([
            ("etc/group".to_owned(), LayerEntry::file(GROUPS)),
            ("etc/passwd".to_owned(), LayerEntry::file(USERS)),
            (CA_BUNDLE.to_owned(), LayerEntry::file(read(Path::new(&format!("/{CA_BUNDLE}")))?)),
            (name.to_owned(), LayerEntry::File { mode: 0o755, content: read(path)? }),
            ("tmp".to_owned(), LayerEntry::Dir { mode: 0o1777 }),
        ]);
        let libraries = match &self.root {
            Some(root) => foreign_libraries(path, root)?,
            None => libraries(&output("ldd", &[path.as_os_str()])?)?,
        };
        for (library, file) in libraries {
            files.insert(library, LayerEntry::File { mode: 0o755, content: read(&file)? });
        }
        Ok(files)
    }
}

/// Architecture in the header of an ELF file.
fn architecture(header: &[u8; 20]) -> Result<&'static str> {
    ensure!(header.starts_with(b"\x7fELF"), "not an ELF file");
    // Byte 5 is the byte order of `e_machine` in bytes 18 and 19: 1 is little-endian.
    match (header[5], header[18], header[19]) {
        (1, 62, 0) => Ok("amd64"),
        (1, 183, 0) => Ok("arm64"),
        (1, 21, 0) => Ok("ppc64le"),
        (2, 0, 22) => Ok("s390x"),
        (order, first, second) => bail!("unknown architecture: byte order {order}, machine {first} {second}"),
    }
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

/// Standard output of a program of the machine.
///
/// # Errors
/// It cannot be run, or fails other than `ldd` for a statically linked program.
fn output(program: &str, arguments: &[&OsStr]) -> Result<String> {
    let run = Command::new(program).args(arguments).output().with_context(|| format!("run {program}"))?;
    let errors = String::from_utf8_lossy(&run.stderr);
    let succeeded = run.status.success() || errors.contains("not a dynamic executable");
    ensure!(succeeded, "{program} {arguments:?}: {}: {}", run.status, errors.trim());
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}

/// Libraries in the output of `ldd`: `name => /path (address)` or `/path (address)`. Without any for a statically
/// linked program. Returns files by their path in an image.
fn libraries(listing: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for line in listing.lines().map(str::trim) {
        let target = line.split_once("=> ").map_or(line, |(_, target)| target);
        ensure!(target != "not found", "ldd: {line}");
        if let Some(path) = target.strip_prefix('/') {
            let path = path.split(" (").next().unwrap_or(path);
            files.insert(path.to_owned(), Path::new("/").join(path));
        }
    }
    Ok(files)
}

/// Loader and libraries of a program of another architecture, which `ldd` cannot run. Returns files in `root` by their
/// path in an image.
fn foreign_libraries(program: &Path, root: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![program.to_owned()];
    while let Some(file) = pending.pop() {
        let arguments = ["--wide", "--dynamic", "--program-headers"].map(OsStr::new);
        let listing = output("readelf", &[&arguments[..], &[file.as_os_str()]].concat())?;
        for path in needed(&listing) {
            let name = path.rsplit('/').next().unwrap_or(&path);
            if let Entry::Vacant(entry) = found.entry(name.to_owned()) {
                let library = find_library(name, root)
                    .with_context(|| format!("{}: no {name} in {}", file.display(), root.display()))?;
                pending.push(library.clone());
                // The kernel looks for the loader at the path in the program, which can be a link in the root.
                let inside = match path.strip_prefix('/') {
                    Some(path) => path.to_owned(),
                    None => library.strip_prefix(root)?.to_str().context("path is not UTF-8")?.to_owned(),
                };
                entry.insert((inside, library));
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Path of the loader and names of needed libraries in the output of `readelf`.
fn needed(listing: &str) -> Vec<String> {
    let name = |line: &str| {
        let (_, rest) = line.split_once("interpreter: ").or_else(|| line.split_once("(NEEDED)"))?;
        Some(rest.trim().trim_start_matches("Shared library:").trim_matches([' ', '[', ']']).to_owned())
    };
    listing.lines().filter_map(name).collect()
}

/// Library in `root`: in `lib`, or a folder of it such as `lib/aarch64-linux-gnu`.
fn find_library(name: &str, root: &Path) -> Option<PathBuf> {
    let lib = root.join("lib");
    let mut folders: Vec<PathBuf> = lib
        .read_dir()
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders.insert(0, lib);
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_parses_ldd_output() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["lib/x86_64-linux-gnu/libm.so.6", "lib64/ld-linux-x86-64.so.2"];
        let expected = expected.map(|path| (path.to_owned(), Path::new("/").join(path)));
        assert_eq!(libraries(listing).unwrap(), BTreeMap::from(expected));
        assert_eq!(libraries("\tstatically linked\n").unwrap(), BTreeMap::new());
        let error = libraries("\tlibx.so => not found\n").unwrap_err().to_string();
        assert_eq!(error, "ldd: libx.so => not found");
    }

    #[test]
    fn files_include_the_loader_and_libraries() {
        let program = Program::open(&std::env::current_exe().unwrap(), Path::new("/nowhere")).unwrap();
        assert_eq!(program.architecture, ImagePlatform::current().architecture);
        let files = program.files().unwrap();
        assert!(files.keys().any(|path| path.contains("ld-linux")), "{:?}", files.keys());
        assert!(files.keys().any(|path| path.ends_with("libc.so.6")), "{:?}", files.keys());
        assert_eq!(files["tmp"], LayerEntry::Dir { mode: 0o1777 });
    }

    // The machine's own root and libraries stand for those of another architecture.
    #[test]
    fn libraries_of_foreign_program_are_found_like_those_of_ldd() {
        let program = std::env::current_exe().unwrap();
        let names = |files: &BTreeMap<String, PathBuf>| {
            let name = |path: &String| path.rsplit('/').next().unwrap().to_owned();
            files.keys().map(name).collect::<std::collections::BTreeSet<_>>()
        };
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/some-linux-gnu");
        std::fs::create_dir_all(&folder).unwrap();
        let expected = libraries(&output("ldd", &[program.as_os_str()]).unwrap()).unwrap();
        for file in expected.values() {
            std::fs::copy(file, folder.join(file.file_name().unwrap())).unwrap();
        }
        let found = foreign_libraries(&program, root.path()).unwrap();
        assert_eq!(names(&found), names(&expected));
        // The loader is where the program expects it, wherever the root has it.
        let loader =
            |files: &BTreeMap<String, PathBuf>| files.keys().find(|path| path.contains("/ld-linux")).cloned();
        assert_eq!(loader(&found), loader(&expected));
        std::fs::remove_file(folder.join("libc.so.6")).unwrap();
        let error = foreign_libraries(&program, root.path()).unwrap_err().to_string();
        assert!(error.contains(": no libc.so.6 in "), "{error}");
        let script = root.path().join("script");
        std::fs::write(&script, "#!/bin/sh").unwrap();
        let error = foreign_libraries(&script, root.path()).unwrap_err().to_string();
        assert!(error.contains("exit status: 1: readelf: Error: "), "{error}");
    }

    #[test]
    fn needed_parses_readelf_output() {
        let listing = "      [Requesting program interpreter: /lib/ld-linux-aarch64.so.1]\n \
                       0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n";
        assert_eq!(needed(listing), ["/lib/ld-linux-aarch64.so.1", "libc.so.6"]);
    }

    #[test]
    fn architecture_is_read_from_elf_header() {
        let header = |order: u8, first: u8, second: u8| {
            let mut header = [0; 20];
            header[..4].copy_from_slice(b"\x7fELF");
            (header[5], header[18], header[19]) = (order, first, second);
            header
        };
        assert_eq!(architecture(&header(1, 62, 0)).unwrap(), "amd64");
        assert_eq!(architecture(&header(1, 183, 0)).unwrap(), "arm64");
        assert_eq!(architecture(&header(1, 21, 0)).unwrap(), "ppc64le");
        assert_eq!(architecture(&header(2, 0, 22)).unwrap(), "s390x");
        assert!(architecture(&header(2, 0, 21)).is_err());
        assert_eq!(architecture(&[0; 20]).unwrap_err().to_string(), "not an ELF file");
    }
}
