//! `olm catalog template-check`: the images that image templates of ClusterCatalogs resolve to
//! (docs/design/catalogd.md#image-templates).

mod versions;

use std::time::Duration;

use clap::Args;
use futures::{StreamExt, stream};
use kube::ResourceExt;
use olm_api::{ClusterCatalog, annotations};
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::names::listed;
use olm_cli_core::output::{FormatArgs, List, Table};
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ImageArgs};
use olm_oci::{CATALOG_LABEL, ImageLimits, KubernetesVersion, Puller, Reference, Retry, resolve_template};
use olm_version::quote;
use serde::Serialize;
use serde_json::Value;

use self::versions::KubernetesVersions;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Check that the images of a catalog's image template exist

A ClusterCatalog with annotation ext.olm.operatorframework.io/image-template takes its image from the template, with \
the variables {kube_major_version}, {kube_minor_version} and {kube_patch_version} of the cluster's version. Run this \
command before you upgrade the cluster: for each version it prints the reference, and whether the image exists and is \
a catalog. No layer is pulled.";

/// Images that are checked in parallel.
const PARALLEL: usize = 8;
/// A second attempt overcomes a lost connection.
const RETRY: Retry = Retry { attempts: 2, first_delay: Duration::from_millis(100) };
/// Largest file of ClusterCatalogs.
const MAX_FILE: u64 = 3 << 20;

/// Arguments of `olm catalog template-check`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 all images exist   1 operation failed   2 wrong usage
  3 an image is missing or no catalog, or the template has no reference   4 a catalog does not exist

Examples:
  {olm} catalog template-check cluster                       # all catalogs with a template
  {olm} catalog template-check cluster/my-catalog --kube 1.31..1.36
  {olm} catalog template-check catalog.yaml --kube 1.36
  {olm} catalog template-check 'registry.example.com/team/catalog:v1.{kube_minor_version}' --kube 1.36 -o json")]
pub struct TemplateCheckArgs {
    /// cluster/NAME, cluster for all catalogs with a template, a file with ClusterCatalogs, or a template
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Kubernetes versions and ranges, separated by commas; default: the version of the cluster, and the next minor
    /// release
    #[arg(long, value_name = "VERSIONS")]
    kube: Option<KubernetesVersions>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    access: Access,
}

/// Image template, with the name and the reference of its ClusterCatalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogImageTemplate {
    catalog: Option<String>,
    configured: Option<String>,
    text: String,
}

/// Outcome for one template and version.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateImage {
    /// Name of the ClusterCatalog with the template. Absent for a template that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// Minor version of Kubernetes, such as `1.33`.
    pub kubernetes: String,
    /// Reference of the image. Absent if the template has none for this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// State of the image.
    pub result: TemplateResult,
    /// Reason for the state, if it needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of an image that a template names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum TemplateResult {
    /// The image exists and is a catalog.
    Found,
    /// The registry does not have the image.
    Missing,
    /// The image lacks the label of catalogs.
    NotACatalog,
    /// The template has no reference for this version.
    Unresolved,
    /// The registry does not respond or denies access.
    Unknown,
}

/// Runs the command.
///
/// # Errors
/// The catalogs or versions cannot be read, or an image is missing.
pub(crate) async fn run(args: TemplateCheckArgs, session: &mut Session) -> Result<(), CliError> {
    let templates = templates(&args, session).await?;
    let versions = match &args.kube {
        Some(versions) => versions.clone(),
        None => KubernetesVersions::upgrade_of(
            args.access.cluster.connect().await?.kubernetes_version(session).await?,
        ),
    };
    let items = check(&templates, &versions.0, &args.access.images, session).await?;
    let list = List { items };
    session.output.result(args.format.output, "TemplateImageList", &list, table)?;
    let has = |result| list.items.iter().any(|item| item.result == result);
    if [TemplateResult::Missing, TemplateResult::NotACatalog, TemplateResult::Unresolved].into_iter().any(has)
    {
        return Err(CliError::Findings);
    }
    let failed = list.items.iter().filter(|item| item.result == TemplateResult::Unknown).count();
    if failed > 0 {
        Err(CliError::operational(format!("{failed} images could not be checked")))
    } else {
        Ok(())
    }
}

/// Templates that the command line names, at least one.
async fn templates(
    args: &TemplateCheckArgs,
    session: &Session,
) -> Result<Vec<CatalogImageTemplate>, CliError> {
    let source = args.source.as_str();
    let requested = source.strip_prefix("cluster/").filter(|rest| !rest.contains([':', '@', '/', '{']));
    if source == "cluster" || requested.is_some() {
        let cluster = args.access.cluster.connect().await?;
        return of_cluster(&cluster.catalogs(session).await?, requested);
    }
    if std::path::Path::new(source).exists() {
        return of_file(source, &manifest::text(source, MAX_FILE, session).await?);
    }
    if !source.contains(['{', ':']) {
        return Err(CliError::usage(format!(
            "SOURCE {} is not an existing file, cluster, cluster/NAME, or a template such as \
             'registry.example.com/team/catalog:v1.{{kube_minor_version}}'",
            quote(source)
        )));
    }
    Ok(vec![CatalogImageTemplate { catalog: None, configured: None, text: source.to_owned() }])
}

/// Templates of the catalogs of a cluster, or only of the requested one.
fn of_cluster(
    catalogs: &[ClusterCatalog],
    requested: Option<&str>,
) -> Result<Vec<CatalogImageTemplate>, CliError> {
    let names: Vec<String> = catalogs.iter().map(ResourceExt::name_any).collect();
    if let Some(requested) = requested
        && !names.iter().any(|name| name == requested)
    {
        let (name, all) = (quote(requested), listed(&names));
        return Err(CliError::no_candidate(format!("there is no ClusterCatalog {name}; catalogs: {all}")));
    }
    let is_requested = |catalog: &&ClusterCatalog| requested.is_none_or(|name| catalog.name_any() == name);
    let found: Vec<_> = catalogs.iter().filter(is_requested).filter_map(of_catalog).collect();
    let what = requested.map_or_else(
        || "no ClusterCatalog of the cluster has".to_owned(),
        |name| format!("ClusterCatalog {} does not have", quote(name)),
    );
    if found.is_empty() { Err(without_template(&what)) } else { Ok(found) }
}

/// Template of the annotations of a catalog.
pub fn of_catalog(catalog: &ClusterCatalog) -> Option<CatalogImageTemplate> {
    let text = catalog.image_template()?.to_owned();
    let configured = catalog.spec.source.image.as_ref().map(|image| image.ref_.clone());
    Some(CatalogImageTemplate { catalog: Some(catalog.name_any()), configured, text })
}

fn of_file(path: &str, text: &str) -> Result<Vec<CatalogImageTemplate>, CliError> {
    let objects = olm_yaml::all_from_slice(text.as_bytes()).map_err(|error| CliError::at(path, error))?;
    let is_catalog =
        |object: &Value| object["kind"] == "ClusterCatalog" && object["apiVersion"] == manifest::API_VERSION;
    let mut found = Vec::new();
    for object in objects.into_iter().filter(is_catalog) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let catalog: ClusterCatalog = serde_json::from_value(object)
            .map_err(|error| CliError::at(format!("{path}: ClusterCatalog {}", quote(&name)), error))?;
        found.extend(of_catalog(&catalog));
    }
    let what = format!("{path}: no ClusterCatalog of {} has", manifest::API_VERSION);
    if found.is_empty() { Err(without_template(&what)) } else { Ok(found) }
}

fn without_template(what: &str) -> CliError {
    CliError::usage(format!("{what} the annotation {}", annotations::EXT_IMAGE_TEMPLATE))
}

/// Checks each template for each version, in this order.
///
/// # Errors
/// A flag names a file that does not exist, or the command is interrupted.
pub async fn check(
    templates: &[CatalogImageTemplate],
    versions: &[KubernetesVersion],
    images: &ImageArgs,
    session: &Session,
) -> Result<Vec<TemplateImage>, CliError> {
    let mut jobs = Vec::new();
    for template in templates {
        for version in versions {
            let reference = resolve_template(&template.text, template.configured.as_deref(), Some(*version));
            let puller = reference.as_ref().ok().map(|reference| puller(reference, images)).transpose()?;
            jobs.push((template, version, reference, puller));
        }
    }
    let _step = session.progress.step(format!("checking {} images", jobs.len()));
    let checks = stream::iter(jobs).map(async |(template, version, reference, puller)| {
        let (image, (result, message)) = match (reference, puller) {
            (Ok(reference), Some(puller)) => {
                (Some(reference.to_string()), inspect(&puller, &reference).await)
            }
            (Err(error), _) => (None, (TemplateResult::Unresolved, Some(error.to_string()))),
            (Ok(_), None) => (None, (TemplateResult::Unknown, None)),
        };
        let (catalog, kubernetes) = (template.catalog.clone(), version.to_string());
        TemplateImage { catalog, kubernetes, image, result, message }
    });
    session.interruptible(checks.buffered(PARALLEL).collect()).await
}

fn puller(reference: &Reference, images: &ImageArgs) -> Result<Puller, CliError> {
    let mut config = images.config(reference, ImageLimits::CATALOG)?;
    config.retry = RETRY;
    Ok(Puller::new(config))
}

/// Existence and label of an image. Those of an index are of its first platform.
async fn inspect(puller: &Puller, reference: &Reference) -> (TemplateResult, Option<String>) {
    let found = async {
        let found = puller.inspect(reference).await?;
        let first = found.single.as_ref().filter(|_| found.is_index);
        match first.map(|digest| format!("{}@{digest}", reference.name()).parse::<Reference>()) {
            Some(Ok(first)) => puller.inspect(&first).await,
            _ => Ok(found),
        }
    };
    match found.await {
        Ok(found) => match olm_oci::catalog_folder(&found.labels) {
            Ok(_) => (TemplateResult::Found, None),
            Err(_) => (TemplateResult::NotACatalog, Some(format!("the image has no label {CATALOG_LABEL}"))),
        },
        Err(error) if error.is_missing => (TemplateResult::Missing, None),
        Err(error) => (TemplateResult::Unknown, Some(error.to_string())),
    }
}

fn table(list: &List<TemplateImage>) -> String {
    let mut table = Table::new(&["KUBERNETES", "IMAGE", "RESULT", "CATALOG"]);
    for item in &list.items {
        let result = match item.result {
            TemplateResult::Found => "found",
            TemplateResult::Missing => "missing",
            TemplateResult::NotACatalog => "not a catalog",
            TemplateResult::Unresolved => "unresolved",
            TemplateResult::Unknown => "unknown",
        };
        let message = item.message.as_ref().map(|message| format!("{result}: {message}"));
        table.row([
            item.kubernetes.as_str(),
            item.image.as_deref().unwrap_or_default(),
            message.as_deref().unwrap_or(result),
            item.catalog.as_deref().unwrap_or_default(),
        ]);
    }
    table.without_uniform_column().text()
}
