//! `olm catalog create`: creates a ClusterCatalog (docs/design/cli.md#changing-commands).

use std::collections::BTreeMap;

use clap::Args;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use olm_api::cluster_catalog::{
    AvailabilityMode, CatalogSource, CatalogSourceType, ClusterCatalogSpec, ImageSource,
};
use olm_api::{ClusterCatalog, labels};
use olm_cli_core::change::{self, ChangeArgs, DryRun, FIELD_MANAGER, WriteResult, WrittenObject};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterArgs, ClusterConnection};
use olm_version::quote;

use super::cluster_catalog;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Create a ClusterCatalog, which catalogd pulls and serves

An existing catalog with the same settings is left unchanged. An existing one with different settings is an error.
Without --poll-interval, catalogd pulls the image once: `catalog push --refresh NAME` makes it pull again.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog create my-catalog registry.example.com/team/my-catalog:latest --poll-interval 10 --wait
  {olm} catalog create my-catalog registry.example.com/team/my-catalog:v1 --dry-run=client -o yaml")]
pub struct CreateArgs {
    /// Name of the ClusterCatalog
    #[arg(value_name = "NAME")]
    name: String,
    /// Image reference with tag or digest
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Interval at which catalogd looks for a new image of the tag
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(i64).range(1..))]
    poll_interval: Option<i64>,
    /// Rank among catalogs that offer the same package: the highest number wins
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Label of the ClusterCatalog, for selectors of ClusterExtensions; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Settings of a ClusterCatalog that does not exist yet.
#[derive(Debug, Default)]
pub struct NewCatalog {
    /// Name of the ClusterCatalog.
    pub name: String,
    /// Image reference with tag or digest.
    pub image: String,
    /// Minutes between polls of the registry. `None`: it is not polled.
    pub poll_interval: Option<i64>,
    /// Rank among catalogs that offer the same package.
    pub priority: Option<i32>,
    /// Labels, for selectors of ClusterExtensions.
    pub labels: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    // catalogd sets this label, and resets it.
    if key == labels::METADATA_NAME {
        return Err("catalogd sets this label".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the command.
///
/// # Errors
/// The API server refuses the catalog, one with other settings exists, or it is not served in time.
pub(super) async fn run(args: CreateArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let new = NewCatalog {
        name: args.name.clone(),
        image: args.image.clone(),
        poll_interval: args.poll_interval,
        priority: args.priority,
        labels: args.labels.clone(),
    };
    let desired = new.catalog();
    let written = write(&cluster, &desired, args.change.dry_run, session).await?;
    change::print(args.change.output, "", &[written], &mut session.output)?;
    if !args.change.wait {
        return Ok(());
    }
    session.output.finish()?;
    let words = cluster_catalog::wait(&cluster, &args.name, None, args.change.timeout, session).await?;
    change::print_end(args.change.output, &words, session)
}

impl NewCatalog {
    /// The ClusterCatalog.
    pub fn catalog(&self) -> ClusterCatalog {
        let image = ImageSource { ref_: self.image.clone(), poll_interval_minutes: self.poll_interval };
        let spec = ClusterCatalogSpec {
            source: CatalogSource { type_: CatalogSourceType::Image, image: Some(image) },
            priority: self.priority,
            availability_mode: None,
        };
        let mut catalog = ClusterCatalog::new(&self.name, spec);
        let labels: BTreeMap<_, _> = self.labels.iter().cloned().collect();
        catalog.metadata.labels = (!labels.is_empty()).then_some(labels);
        catalog
    }
}

/// Creates the catalog if there is none of this name.
///
/// # Errors
/// One with other settings exists, or the API server refuses the catalog.
pub async fn write(
    cluster: &ClusterConnection,
    desired: &ClusterCatalog,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<WrittenObject, CliError> {
    let api: Api<ClusterCatalog> = Api::all(cluster.client().clone());
    let name = desired.name_any();
    let what = format!("ClusterCatalog {}", quote(&name));
    if let Some(existing) = cluster_catalog::find(cluster, &name, session).await? {
        let differences = differences(&existing, desired);
        if differences.is_empty() {
            return Ok(WrittenObject::new(serde_json::to_value(&existing)?, WriteResult::Unchanged, dry_run));
        }
        return Err(CliError::findings(format!(
            "{what} exists with other settings: {}\nchange it with `kubectl edit clustercatalog {name}`, or choose another name",
            differences.join(", ")
        )));
    }
    if dry_run == Some(DryRun::Client) {
        return Ok(WrittenObject::new(serde_json::to_value(desired)?, WriteResult::Created, dry_run));
    }
    let parameters = PostParams { dry_run: dry_run.is_some(), field_manager: Some(FIELD_MANAGER.to_owned()) };
    let created = change::call(&format!("create {what}"), api.create(&parameters, desired), session).await?;
    Ok(WrittenObject::new(serde_json::to_value(&created)?, WriteResult::Created, dry_run))
}

/// Settings in which `existing` differs from `desired`. Labels that are not desired are not a difference.
fn differences(existing: &ClusterCatalog, desired: &ClusterCatalog) -> Vec<String> {
    let image = |catalog: &ClusterCatalog| catalog.spec.source.image.clone();
    let shown = |catalog: &ClusterCatalog| image(catalog).map(|image| image.ref_).unwrap_or_default();
    let poll = |catalog: &ClusterCatalog| image(catalog).and_then(|image| image.poll_interval_minutes);
    let minutes = |catalog| poll(catalog).map_or_else(|| "none".to_owned(), |minutes| minutes.to_string());
    let priority = |catalog: &ClusterCatalog| catalog.spec.priority.unwrap_or_default();
    let mut differences = Vec::new();
    if shown(existing) != shown(desired) {
        differences.push(format!("image {}", shown(existing)));
    }
    if poll(existing) != poll(desired) {
        differences.push(format!("poll interval {}", minutes(existing)));
    }
    if priority(existing) != priority(desired) {
        differences.push(format!("priority {}", priority(existing)));
    }
    if existing.spec.availability_mode == Some(AvailabilityMode::Unavailable) {
        differences.push("availability mode Unavailable".to_owned());
    }
    for (key, value) in desired.labels() {
        let found = existing.labels().get(key);
        if found != Some(value) {
            differences.push(format!("label {key}: {}", found.map_or("none", String::as_str)));
        }
    }
    differences
}
