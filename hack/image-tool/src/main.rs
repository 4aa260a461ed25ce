//! `olm-image`: builds an OCI image of a server binary, a catalog folder or a bundle folder, without a container
//! engine.
//!
//! Prints the image's name with its digest. `hack/image` runs it for the servers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use olm_image::{
    Build, Image, Layer, LayerEntry, Push, Runtime, bill_of_materials, provenance, push, runtime_files,
    write_archive,
};
use olm_oci::{Credentials, Platform};

/// Numeric user and group of the servers.
const NONROOT: &str = "65532:65532";

/// Build OCI images without a container engine
#[derive(Parser)]
#[command(name = "olm-image")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build an image that runs a program, with its shared libraries
    Binary {
        /// Program to run. The image's entrypoint is its file name in the image root
        #[arg(long)]
        binary: PathBuf,
        /// Output of `cargo tree --prefix none --format '{p}|{l}'` for the program's crate. Adds a bill of materials
        /// to the image as /usr/share/sbom/NAME.cdx.json
        #[arg(long, value_name = "FILE")]
        crates: Option<PathBuf>,
        #[command(flatten)]
        built: Built,
        #[command(flatten)]
        target: Target,
    },
    /// Build a catalog image of a folder of file-based catalog content
    Catalog {
        /// Folder with the content
        folder: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Build a bundle image of a folder with manifests/ and metadata/
    Bundle {
        /// Folder with the bundle
        folder: PathBuf,
        #[command(flatten)]
        target: Target,
    },
}

/// Build information of the program.
#[derive(Args, Default)]
struct Built {
    /// Cargo.lock of the program. Adds build provenance to the image as /usr/share/provenance/NAME.intoto.json
    #[arg(long, value_name = "FILE", requires_all = ["profile", "rustc"])]
    lock: Option<PathBuf>,
    /// Cargo profile of the build
    #[arg(long, requires = "lock", default_value = "")]
    profile: String,
    /// Output of `rustc --version`
    #[arg(long, requires = "lock", default_value = "")]
    rustc: String,
    /// Git commit of the source
    #[arg(long, value_name = "COMMIT", requires = "lock")]
    revision: Option<String>,
    /// The source has uncommitted changes
    #[arg(long, requires = "revision")]
    modified: bool,
}

#[derive(Args)]
struct Target {
    /// Name of the image in the archive, REGISTRY/REPOSITORY:TAG
    #[arg(long, requires = "output")]
    name: Option<String>,
    /// Write an OCI archive to this file
    #[arg(long, requires = "name", required_unless_present = "push")]
    output: Option<PathBuf>,
    /// Push to this reference, REGISTRY/REPOSITORY:TAG
    #[arg(long, value_name = "REFERENCE")]
    push: Option<String>,
    /// PEM file with certificates to trust in addition to the system's
    #[arg(long, requires = "push")]
    ca: Option<PathBuf>,
    /// Registry credentials, in the format of ~/.docker/config.json
    #[arg(long, env = "REGISTRY_AUTH_FILE")]
    auth_file: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Cannot fail: nothing else in this process installs a provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run(Cli::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("olm-image: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Binary { binary, crates, built, target } => {
            deliver(&program(&binary, crates.as_deref(), &built)?, &target).await
        }
        Command::Catalog { folder, target } => {
            deliver(&Image::catalog(&read_folder(&folder)?)?, &target).await
        }
        Command::Bundle { folder, target } => {
            let image =
                Image::bundle(&read_folder(&folder)?).with_context(|| folder.display().to_string())?;
            deliver(&image, &target).await
        }
    }
}

/// By default glibc caches freed memory per thread, which is a third of the memory of a server.
const ARENAS: &str = "MALLOC_ARENA_MAX=1";

fn program(binary: &Path, crates: Option<&Path>, built: &Built) -> Result<Image> {
    let name = binary.file_name().and_then(|name| name.to_str()).context("--binary names no file")?;
    let runtime = Runtime {
        architecture: Platform::current().architecture,
        entrypoint: vec![format!("/{name}")],
        user: Some(NONROOT.to_owned()),
        env: vec!["PATH=/".to_owned(), ARENAS.to_owned()],
    };
    let mut files = runtime_files(binary)?;
    if let (Some(path), Some(LayerEntry::File { content, .. })) = (&built.lock, files.get(name)) {
        let lock = std::fs::read(path).with_context(|| path.display().to_string())?;
        let Built { profile, rustc, revision, modified, .. } = built;
        let build = Build { profile, rustc, lock: &lock, revision: revision.as_deref(), modified: *modified };
        let stated = provenance(name, content, &build)?;
        files.insert(
            format!("usr/share/provenance/{name}.intoto.json"),
            LayerEntry::file(format!("{stated:#}\n")),
        );
    }
    if let Some(path) = crates {
        let listed = || path.display().to_string();
        let tree = std::fs::read_to_string(path).with_context(listed)?;
        let bill = bill_of_materials(name, &tree, &files).with_context(listed)?;
        files.insert(format!("usr/share/sbom/{name}.cdx.json"), LayerEntry::file(format!("{bill:#}\n")));
    }
    Ok(Image::new(vec![Layer::new(&files)?], &BTreeMap::new(), &runtime)?)
}

async fn deliver(image: &Image, target: &Target) -> Result<()> {
    if let (Some(path), Some(name)) = (&target.output, &target.name) {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        write_archive(image, name, BufWriter::new(file))?;
        print_reference(name, image);
    }
    if let Some(reference) = &target.push {
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("read {}", path.display()));
        let options = Push {
            ca_pem: target.ca.as_ref().map(read).transpose()?,
            credentials: match &target.auth_file {
                None => Credentials::default(),
                Some(path) => Credentials::parse(&read(path)?)
                    .with_context(|| format!("credentials {}", path.display()))?,
            },
        };
        push(reference, image, &options).await?;
        print_reference(reference, image);
    }
    Ok(())
}

/// Prints `registry/repository@digest`. The last colon of `name` begins the tag, unless it begins a port.
fn print_reference(name: &str, image: &Image) {
    let repository = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    };
    println!("{repository}@{}", image.digest());
}

/// All regular files below `folder` by relative path, following symbolic links.
fn read_folder(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
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
                let content = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                files.insert(inside, content);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    // docs/design/operations.md#hardening: supply chain of our images
    #[test]
    fn same_program_yields_the_same_image_digest() {
        let folder = tempfile::tempdir().unwrap();
        let (binary, crates) = (folder.path().join("catalogd"), folder.path().join("crates"));
        std::fs::copy("/bin/true", &binary).unwrap();
        std::fs::write(&crates, "catalogd v0.1.0 (/somewhere)|Apache-2.0\nserde v1.0.2|MIT\n").unwrap();
        let nothing = Built::default();
        let image = program(&binary, Some(&crates), &nothing).unwrap();
        assert_eq!(image.digest(), program(&binary, Some(&crates), &nothing).unwrap().digest());
        // Bill of materials and provenance are part of the image.
        assert_ne!(image.digest(), program(&binary, None, &nothing).unwrap().digest());
        let built = |rustc: &str| Built {
            lock: Some(crates.clone()),
            profile: "release".to_owned(),
            rustc: rustc.to_owned(),
            ..Built::default()
        };
        let one = program(&binary, Some(&crates), &built("rustc 1.95.0")).unwrap();
        assert_eq!(one.digest(), program(&binary, Some(&crates), &built("rustc 1.95.0")).unwrap().digest());
        assert_ne!(one.digest(), image.digest());
        assert_ne!(one.digest(), program(&binary, Some(&crates), &built("rustc 1.96.0")).unwrap().digest());
    }
}
