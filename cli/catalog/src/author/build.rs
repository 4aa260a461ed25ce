//! `olm catalog build`: builds a catalog image from a directory, without a container engine
//! (docs/design/cli.md#authoring-commands).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::output::{Format, FormatArgs};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{DirectoryFolder, ImageArgs, tagged_reference, temporary_directory};
use olm_fbc::{Entry, Folder, LoadLimits, validate_folder};
use olm_pack::{Image, write_layout};
use serde::Serialize;

use super::catalog_dir::at;
use super::compose::{self, Composition};
use crate::validate::{finding_line, levels};

/// Help text of `olm catalog build`.
pub(crate) const ABOUT: &str = "Build a catalog image

Checks the catalog as `validate` does, packs its files (without those that .indexignore excludes) into an OCI \
image layout, and prints the digest. The same content always yields the same digest. Without --to, only the check \
is made and the digest printed.

With --file, the catalog is composed first, from the catalog and bundle images that a file lists:

  name: my-catalog
  repo: registry.example.com/team/catalog
  tag: v1
  references:
  - name: my-operator
    image: registry.example.com/team/my-operator-catalog:v1";

/// Arguments of `olm catalog build`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} catalog build ./catalog                     # check, and print the digest
  {olm} catalog build ./catalog --to ./catalog.oci --tag registry.example.com/team/catalog:v1
  {olm} catalog push ./catalog.oci registry.example.com/team/catalog:v1
  {olm} catalog build --file catalog.yaml ./catalog --to ./catalog.oci")]
pub struct CatalogBuildArgs {
    /// Catalog directory; with --file an empty or new one, which keeps the rendered files
    #[arg(value_name = "DIR", required_unless_present = "file")]
    catalog: Option<PathBuf>,
    /// Compose the catalog from the images that this file lists
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write the image to this directory, as an OCI image layout
    #[arg(long, value_name = "LAYOUT")]
    to: Option<PathBuf>,
    /// Name of the image in the layout, REGISTRY/REPOSITORY:TAG
    #[arg(long, value_name = "REF")]
    tag: Option<String>,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Built image as JSON or YAML.
#[derive(Debug, Serialize)]
struct BuiltImage<'a> {
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layout: Option<PathBuf>,
    /// Files in the image, relative to its content folder.
    files: &'a [String],
}

/// Image and its list of files.
pub struct Built {
    /// The image, which is not written yet.
    pub image: Image,
    /// Paths relative to the content folder.
    pub files: Vec<String>,
}

impl Built {
    /// Writes the image to the directory `layout`, if any, under the name `tag`, and prints the result as a document of
    /// this `kind`.
    ///
    /// # Errors
    /// The layout or standard output cannot be written.
    pub fn finish(
        &self,
        kind: &'static str,
        layout: Option<PathBuf>,
        tag: Option<String>,
        format: Format,
        session: &mut Session,
    ) -> Result<(), CliError> {
        if let Some(layout) = &layout {
            write_layout(&self.image, tag.as_deref(), layout)?;
        }
        let built = BuiltImage { digest: self.image.digest(), tag, layout, files: &self.files };
        session.output.result(format, kind, &built, |built| format!("{}\n", built.digest))
    }
}

/// Runs the command.
///
/// # Errors
/// The catalog is not valid ([`CliError::Findings`]), cannot be read, or the image cannot be written.
pub(crate) async fn run(args: CatalogBuildArgs, session: &mut Session) -> Result<(), CliError> {
    let mut tag = args.tag.as_deref().map(tagged_reference).transpose()?.map(|tag| tag.to_string());
    let built = match (&args.file, &args.catalog) {
        (Some(file), catalog) => {
            let composition = Composition::read(file)?;
            tag = tag.or_else(|| Some(composition.image.to_string()));
            // Without a directory argument, the rendered files live until the image is built.
            let temporary = temporary_directory()?;
            let root = catalog.as_deref().unwrap_or_else(|| temporary.path());
            compose::write(&composition, root, &args.images, session).await?;
            image_of(root, session)?
        }
        (None, Some(catalog)) => image_of(catalog, session)?,
        (None, None) => return Err(CliError::usage("specify a catalog directory or --file")),
    };
    built.finish("BuiltCatalog", args.to, tag, args.format.output, session)
}

/// Checks the catalog in `root` and builds its image.
///
/// # Errors
/// The catalog is invalid, which is printed, or cannot be read.
pub(crate) fn image_of(root: &Path, session: &Session) -> Result<Built, CliError> {
    let step = session.progress.step(format!("checking {}", root.display()));
    let folder = RecordingFolder {
        folder: DirectoryFolder::open(root).map_err(|failure| at(root, failure))?,
        files: RefCell::default(),
    };
    let report = validate_folder(&folder, &LoadLimits::default(), false);
    session.check()?;
    let files = folder.files.into_inner();
    if !report.is_valid() {
        drop(step);
        report.findings.iter().for_each(|finding| say(&finding_line(finding)));
        say(&format!("{}: {}, no image was built", root.display(), levels(&report.findings)));
        return Err(CliError::Findings);
    }
    check_unpackable(root, &files)?;
    if files.keys().all(|path| path.rsplit('/').next() == Some(".indexignore")) {
        return Err(CliError::at(root.display(), "the directory has no catalog content"));
    }
    step.update(format!("packing {}", root.display()));
    let image = Image::catalog(&files)?;
    Ok(Built { image, files: files.into_keys().collect() })
}

/// Fails if a cluster would not unpack the files. In the image their paths begin with `configs/`.
fn check_unpackable(root: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<(), CliError> {
    let limits = olm_oci::ImageLimits::CATALOG;
    for path in files.keys().map(|path| format!("configs/{path}")) {
        let (depth, length) = (path.split('/').count() as u64, path.len() as u64);
        for (what, value, limit) in
            [("path segments", depth, limits.path_depth), ("bytes of path", length, limits.path_bytes)]
        {
            if value > limit {
                let why = format!("{path} has {value} {what}, more than the limit of {limit} on a cluster");
                return Err(CliError::at(root.display(), why));
            }
        }
    }
    Ok(())
}

/// Folder that records all bytes read from it, so that the image has exactly the bytes that were checked.
struct RecordingFolder {
    folder: DirectoryFolder,
    files: RefCell<BTreeMap<String, Vec<u8>>>,
}

impl Folder for RecordingFolder {
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.folder.entries(directory)
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>> {
        let mut content = Vec::new();
        let limit = olm_oci::ImageLimits::CATALOG.file_bytes;
        self.folder.open(file)?.take(limit + 1).read_to_end(&mut content)?;
        // A cluster would not unpack such a file.
        if content.len() as u64 > limit {
            return Err(io::Error::other(format!("larger than {limit} bytes, the limit on a cluster")));
        }
        let path = file.to_str().ok_or_else(|| io::Error::other("the name is not UTF-8"))?;
        self.files.borrow_mut().insert(path.to_owned(), content.clone());
        Ok(Box::new(Cursor::new(content)))
    }
}
