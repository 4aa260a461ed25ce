//! `--solve`: plans a package with all dependencies, and prints the plan as manifests
//! (docs/design/additions.md#dependency-modes).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec};
use olm_api::{ClusterExtension, LabelSelector, annotations, labels};
use olm_cli_catalog::suggested_namespace::SuggestedNamespace;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::manifest::API_VERSION;
use olm_cli_core::output::{Format, yaml};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_solve::{Change, ChangePlan, ChangeStep, Conflict, SolveError, solve};
use serde::Serialize;

use super::catalogs::Catalogs;
use super::choice::{read, rules_of};
use super::dependency_inputs::DependencyInputs;
use super::query::Query;
use super::with_hints;

/// Deadline of the solver.
const TIME_BUDGET: Duration = Duration::from_secs(5);

/// Print options of a plan.
pub(super) struct Printing<'a> {
    pub(super) format: Format,
    /// Print manifests instead of the plan.
    pub(super) manifests: bool,
    /// Namespace of new extensions. Default: the name of the package.
    pub(super) namespace: Option<&'a str>,
}

/// JSON and YAML output: the plan, or the reasons for which there is none.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    plan: Option<&'a ChangePlan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict: Option<&'a Conflict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

const KIND: &str = "Plan";

/// Annotation of `kubectl apply`, which must not be in a manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Solves and prints.
///
/// # Errors
/// No plan exists, or it is not found in time.
pub(super) fn run(
    queries: &[Query],
    catalogs: &Catalogs,
    dependencies: &DependencyInputs,
    printing: &Printing<'_>,
    session: &mut Session,
) -> Result<(), CliError> {
    let plan = match solved(queries, catalogs, dependencies, session) {
        Ok(plan) => plan,
        Err(error) => {
            return Err(print_conflict(&error, &missing(queries, catalogs), printing.format, session)?);
        }
    };
    if printing.manifests {
        return session.output.text(&manifests(&plan, queries, dependencies, printing.namespace)?);
    }
    let document = Document { plan: Some(&plan), conflict: None, error: None };
    session.output.result(printing.format, KIND, &document, |_| format!("{plan}\n"))
}

fn solved(
    queries: &[Query],
    catalogs: &Catalogs,
    dependencies: &DependencyInputs,
    session: &Session,
) -> Result<ChangePlan, SolveError> {
    let (sources, faults) = catalogs.for_solving();
    for fault in faults {
        say(&format!("warning: skipped: {fault}"));
    }
    let _step = session.progress.step("solving");
    solve(&dependencies.input(queries, catalogs, &sources, Instant::now() + TIME_BUDGET))
}

/// Plan for commands that carry it out.
#[derive(Debug)]
pub(crate) struct InstallPlan {
    /// Text output of the plan.
    pub(crate) text: String,
    /// Namespace that the bundle of the requested package suggests, or why there is none.
    pub(crate) namespace: Result<SuggestedNamespace, String>,
    /// Extensions to write, by step. The members of a step depend on each other.
    pub(crate) steps: Vec<Vec<PlannedExtension>>,
}

/// Planned extension.
#[derive(Debug)]
pub(crate) struct PlannedExtension {
    /// Action as text, such as `install base 1.4.0 (…)`.
    pub(crate) summary: String,
    /// Extension, pinned to version and catalog.
    pub(crate) extension: ClusterExtension,
    pub(crate) bundle: String,
    /// Reference of the bundle image.
    pub(crate) image: String,
    /// Name of the installed bundle, if any.
    pub(crate) before: Option<String>,
}

/// Plans `extension`, which need not exist yet, and all its dependencies, with the configuration of the cluster's
/// controller. New extensions use its namespace.
///
/// # Errors
/// A source cannot be read, no plan exists, or it is not found in time.
pub(crate) async fn plan_as(
    controller: &ControllerArgs,
    extension: &ClusterExtension,
    sources: &[String],
    access: &Access,
    session: &Session,
) -> Result<InstallPlan, CliError> {
    let rules = rules_of(controller, extension)?;
    let mut query = Query::of_extension(extension, &rules)?;
    let catalogs = read(&query, true, sources, &rules, access, session).await?;
    query.name_default_channel(&catalogs)?;
    let dependencies =
        DependencyInputs::of_cluster(&access.cluster.connect().await?, &rules, session).await?;
    let queries = [query];
    let plan = solved(&queries, &catalogs, &dependencies, session).map_err(|error| {
        CliError::Message(code(&error), with_hints(error.to_string(), &missing(&queries, &catalogs)))
    })?;
    let namespace = extension.spec.as_ref().map(|spec| spec.namespace.as_str());
    let written = written(&plan, &queries, &dependencies, namespace);
    let package = queries[0].package();
    let requested =
        written.iter().flatten().map(|(change, _)| *change).find(|change| change.package == package);
    let bundle = requested.and_then(|change| {
        catalogs.package(&change.to.catalog, package).and_then(|found| found.bundle(&change.to.bundle))
    });
    let suggested = SuggestedNamespace::of(package, bundle);
    let planned = |(change, manifest): (&Change, Manifest)| PlannedExtension {
        summary: change.to_string(),
        extension: manifest.into(),
        bundle: change.to.bundle.clone(),
        image: change.to.image.clone(),
        before: change.from.as_ref().map(|from| from.bundle.clone()),
    };
    let steps = written.into_iter().map(|step| step.into_iter().map(planned).collect()).collect();
    Ok(InstallPlan { text: plan.to_string(), steps, namespace: suggested })
}

/// Messages for packages that are in no catalog, with similar names.
fn missing(queries: &[Query], catalogs: &Catalogs) -> Vec<String> {
    let absent =
        queries.iter().filter(|query| catalogs.packages(query.package(), &query.selector).is_empty());
    absent.map(|query| catalogs.missing(query.package())).collect()
}

/// Prints the reasons in the chosen format, and returns the failure with the text.
fn print_conflict(
    error: &SolveError,
    hints: &[String],
    format: Format,
    session: &mut Session,
) -> Result<CliError, CliError> {
    let conflict = match error {
        SolveError::Conflict(conflict) => Some(conflict.as_ref()),
        _ => None,
    };
    if format != Format::Table {
        let document = Document { plan: None, conflict, error: Some(error.to_string()) };
        session.output.result(format, KIND, &document, |_| String::new())?;
    }
    Ok(CliError::Message(code(error), with_hints(error.to_string(), hints)))
}

fn code(error: &SolveError) -> Code {
    match error {
        SolveError::Conflict(_) => Code::NoCandidate,
        SolveError::TimeBudget { .. } => Code::Operational,
        SolveError::Constraints { .. } | SolveError::Twice { .. } => Code::Usage,
    }
}

/// ClusterExtensions of a plan, to be applied in this order.
fn manifests(
    plan: &ChangePlan,
    queries: &[Query],
    dependencies: &DependencyInputs,
    namespace: Option<&str>,
) -> Result<String, CliError> {
    let mut text = String::new();
    for (number, step) in written(plan, queries, dependencies, namespace).iter().enumerate() {
        for (_, manifest) in step {
            text += if text.is_empty() { "" } else { "---\n" };
            text += &format!("# Step {} of {}\n{}", number + 1, plan.steps.len(), yaml(manifest)?);
        }
    }
    Ok(text)
}

/// Changes of a plan by step, with the extensions that make them.
fn written<'a>(
    plan: &'a ChangePlan,
    queries: &[Query],
    dependencies: &DependencyInputs,
    namespace: Option<&str>,
) -> Vec<Vec<(&'a Change, Manifest)>> {
    let dependent: BTreeSet<&str> = plan.requirements.iter().map(|met| met.bundle.as_str()).collect();
    let step = |step: &'a ChangeStep| {
        // Members of a group wait for each other. In mode Check they would deadlock.
        let mode = if step.changes.len() > 1 { "Report" } else { "Check" };
        let change = |change: &'a Change| {
            let mode = Some(mode).filter(|_| dependent.contains(change.to.bundle.as_str()));
            let about: Vec<&Query> = queries
                .iter()
                .chain(dependencies.queries())
                .filter(|query| query.package() == change.package)
                .collect();
            (change, manifest(change, &about, namespace, mode))
        };
        step.changes.iter().map(change).collect()
    };
    plan.steps.iter().map(step).collect()
}

/// Extension for a change, pinned to the version and the catalog of the plan. Keeps all other known fields, because
/// applying the manifest removes fields that it lacks.
fn manifest(change: &Change, queries: &[&Query], namespace: Option<&str>, mode: Option<&str>) -> Manifest {
    let original = queries.iter().find_map(|query| query.original.as_ref());
    let known = original.map(|original| original.metadata.clone()).unwrap_or_default();
    let mut annotations = known.annotations.unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    annotations.extend(mode.map(|mode| (annotations::EXT_DEPENDENCY_MODE.to_owned(), mode.to_owned())));
    let from = change.from.as_ref().map(|from| from.extension.as_str());
    let asked = queries.iter().find_map(|query| query.extension.as_deref());
    let name = from.or(asked).unwrap_or(&change.package).to_owned();
    let mut spec = original.and_then(|original| original.spec.clone()).unwrap_or_else(|| {
        let namespace = queries.iter().find_map(|query| query.namespace.as_deref()).or(namespace);
        ClusterExtensionSpec::of_package(namespace.unwrap_or(&change.package), CatalogFilter::default())
    });
    let catalog = (labels::METADATA_NAME.to_owned(), change.to.catalog.clone());
    spec.source.catalog = Some(CatalogFilter {
        package_name: change.package.clone(),
        version: Some(change.to.version.clone()),
        channels: change.to.channel.iter().cloned().collect(),
        selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([catalog])),
            match_expressions: None,
        }),
        // A plan that leaves the upgrade edges needs the policy that allows it.
        upgrade_constraint_policy: queries
            .iter()
            .find_map(|query| query.filter.upgrade_constraint_policy.clone()),
    });
    let metadata = Metadata { name, labels: known.labels.unwrap_or_default(), annotations };
    Manifest { api_version: API_VERSION, kind: "ClusterExtension", metadata, spec }
}

/// ClusterExtension with fields in conventional order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: ClusterExtensionSpec,
}

impl From<Manifest> for ClusterExtension {
    fn from(manifest: Manifest) -> Self {
        let Metadata { name, labels, annotations } = manifest.metadata;
        let some = |map: BTreeMap<String, String>| (!map.is_empty()).then_some(map);
        let mut extension = Self::new(&name, manifest.spec);
        extension.metadata.labels = some(labels);
        extension.metadata.annotations = some(annotations);
        extension
    }
}

#[derive(Debug, Serialize)]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}
