//! `olm bundle run`: installs a bundle from a throwaway catalog, follows the logs of its operator, and removes
//! everything at the end (docs/design/cli.md#runs-of-a-bundle).
//!
//! [`decide`] is pure. [`objects`] reads and writes the cluster, [`logs`] follows the pods, [`removal`] deletes.

mod decide;
mod logs;
mod objects;
mod removal;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use olm_cli_catalog::author::{catalog_bundle, push};
use olm_cli_core::bundle_source::{BundleFiles, is_bundle_dir};
use olm_cli_core::change::{self, Deadline};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterArgs, ImageArgs, tagged_reference, temporary_directory};
use olm_cli_lifecycle::rendering;
use olm_cli_lifecycle::rollout::{self, ExpectedState};
use olm_cli_lifecycle::status::{observe, tree};
use olm_pack::{Image, is_image};
use serde_json::{Map, Value};

use self::decide::{CrdCheck, Names, Settings};
use self::objects::{Published, Run};
use super::content;
use super::generate::{self, Project};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Install a bundle from a directory or an image, and follow the logs of its operator

Tries a bundle out: checks and pushes it, pushes a catalog with nothing else, creates a ClusterCatalog and a \
ClusterExtension, waits until the bundle is installed, and prints the logs of the operator's pods until Ctrl-C. Then it \
removes the ClusterExtension with its CustomResourceDefinitions and custom resources, the ClusterCatalog, and the \
namespace, if the command created it. Pushed images are not removed.

The directory can also be a project, or any folder with manifests: its bundle is then made as by `bundle generate`, in a \
temporary directory. The package has the name in the file PROJECT, else that of the ClusterServiceVersion, else that of the \
folder.

The objects have the label ext.olm.operatorframework.io/bundle-run. With --keep they remain, and another run of the \
package upgrades the extension to the new content, of the same, a higher or a lower version. A run also adopts what an \
interrupted run left behind. Objects without the label are never changed. If the content has not changed since the \
previous run, nothing is rolled out, and the command says so: give a new image of the operator a new tag.

If the bundle cannot be installed, the command prints the object that blocks it and the last lines of the logs.";

/// Arguments of `olm bundle run`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 ended by Ctrl-C after the installation   1 operation failed or timed out   2 wrong usage
  3 the bundle has errors, or an object is owned by another   130 interrupted before

Examples:
  {olm} bundle run ./bundle -n my-operator --push-to registry.example.com/me/my-operator
  {olm} bundle run ./bundle -n my-operator --push-to registry.example.com/me/my-operator --keep   # again after a change
  {olm} bundle run . -n my-operator --push-to registry.example.com/me/my-operator \
    --set-image controller=registry.example.com/me/manager:dev   # in a kubebuilder project
  {olm} bundle run registry.example.com/me/my-operator-bundle:v1.2.0 -n my-operator \
    --push-to registry.example.com/me/my-operator
  {olm} bundle run ./bundle -n test --push-to registry.example.com/me/my-operator --no-logs   # in CI
  {olm} bundle run . -n test --push-to registry.example.com/me/my-operator --skip-kind ServiceMonitor --crd-check Live
  {olm} bundle run ./bundle -n my-operator --push-to localhost:5000/my-operator --pull-from registry:5000/my-operator")]
pub struct RunArgs {
    /// A bundle directory, a folder with manifests, an OCI image layout from `bundle build`, or an image reference
    #[arg(value_name = "DIR|LAYOUT|REF")]
    source: String,
    /// Package name of a folder with manifests; default: the name in its file PROJECT, of its ClusterServiceVersion, or of
    /// the folder
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    /// Replace the images of a repository in the Deployments of a folder with manifests; may be given several times
    #[arg(long, value_name = "REPOSITORY=IMAGE", value_parser = generate::image)]
    set_image: Vec<(String, String)>,
    /// Leave out objects of this kind, such as one that the cluster does not serve; may be given several times; for
    /// directories
    #[arg(long, value_name = "KIND")]
    skip_kind: Vec<String>,
    #[command(flatten)]
    options: RunOptions,
}

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Namespace that the operator is installed into, created if it does not exist
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: String,
    /// Repository for the images of the catalog and, unless it is in a registry, the bundle
    #[arg(long, value_name = "REGISTRY/REPOSITORY", value_parser = repository)]
    push_to: String,
    /// The same repository as the cluster names it, if it differs
    #[arg(long, value_name = "REGISTRY/REPOSITORY", value_parser = repository)]
    pull_from: Option<String>,
    /// File (YAML or JSON) with the configuration, as in spec.config.inline; - is standard input
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// Check of changed CustomResourceDefinitions when a kept extension is upgraded (annotation crd-check); a run without
    /// this option removes the annotation
    #[arg(long, value_enum, value_name = "MODE")]
    crd_check: Option<CrdCheck>,
    /// Remove nothing at the end
    #[arg(long)]
    keep: bool,
    /// End once the bundle is installed, without following the logs
    #[arg(long)]
    no_logs: bool,
    /// Longest wait for the installation, and for the removal, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = change::time, default_value = "5m")]
    timeout: Duration,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Parses a repository without a tag.
fn repository(text: &str) -> Result<String, String> {
    match tagged_reference(&format!("{text}:run")) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => {
            Err("expected a repository without a tag, such as registry.example.com/me/my-operator".to_owned())
        }
    }
}

/// Bundle to run.
struct Subject {
    files: BundleFiles,
    image: SubjectImage,
}

/// Image of the bundle.
enum SubjectImage {
    /// Is pushed by the run.
    Built(Image),
    /// Is in a registry under this name, without tag and digest.
    Published(String),
}

/// Runs the command.
///
/// # Errors
/// The bundle is invalid, the cluster has objects of another owner, or the installation or the removal fails.
pub(super) async fn run(args: RunArgs, session: &mut Session) -> Result<(), CliError> {
    let root = Path::new(&args.source);
    let is_project = root.is_dir() && !is_bundle_dir(root) && !is_image(root);
    if !is_project && (args.package.is_some() || !args.set_image.is_empty()) {
        let why = format!(
            "--package and --set-image are for a folder with manifests, which {} is not",
            olm_version::quote(&args.source)
        );
        return Err(CliError::usage(why));
    }
    if is_bundle_dir(root) {
        return run_folder(root, &args.skip_kind, &args.options, session).await;
    }
    if is_project {
        let generated = temporary_directory()?;
        let (package, images) = (args.package.as_deref(), args.set_image.as_slice());
        let project = Project { root, package, images, skipped_kinds: &args.skip_kind };
        generate::write_project(&project, generated.path(), session).await?;
        return run_folder(generated.path(), &[], &args.options, session).await;
    }
    if let Some(kind) = args.skip_kind.first() {
        let why =
            format!("{} is an image: only a directory can be changed", olm_version::quote(&args.source));
        return Err(CliError::usage(format!("--skip-kind {kind}: {why}")));
    }
    if is_image(root) {
        let (image, files) = content::of_layout(root).await?;
        return run_bundle(Subject { files, image: SubjectImage::Built(image) }, &args.options, session)
            .await;
    }
    let files = content::of_image(&args.source, &args.options.images, session).await?;
    let name = args.source.parse::<olm_oci::Reference>().map(|reference| reference.name().to_string());
    let name = name.map_err(CliError::usage)?;
    run_bundle(Subject { files, image: SubjectImage::Published(name) }, &args.options, session).await
}

/// Runs the bundle in the directory `root`.
///
/// # Errors
/// Errors of [`run`].
async fn run_folder(
    root: &Path,
    skipped_kinds: &[String],
    options: &RunOptions,
    session: &mut Session,
) -> Result<(), CliError> {
    let files = content::checked(root, skipped_kinds, session)?;
    let image = SubjectImage::Built(content::built(&files)?.image);
    run_bundle(Subject { files, image }, options, session).await
}

async fn run_bundle(subject: Subject, options: &RunOptions, session: &mut Session) -> Result<(), CliError> {
    let bundle = catalog_bundle(&subject.files.files, "")?;
    let names = Names::of(&bundle.package)?;
    let config = configuration(options, session).await?;
    let cluster = options.cluster.connect().await?;
    let run = Run { cluster, names, namespace: options.namespace.clone(), timeout: options.timeout };
    run.check(session).await?;
    let published = publish(&subject, options, session).await?;
    let deadline = run.timeout.into();
    let settings = Settings { config, crd_check: options.crd_check };
    let written = run.write(&published, settings, deadline, session).await;
    let is_written = written.is_ok();
    let outcome = match written {
        Ok(written) => {
            let expected = ExpectedState {
                image: Some(published.bundle),
                ends_early: true,
                ..ExpectedState::new(&written, Some(bundle.name), None)
            };
            follow(&run, &expected, deadline, options, session).await
        }
        Err(failure) => Err(failure),
    };
    if options.keep {
        say(&format!("kept ClusterExtension {} and its catalog (--keep)", run.names.package));
        return outcome;
    }
    let removed = removal::remove(&run, is_written, &Session::for_removal()).await;
    match (outcome, removed) {
        (Err(failure), Err(second)) => {
            say(&format!("error: {second}"));
            Err(failure)
        }
        (outcome, removed) => outcome.and(removed),
    }
}

/// Waits for the installation of the written extension and follows its logs.
///
/// # Errors
/// The installation fails, or is interrupted. An interruption of the logs is not an error.
async fn follow(
    run: &Run,
    expected: &ExpectedState,
    deadline: Deadline,
    options: &RunOptions,
    session: &mut Session,
) -> Result<(), CliError> {
    let after = match options.keep {
        true => format!("the objects are kept; run `olm status {}` for details", run.names.package),
        false => "the objects of the run are removed".to_owned(),
    };
    match rollout::wait_or(&run.cluster, expected, &after, deadline, session).await {
        Ok(message) => say(&message),
        Err(failure) => {
            if !matches!(failure, CliError::Message(Code::Interrupted, _)) {
                // An interruption only ends the explanation.
                let _ = explain(run, session).await;
            }
            return Err(failure);
        }
    }
    if options.no_logs {
        return Ok(());
    }
    let end = if options.keep { "ends the command" } else { "removes the operator" };
    say(&format!("following the logs; Ctrl-C {end}"));
    match logs::follow(run, session).await {
        Err(CliError::Message(Code::Interrupted, _)) => Ok(()),
        ended => ended,
    }
}

/// Prints the object that blocks the installation, and the last lines of the logs.
///
/// # Errors
/// The command is interrupted.
async fn explain(run: &Run, session: &Session) -> Result<(), CliError> {
    if let Ok(observed) = observe::observe(&run.cluster, &run.names.package, session).await
        && let Some(blocker) = tree::blocker(&observed)
    {
        say(&format!("blocked by {blocker}"));
    }
    for line in logs::last(run, session).await? {
        say(&line);
    }
    session.check()
}

/// Pushes the bundle, unless it is published, and its catalog.
async fn publish(subject: &Subject, options: &RunOptions, session: &Session) -> Result<Published, CliError> {
    let seen = options.pull_from.as_ref().unwrap_or(&options.push_to);
    let push = async |image: &Image| {
        let digest = image.digest();
        let reference = tagged_reference(&format!("{}:{}", options.push_to, decide::tag(&digest)))?;
        push::push(image, &reference, &options.images, session).await?;
        Ok::<_, CliError>(format!("{seen}@{digest}"))
    };
    let bundle = match &subject.image {
        SubjectImage::Built(image) => push(image).await?,
        SubjectImage::Published(name) => {
            format!("{name}@{}", subject.files.digest.as_deref().unwrap_or_default())
        }
    };
    let content = catalog_bundle(&subject.files.files, &bundle)?;
    let catalog = Image::catalog(&decide::catalog_files(&content))?;
    let label_value = decide::short(&catalog.digest()).to_owned();
    Ok(Published { bundle, catalog: push(&catalog).await?, label_value })
}

/// `spec.config.inline`.
async fn configuration(
    options: &RunOptions,
    session: &Session,
) -> Result<Option<Map<String, Value>>, CliError> {
    let Some(file) = &options.config else { return Ok(None) };
    match rendering::config(file, session).await? {
        None => Ok(None),
        Some(Value::Object(config)) => Ok(Some(config)),
        Some(_) => Err(CliError::usage("--config: expected an object with fields such as watchNamespace")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_has_a_registry_and_no_tag() {
        for text in ["registry.example.com/me/lamp", "localhost:5000/lamp"] {
            assert_eq!(repository(text).as_deref(), Ok(text));
        }
        for text in ["", "lamp", "r.example/lamp:v1", "r.example/lamp@sha256:00", "https://r.example/lamp"] {
            assert!(repository(text).is_err(), "{text}");
        }
    }
}
