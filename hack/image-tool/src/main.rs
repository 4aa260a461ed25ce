//! `olm-image`: builds an OCI image of a server binary or of a catalog folder, without a container engine.
//!
//! Prints the image's name with its digest. `hack/image` runs it for the servers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use olm_image::{
    Image, ImageIndex, Layer, Program, Push, Runtime, push, push_index, read_folder, write_archive,
    write_index_archive,
};
use olm_oci::Credentials;

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
        /// Program to run. The image's entrypoint is its file name in the image root. Given for several
        /// architectures, an index of one image each is built
        #[arg(long, required = true)]
        binary: Vec<PathBuf>,
        /// Folder with the libraries of other architectures: ROOTS/ARCHITECTURE/lib
        #[arg(long, default_value = "/nonexistent")]
        roots: PathBuf,
        #[command(flatten)]
        destination: Destination,
    },
    /// Build a catalog image of a folder of file-based catalog content
    Catalog {
        /// Folder with the content
        folder: PathBuf,
        #[command(flatten)]
        destination: Destination,
    },
}

#[derive(Args)]
struct Destination {
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
    let (built, destination) = match command {
        Command::Binary { binary, roots, destination } => (program_images(&binary, &roots)?, destination),
        Command::Catalog { folder, destination } => {
            (Built::Image(Image::catalog(&read_folder(&folder)?)?), destination)
        }
    };
    write_image(&built, &destination).await
}

/// Image, or index of images.
enum Built {
    Image(Image),
    Index(ImageIndex),
}

impl Built {
    fn digest(&self) -> String {
        match self {
            Self::Image(image) => image.digest(),
            Self::Index(index) => index.digest(),
        }
    }
}

/// Image of the only program, or index of the images of several.
fn program_images(binaries: &[PathBuf], roots: &Path) -> Result<Built> {
    let mut images = BTreeMap::new();
    for binary in binaries {
        let program = Program::open(binary, roots)?;
        let image = program_image(&program)?;
        if let [_] = binaries {
            return Ok(Built::Image(image));
        }
        let replaced = images.insert(program.architecture.clone(), image);
        ensure!(replaced.is_none(), "--binary: two programs are for {}", program.architecture);
    }
    Ok(Built::Index(ImageIndex::new(images)?))
}

/// By default glibc caches freed memory per thread, which is a third of the memory of a server.
const ARENAS: &str = "MALLOC_ARENA_MAX=1";

fn program_image(program: &Program) -> Result<Image> {
    let name = program.path.file_name().and_then(|name| name.to_str()).context("--binary names no file")?;
    let runtime = Runtime {
        architecture: program.architecture.clone(),
        entrypoint: vec![format!("/{name}")],
        user: Some(NONROOT.to_owned()),
        env: vec!["PATH=/".to_owned(), ARENAS.to_owned()],
    };
    Ok(Image::new(vec![Layer::new(&program.files()?)?], &BTreeMap::new(), &runtime)?)
}

/// Writes the archive, then pushes, as far as `destination` says.
async fn write_image(built: &Built, destination: &Destination) -> Result<()> {
    if let (Some(path), Some(name)) = (&destination.output, &destination.name) {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let out = BufWriter::new(file);
        match built {
            Built::Image(image) => write_archive(image, name, out)?,
            Built::Index(index) => write_index_archive(index, name, out)?,
        }
        print_reference(name, built);
    }
    if let Some(reference) = &destination.push {
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("read {}", path.display()));
        let options = Push {
            ca_pem: destination.ca.as_ref().map(read).transpose()?,
            credentials: match &destination.auth_file {
                None => Credentials::default(),
                Some(path) => Credentials::parse(&read(path)?)
                    .with_context(|| format!("credentials {}", path.display()))?,
            },
        };
        match built {
            Built::Image(image) => push(reference, image, &options).await?,
            Built::Index(index) => push_index(reference, index, &options).await?,
        };
        print_reference(reference, built);
    }
    Ok(())
}

/// Prints `registry/repository@digest`. The last colon of `name` begins the tag, unless it begins a port.
fn print_reference(name: &str, built: &Built) {
    let repository = match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    };
    println!("{repository}@{}", built.digest());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    // docs/design/operations.md#hardening: supply chain of our images
    #[test]
    fn same_program_yields_the_same_image_digest() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("catalogd");
        std::fs::copy("/bin/true", &binary).unwrap();
        let digest = || program_images(std::slice::from_ref(&binary), Path::new("/")).unwrap().digest();
        let first = digest();
        assert_eq!(digest(), first);
        std::fs::copy("/bin/false", &binary).unwrap();
        assert_ne!(digest(), first);
    }

    #[test]
    fn second_program_for_one_architecture_is_rejected() {
        let binaries = ["/bin/true", "/bin/false"].map(PathBuf::from);
        let error = program_images(&binaries, Path::new("/")).err().unwrap().to_string();
        assert!(error.starts_with("--binary: two programs are for "), "{error}");
    }
}
