//! `olm config`: the configuration that a bundle accepts in `spec.config.inline` of a ClusterExtension
//! (docs/design/bundles.md#configuration-schema).
//!
//! The schema is the one that operator-controller validates against.

mod example;
mod fields;

use clap::{Args, Subcommand, ValueEnum};
use kube::ResourceExt;
use olm_api::annotations;
use olm_bundle::{BundleContent, config_schema};
use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::names::nearest;
use olm_cli_core::output;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_version::quote;
use serde_json::Value;

use crate::rendering::{RenderSettings, hints, schema_fields};
use crate::resolve::choose_as;
use crate::status::observe;

/// Subcommands of `olm config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Explain the fields of the configuration
    #[command(long_about = fields::ABOUT)]
    Explain(Box<ExplainArgs>),
    /// Print a configuration to start from
    #[command(long_about = example::ABOUT)]
    Example(Box<ExampleArgs>),
    /// Print the JSON Schema of the configuration
    Schema(Box<SchemaArgs>),
}

/// Arguments of `olm config explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} config explain my-operator
  {olm} config explain my-operator deploymentConfig.resources
  {olm} config explain ./bundle watchNamespace")]
pub struct ExplainArgs {
    #[command(flatten)]
    subject: Subject,
    /// Field to explain, with dots between its parts; default: all fields of the configuration
    #[arg(value_name = "FIELD", default_value = "", hide_default_value = true)]
    field: String,
}

/// Arguments of `olm config example`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} config example my-operator > config.yaml
  {olm} config example ./bundle | {olm} render ./bundle -n my-operator --config -")]
pub struct ExampleArgs {
    #[command(flatten)]
    subject: Subject,
}

/// Arguments of `olm config schema`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} config schema my-operator
  {olm} config schema quay.io/example/operator-bundle:v1.2.0 -o yaml")]
pub struct SchemaArgs {
    #[command(flatten)]
    subject: Subject,
    /// Output format
    #[arg(short, long, value_enum, default_value = "json", value_name = "FORMAT")]
    output: SchemaFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemaFormat {
    Json,
    Yaml,
}

/// Bundle with the configuration to show.
#[derive(Debug, Args)]
struct Subject {
    /// Name of a ClusterExtension, or a bundle: a directory, or an image reference
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    access: Access,
}

/// Configuration of one bundle.
pub struct Configurable {
    bundle: BundleContent,
    /// Schema with all feature gates.
    schema: Value,
    /// Disabled gate of a field, for the operator-controller of the extension.
    off: Vec<(&'static str, &'static str)>,
}

/// Runs a subcommand.
///
/// # Errors
/// The extension does not exist, or its bundle cannot be read.
pub async fn run(command: ConfigCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        ConfigCommand::Explain(args) => {
            let found = args.subject.read(session).await?;
            let text = fields::explain(&found.bundle, &found.schema, &args.field, &found.off)?;
            session.output.text(&text)
        }
        ConfigCommand::Example(args) => {
            let found = args.subject.read(session).await?;
            session.output.text(&example::example(found.bundle.name(), &found.schema, &found.off))
        }
        ConfigCommand::Schema(args) => {
            let found = args.subject.read(session).await?;
            let text = match args.output {
                SchemaFormat::Json => output::json(&found.schema)?,
                SchemaFormat::Yaml => output::yaml(&found.schema)?,
            };
            session.output.text(&text)
        }
    }
}

impl Subject {
    /// Reads the bundle, and for a ClusterExtension the gates of its operator-controller.
    async fn read(&self, session: &Session) -> Result<Configurable, CliError> {
        if is_bundle(&self.name) {
            let files = bundle_source::read(&self.name, &self.access.images, session).await?;
            return Configurable::new(&files, None);
        }
        let cluster = self.access.cluster.connect().await?;
        let extension = observe::extension(&cluster, &self.name, session).await?;
        let controller = ControllerArgs::read(&cluster, session).await?;
        let image = match installed_image(&cluster, &extension.name_any(), session).await? {
            Some(image) => image,
            None => {
                let catalogs = ["cluster".to_owned()];
                choose_as(&controller, &extension, &catalogs, &self.access, session).await?.image
            }
        };
        let files = bundle_source::read_image(&image, &self.access.images, session).await?;
        Configurable::new(&files, Some(&RenderSettings::as_configured(&extension, &controller.gates)?))
    }
}

/// Reports whether the name is a bundle: an image reference or a path has a slash, a name of an extension has none.
fn is_bundle(name: &str) -> bool {
    name.contains('/') || name.starts_with('.')
}

/// Image of the newest active revision.
async fn installed_image(
    cluster: &ClusterConnection,
    name: &str,
    session: &Session,
) -> Result<Option<String>, CliError> {
    let revisions = observe::revisions(cluster, name, session).await?;
    let newest = olm_plan::newest_active(&revisions);
    Ok(newest.and_then(|revision| revision.annotations().get(annotations::BUNDLE_REFERENCE).cloned()))
}

impl Configurable {
    /// Bundle in `files`, under the gates of `settings`.
    ///
    /// # Errors
    /// The bundle is invalid.
    pub fn new(files: &BundleFiles, settings: Option<&RenderSettings>) -> Result<Self, CliError> {
        let bundle = BundleContent::load(&files.files)
            .map_err(|error| CliError::findings(format!("{}: {error}", files.origin)))?;
        let schema = config_schema(&bundle, true, true);
        let is_on = |gate: &str| settings.is_none_or(|settings| settings.is_on(gate));
        let off = hints::refused_fields(&bundle, is_on);
        Ok(Self { bundle, schema, off })
    }

    /// Fields of the configuration. Those in `expanded` are replaced by their own fields. Omits fields that a disabled
    /// gate refuses.
    pub fn explained(&self, expanded: &[&str]) -> Vec<Explained> {
        let accepted = |name: &&String| self.off.iter().all(|(refused, _)| refused != name);
        let mut all = Vec::new();
        for (name, value) in schema_fields::fields(&self.schema, &self.schema).into_iter().flatten() {
            if !accepted(&name) {
                continue;
            }
            match schema_fields::fields(&self.schema, value).filter(|_| expanded.contains(&name.as_str())) {
                None => all.push(Explained::new(name.clone(), value)),
                Some(inner) => all.extend(
                    inner.iter().map(|(field, value)| Explained::new(format!("{name}.{field}"), value)),
                ),
            }
        }
        all
    }
}

/// Field of the configuration.
pub struct Explained {
    /// Path, such as `deploymentConfig.env`.
    pub path: String,
    /// Type in the notation of `kubectl explain`, with its limits.
    pub kind: String,
    /// Effect of the field. Empty for a field of the Kubernetes API.
    pub help: String,
}

impl Explained {
    fn new(path: String, value: &Value) -> Self {
        let help = fields::description(&path).unwrap_or_default().to_owned();
        Self { kind: format!("{}{}", fields::kind(value), fields::limits(value)), help, path }
    }
}

/// Note about a field that a disabled feature gate refuses.
fn gate_note(off: &[(&str, &str)], field: &str) -> Option<String> {
    let (_, gate) = off.iter().find(|(name, _)| *name == field)?;
    Some(format!("refused: feature gate {gate} of operator-controller is off"))
}

/// Error about a field that does not exist, with its siblings and the nearest of them.
fn unknown_field(path: &str, known: &[&str]) -> CliError {
    let name = path.rsplit('.').next().unwrap_or(path);
    let near = nearest(name, known.iter().copied()).map(|name| format!("; did you mean {name}?"));
    CliError::no_candidate(format!(
        "unknown field {}; allowed here: {}{}",
        quote(path),
        known.join(", "),
        near.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_explained_and_in_the_example() {
        let bundle = hints::tests::bundle(&["AllNamespaces", "MultiNamespace", "SingleNamespace"]);
        let schema = config_schema(&bundle, true, true);
        let example = example::example("lamp", &schema, &[]);
        let root = fields::explain(&bundle, &schema, "", &[]).unwrap();
        assert!(
            root.starts_with(
                "BUNDLE:  lamp.v1.0.0\nMODES:   AllNamespaces, MultiNamespace, SingleNamespace\n"
            )
        );
        assert!(root.contains("Without a configuration the operator watches all namespaces.\n"), "{root}");
        let names = |schema: &Value| -> Vec<String> {
            schema["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let deployments = names(&schema["properties"]["deploymentConfig"]);
        assert_eq!(deployments.len(), 9, "{deployments:?}");
        let below =
            deployments.iter().map(|name| (format!("deploymentConfig.{name}"), format!("#   {name}:")));
        for (path, line) in
            names(&schema).into_iter().map(|name| (name.clone(), format!("# {name}:"))).chain(below)
        {
            assert!(example.lines().any(|one| one.starts_with(&line)), "no {line} in {example}");
            let text = fields::explain(&bundle, &schema, &path, &[]).unwrap();
            assert!(!text.contains("A field of the Kubernetes API"), "{path}: {text}");
        }
    }
}
