//! `olm catalog ls`: lists the catalogs of a cluster, or the packages of a catalog.

use std::collections::BTreeMap;

use clap::Args;
use kube::ResourceExt;
use olm_api::ClusterCatalog;
use olm_api::conditions::types;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, List, Table};
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_fbc::{Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE};
use olm_oci::{KubernetesVersion, resolve_template};
use olm_resolve::Indexing;
use serde::Serialize;

use super::bundle_details::csv_facts;
use super::classic_chain::heads;
use super::package::CatalogPackage;

/// Arguments of `olm catalog ls`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog ls                              # the ClusterCatalogs of the cluster
  {olm} catalog ls cluster                      # the packages of all catalogs of the cluster
  {olm} catalog ls cluster/operatorhubio
  {olm} catalog ls ./catalog -o json
  {olm} catalog ls quay.io/operatorhubio/catalog:latest")]
pub struct LsArgs {
    /// A directory, an image reference, cluster/NAME, or cluster for all; without it, the ClusterCatalogs are listed
    #[arg(value_name = "SOURCE")]
    source: Option<String>,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the command.
///
/// # Errors
/// The source cannot be read.
pub(crate) async fn run(args: LsArgs, session: &mut Session) -> Result<(), CliError> {
    let Some(source) = args.source else {
        let cluster = args.access.cluster.connect().await?;
        let catalogs = cluster.catalogs(session).await?;
        let version = match catalogs.iter().any(|catalog| catalog.image_template().is_some()) {
            true => Some(cluster.kubernetes_version(session).await?),
            false => None,
        };
        let items = catalogs.iter().map(|catalog| catalog_row(catalog, version)).collect();
        let list = List { items };
        return session.output.result(args.format.output, "ClusterCatalogSummaryList", &list, catalogs_table);
    };
    let mut packages = Packages::default();
    args.access.read(&source, session, &mut |catalog, meta| packages.add(catalog, meta)).await?;
    let list = List { items: packages.summaries()? };
    session.output.result(args.format.output, "PackageSummaryList", &list, packages_table)
}

/// Summary of a ClusterCatalog.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogSummary {
    name: String,
    image: String,
    /// Template that `image` comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    serving: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_unpacked: Option<String>,
    priority: i32,
}

/// `version` is that of the cluster, for image templates.
fn catalog_row(catalog: &ClusterCatalog, version: Option<KubernetesVersion>) -> CatalogSummary {
    let status = catalog.status.as_ref();
    let resolved = status.and_then(|status| status.resolved_source.as_ref());
    let digest = resolved.and_then(|resolved| resolved.image.ref_.split_once('@'));
    let image = catalog.spec.source.image.as_ref();
    let template = catalog.image_template();
    let configured = image.map(|image| image.ref_.as_str());
    let templated = template.and_then(|template| resolve_template(template, configured, version).ok());
    let templated = templated.map(|reference| reference.to_string());
    CatalogSummary {
        name: catalog.name_any(),
        image: templated.or_else(|| image.map(|image| image.ref_.clone())).unwrap_or_default(),
        image_template: template.map(str::to_owned),
        digest: digest.map(|(_, digest)| digest.to_owned()),
        serving: catalog.is_true(types::SERVING),
        last_unpacked: status.and_then(|status| status.last_unpacked.as_ref()).map(|time| time.0.to_string()),
        priority: catalog.spec.priority.unwrap_or_default(),
    }
}

fn catalogs_table(list: &List<CatalogSummary>) -> String {
    let mut table = Table::new(&["NAME", "IMAGE", "DIGEST", "SERVING", "LAST UNPACKED", "PRIORITY"]);
    for item in &list.items {
        // 19 characters of the digest suffice to tell images apart. JSON and YAML have all.
        let digest: String = item.digest.iter().flat_map(|digest| digest.chars().take(19)).collect();
        let unpacked = item.last_unpacked.clone().unwrap_or_default();
        let serving = if item.serving { "True" } else { "False" };
        let cells = [&item.name, &item.image, &digest, serving, &unpacked, &item.priority.to_string()];
        table.row(cells);
    }
    table.text()
}

/// Summary of a package.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PackageSummary {
    catalog: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    display_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    default_channel: String,
    channels: Vec<String>,
    bundles: usize,
    /// `true` if the package itself is deprecated.
    deprecated: bool,
}

/// Packages of a source while it is read. Keeps only the summary fields of bundles, which make up nearly all of a
/// catalog's size.
#[derive(Default)]
struct Packages {
    by_name: BTreeMap<(String, String), Package>,
}

#[derive(Default)]
struct Package {
    /// Objects other than bundles.
    lines: Vec<Vec<u8>>,
    /// Display names by bundle.
    bundles: BTreeMap<String, String>,
}

impl Packages {
    fn add(&mut self, catalog: &str, meta: Meta) -> Result<(), CliError> {
        let key = (meta.owner().to_owned(), catalog.to_owned());
        match meta.schema.as_str() {
            SCHEMA_PACKAGE | SCHEMA_CHANNEL | SCHEMA_DEPRECATIONS => {
                self.by_name.entry(key).or_default().lines.push(meta.blob);
            }
            SCHEMA_BUNDLE => {
                let lines = std::slice::from_ref(&meta.blob);
                let read = CatalogPackage::new(catalog, &key.0, lines, Indexing::default())?;
                let names = read.content.bundles.iter().map(|bundle| csv_facts(bundle).display_name);
                let bundles = &mut self.by_name.entry(key).or_default().bundles;
                bundles.extend(names.map(|name| (meta.name.clone(), name.unwrap_or_default())));
            }
            _ => {}
        }
        Ok(())
    }

    fn summaries(self) -> Result<Vec<PackageSummary>, CliError> {
        let summary = |((name, catalog), package): ((String, String), Package)| {
            let read = CatalogPackage::new(&catalog, &name, &package.lines, Indexing::default())?;
            let channel = read.content.channels.iter().find(|channel| channel.name == read.default_channel());
            let head = channel.and_then(|channel| heads(channel).first().copied());
            let display_name = head.and_then(|head| package.bundles.get(head)).cloned().unwrap_or_default();
            Ok(PackageSummary {
                display_name,
                description: read.description().to_owned(),
                default_channel: read.default_channel().to_owned(),
                channels: read.content.channels.iter().map(|channel| channel.name.clone()).collect(),
                bundles: package.bundles.len(),
                deprecated: !read.deprecation().is_empty(),
                catalog,
                name,
            })
        };
        self.by_name.into_iter().map(summary).collect()
    }
}

fn packages_table(list: &List<PackageSummary>) -> String {
    let columns = ["NAME", "DISPLAY NAME", "DEFAULT CHANNEL", "CHANNELS", "BUNDLES", "DEPRECATED", "CATALOG"];
    let mut table = Table::new(&columns);
    for item in &list.items {
        let numbers = (item.channels.len().to_string(), item.bundles.to_string());
        let deprecated = if item.deprecated { "yes" } else { "" };
        let (name, default) = (item.name.as_str(), item.default_channel.as_str());
        table.row([name, &item.display_name, default, &numbers.0, &numbers.1, deprecated, &item.catalog]);
    }
    table.without_uniform_column().text()
}
