//! `olm bundle generate`: makes a bundle from the manifests of an operator (docs/design/cli.md#bundle-generation).
//!
//! [`convert`](convert::convert) is pure. This module reads its inputs, checks the result and writes the files.

mod convert;
mod csv;
mod deployments;
mod files;
mod kustomize;
mod objects;
mod permissions;
mod source;
mod summary;
mod traps;
mod webhooks;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use olm_bundle::InstallMode;
use olm_bundle_check::{Level, TRAPS, check, name_fault};
use olm_version::{Version, quote};

use convert::{Converted, Options};
use csv::Choices;
use files::{Channels, Existing, Files};
use olm_cli_catalog::author::{require_package_name, write_whole};
use olm_cli_core::bundle_source::{is_bundle_dir, read_bundle_dir};
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, printable};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use summary::Summary;

use super::edit;
use super::previous::PreviousArgs;

/// Version of the temporary bundle of a project.
const TEMPORARY_VERSION: &str = "0.0.1";

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Make a bundle from the manifests of an operator

Each PATH of --from is the first of these that applies:
  -                                    standard input, such as the output of kustomize
  a file                               YAML or JSON, with one or more objects
  a folder with a kustomization.yaml   built with kustomize, or kubectl if kustomize is not installed
  a folder with a file PROJECT or with config/default/kustomization.yaml
                                       a project of kubebuilder or operator-sdk: builds config/manifests if it has a \
kustomization.yaml, else config/default; examples are in config/samples
  another folder                       all files *.yaml, *.yml and *.json in it and its subfolders

The bundle gets a ClusterServiceVersion with the Deployments, their permissions, webhooks, CRDs and images, and one \
file per other object. Custom resources of its CRDs become examples. A ClusterServiceVersion in the input gives the \
fields that manifests do not contain, such as the description.

Run the command again after every change of the manifests: it replaces what they determine, and keeps all other fields \
of the ClusterServiceVersion, other annotations of the bundle and other files. Comments of replaced files are lost.

The result is checked as by `bundle validate`. Errors are printed, and the exit code is then 3.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the manifests form no valid bundle

Examples:
  {olm} bundle generate lamp --version 0.1.0 --from . --to bundle   # in a kubebuilder project
  {olm} bundle generate lamp --version 0.1.0 --from deploy samples --to bundle
  kustomize build deploy | {olm} bundle generate lamp --version 0.1.0 --from - --to bundle
  {olm} bundle generate lamp --version 0.2.0 --from . --to bundle --replaces lamp.v0.1.0 \\
    --set-image controller=quay.io/example/lamp:v0.2.0 --pin --channels stable,fast
  {olm} bundle generate lamp --version 0.1.0 --from . --to bundle --dry-run | less")]
pub struct GenerateArgs {
    /// Name of the package: lower-case letters, digits and `-`
    package: String,
    /// Version of the bundle, such as 1.2.3; its name is PACKAGE.vVERSION
    #[arg(long)]
    version: String,
    /// Manifests of the operator; - is standard input
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    from: Vec<String>,
    /// Directory of the bundle, which may exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Channels of the bundle, separated by commas; default: those of the existing bundle, else stable
    #[arg(long, value_name = "CHANNELS")]
    channels: Option<String>,
    /// Channel for installations that specify no channel; default: that of the existing bundle, else the first of
    /// --channels
    #[arg(long, value_name = "CHANNEL")]
    default_channel: Option<String>,
    /// Supported install modes, separated by commas; default: those of the ClusterServiceVersion, else AllNamespaces,
    /// which needs no feature gate
    #[arg(long, value_enum, value_name = "MODES", value_delimiter = ',')]
    install_modes: Vec<Mode>,
    /// Name of the bundle that this one replaces; '' for none; default: that of the ClusterServiceVersion
    #[arg(long, value_name = "BUNDLE")]
    replaces: Option<String>,
    /// Names of bundles that upgrades skip, separated by commas; '' for none; default: those of the
    /// ClusterServiceVersion
    #[arg(long, value_name = "BUNDLES", value_delimiter = ',')]
    skips: Option<Vec<String>>,
    /// Range of versions that upgrade directly to this bundle, such as '<1.2.3'; '' for none; default: that of the
    /// ClusterServiceVersion
    #[arg(long, value_name = "RANGE")]
    skip_range: Option<String>,
    /// Replace the images of a repository in Deployments; may be given several times
    #[arg(long, value_name = "REPOSITORY=IMAGE", value_parser = image)]
    set_image: Vec<(String, String)>,
    /// Replace the tags of images in the ClusterServiceVersion by the digests that they have now
    #[arg(long)]
    pin: bool,
    /// Service account of pods that the operator creates: its Roles and ClusterRoles become permissions of the bundle, and
    /// OLM creates it in the namespace of the installation; may be given several times
    #[arg(long, value_name = "NAME")]
    service_account: Vec<String>,
    /// Leave out objects of this kind; may be given several times
    #[arg(long, value_name = "KIND")]
    skip_kind: Vec<String>,
    /// Remove the arguments --metrics-cert-… of kubebuilder and the volume that they name: a bundle cannot contain the
    /// certificate
    #[arg(long)]
    strip_metrics_certs: bool,
    /// Add the images in environment variables whose name contains IMAGE to spec.relatedImages
    #[arg(long)]
    related_images_from_env: bool,
    /// Print the files instead of writing them
    #[arg(long, conflicts_with = "output")]
    dry_run: bool,
    #[command(flatten)]
    previous: PreviousArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Install mode of a bundle.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// The operator watches all namespaces
    #[value(name = "AllNamespaces")]
    All,
    /// The operator watches its own namespace
    #[value(name = "OwnNamespace")]
    Own,
    /// The operator watches one other namespace
    #[value(name = "SingleNamespace")]
    Single,
    /// The operator watches several namespaces
    #[value(name = "MultiNamespace")]
    Multi,
}

impl From<Mode> for InstallMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::All => Self::AllNamespaces,
            Mode::Own => Self::OwnNamespace,
            Mode::Single => Self::SingleNamespace,
            Mode::Multi => Self::MultiNamespace,
        }
    }
}

/// Parses `REPOSITORY=IMAGE`.
pub(super) fn image(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(from, to)| !from.is_empty() && !to.is_empty());
    let (from, to) =
        pair.ok_or("expected REPOSITORY=IMAGE, such as controller=quay.io/example/manager:v1")?;
    Ok((from.to_owned(), to.to_owned()))
}

/// Runs the command.
///
/// # Errors
/// The input cannot be read or forms no bundle, or files cannot be written.
pub(crate) async fn run(args: GenerateArgs, session: &mut Session) -> Result<(), CliError> {
    let options = options(&args)?;
    let root = &args.to;
    let files = existing(root)?;
    let known = Existing::parse(&files).map_err(|error| CliError::at(root.display(), error))?;
    let objects = source::read(&args.from, root, session).await?;
    let mut converted = convert::convert(objects, &known, &options)?;
    session.check()?;
    if args.pin {
        edit::pin(&mut converted.generated.written, &args.images, session).await?;
    }
    let after = converted.generated.files(&files);
    let checked = check(&after, None);
    let traps = checked.findings.iter().filter(|finding| TRAPS.contains(&finding.rule));
    converted.report.notes.extend(traps.map(|finding| printable(&finding.to_string())));
    let errors: Vec<_> = checked.of(Level::Error).collect();
    if args.dry_run {
        print(&converted, session)?;
    } else {
        write(&converted, &files, root)?;
        let summary = summary(converted, &files, &args);
        session.output.result(args.format.output, "GeneratedBundle", &summary, Summary::text)?;
    }
    for error in &errors {
        say(&format!("error: {}", printable(&error.to_string())));
    }
    // The fault of an invalid bundle is reported already.
    let is_good = errors.is_empty() && args.previous.check(&after, &args.images, session).await?;
    if is_good { Ok(()) } else { Err(CliError::Findings) }
}

/// Folder with manifests, and the options of its temporary bundle.
pub(super) struct Project<'a> {
    pub(super) root: &'a Path,
    /// Name of the package; default: that of the file PROJECT, of the ClusterServiceVersion, or of the folder.
    pub(super) package: Option<&'a str>,
    /// Replaced images by repository.
    pub(super) images: &'a [(String, String)],
    /// Kinds of objects that are left out.
    pub(super) skipped_kinds: &'a [String],
}

/// Writes the bundle of a project to the empty directory `to`.
///
/// # Errors
/// The manifests cannot be read or form no bundle, or files cannot be written.
pub(super) async fn write_project(
    project: &Project<'_>,
    to: &Path,
    session: &Session,
) -> Result<(), CliError> {
    let from = [project.root.display().to_string()];
    let objects = source::read(&from, to, session).await?;
    let package = match project.package {
        Some(package) => package.to_owned(),
        None => source::package(project.root, &objects)?,
    };
    require_package_name(&package).map_err(|error| match project.package {
        None => CliError::usage(format!("{error}; name the package with --package")),
        Some(_) => error,
    })?;
    let version = TEMPORARY_VERSION.to_owned();
    let options = Options {
        choices: Choices { package, version, ..Choices::default() },
        channels: Channels { channels: None, default: None },
        images: project.images.iter().cloned().collect(),
        skipped_kinds: project.skipped_kinds.to_vec(),
        ..Options::default()
    };
    let known =
        Existing::parse(&Files::new()).map_err(|error| CliError::at(project.root.display(), error))?;
    let converted = convert::convert(objects, &known, &options)?;
    for skipped in &converted.report.skipped {
        say(&format!("not in the bundle: {}: {}", skipped.object, skipped.reason));
    }
    write(&converted, &Files::new(), to)
}

fn options(args: &GenerateArgs) -> Result<Options, CliError> {
    require_package_name(&args.package)?;
    Version::parse(&args.version).map_err(|error| {
        CliError::usage(format!(
            "--version {}: {error}; expected a version such as 1.2.3",
            quote(&args.version)
        ))
    })?;
    let install_modes = args.install_modes.iter().map(|mode| InstallMode::from(*mode)).collect();
    let choices = Choices {
        package: args.package.clone(),
        version: args.version.clone(),
        install_modes: Some(install_modes).filter(|_| !args.install_modes.is_empty()),
        replaces: args.replaces.clone(),
        skips: args.skips.clone(),
        skip_range: args.skip_range.clone(),
    };
    check_earlier(&choices)?;
    let channels = Channels { channels: args.channels.clone(), default: args.default_channel.clone() };
    let images: BTreeMap<_, _> = args.set_image.iter().cloned().collect();
    Ok(Options {
        choices,
        channels,
        images,
        skipped_kinds: args.skip_kind.clone(),
        service_accounts: args.service_account.clone(),
        strips_metrics_certificates: args.strip_metrics_certs,
        relates_images_of_variables: args.related_images_from_env,
    })
}

/// Checks that the names of earlier bundles can be such.
///
/// # Errors
/// A version, a higher version, or the bundle itself.
fn check_earlier(choices: &Choices) -> Result<(), CliError> {
    let (name, version) = (choices.name(), &choices.version);
    let replaces = choices.replaces.iter().map(|earlier| ("--replaces", earlier));
    let skips = choices.skips.iter().flatten().map(|earlier| ("--skips", earlier));
    for (option, earlier) in replaces.chain(skips) {
        let itself = (*earlier == name).then(|| format!("{} is the bundle itself", quote(earlier)));
        if let Some(fault) = itself.or_else(|| name_fault(&name, version, earlier)) {
            return Err(CliError::usage(format!("{option}: {fault}")));
        }
    }
    Ok(())
}

/// Files of the existing bundle. Empty if there is none.
fn existing(root: &Path) -> Result<Files, CliError> {
    if is_bundle_dir(root) {
        return read_bundle_dir(root);
    }
    if let Some(folder) = ["manifests", "metadata"].iter().find(|folder| root.join(folder).exists()) {
        let why = format!(
            "has {folder}, but is not a bundle, which has folders manifests and metadata; choose another directory"
        );
        return Err(CliError::at(root.display(), why));
    }
    Ok(Files::new())
}

/// Writes the files that differ, and deletes those whose objects are in another file now.
fn write(converted: &Converted, existing: &Files, root: &Path) -> Result<(), CliError> {
    for (path, text) in &converted.generated.written {
        if existing.get(path).map(Vec::as_slice) != Some(text.as_bytes()) {
            write_whole(&root.join(path), text)?;
        }
    }
    for path in &converted.generated.removed {
        let path = root.join(path);
        fs::remove_file(&path).map_err(|error| CliError::at(path.display(), error))?;
    }
    Ok(())
}

/// Prints the files as one stream of documents, and the report to standard error.
fn print(converted: &Converted, session: &mut Session) -> Result<(), CliError> {
    for (path, text) in &converted.generated.written {
        session.output.text(&format!("---\n# {path}\n{text}"))?;
    }
    for skipped in &converted.report.skipped {
        say(&format!("not in the bundle: {}: {}", skipped.object, skipped.reason));
    }
    converted.report.notes.iter().for_each(|note| say(&format!("check: {note}")));
    Ok(())
}

fn summary(converted: Converted, existing: &Files, args: &GenerateArgs) -> Summary {
    Summary {
        bundle: format!("{}.v{}", args.package, args.version),
        directory: args.to.display().to_string(),
        files: converted.generated.changes(existing),
        skipped: converted.report.skipped,
        notes: converted.report.notes,
        missing: converted.missing,
    }
}
