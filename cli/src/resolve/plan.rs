//! `--solve`: a plan with everything that a package needs, and the manifests that carry it out
//! (docs/design/additions.md#dependency-modes).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec, ExtensionSource, SourceType};
use olm_api::{ClusterExtension, LabelSelector, annotations, labels};
use olm_solve::{Change, Conflict, Plan, SolveError, Step, solve};
use serde::Serialize;

use super::ask::Ask;
use super::catalogs::Catalogs;
use super::choose::{read, rules_of};
use super::world::World;
use crate::change::Controller;
use crate::failure::{Code, Failure};
use crate::manifest::API_VERSION;
use crate::output::{Format, yaml};
use crate::progress::say;
use crate::session::Session;
use crate::source::Access;

/// Longest time for the search.
const TIME_BUDGET: Duration = Duration::from_secs(5);

/// How a plan is printed.
pub(super) struct Printing<'a> {
    pub(super) format: Format,
    /// Manifests in place of the plan itself.
    pub(super) manifests: bool,
    /// Where new extensions are installed; default: in a namespace of the package's name.
    pub(super) namespace: Option<&'a str>,
}

/// What a program gets: the plan, or why there is none.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    plan: Option<&'a Plan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict: Option<&'a Conflict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

const KIND: &str = "Plan";

/// What `kubectl apply` notes on an object; it would be wrong in a manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Solves and prints.
///
/// # Errors
/// No plan exists, or it is not found in time.
pub(super) fn run(
    asks: &[Ask],
    catalogs: &Catalogs,
    world: &World,
    printing: &Printing<'_>,
    session: &mut Session,
) -> Result<(), Failure> {
    let plan = match solved(asks, catalogs, world, session) {
        Ok(plan) => plan,
        Err(error) => return Err(told(&error, &missing(asks, catalogs), printing.format, session)?),
    };
    if printing.manifests {
        return session.output.text(&manifests(&plan, asks, world, printing.namespace)?);
    }
    let document = Document { plan: Some(&plan), conflict: None, error: None };
    session.output.result(printing.format, KIND, &document, |_| format!("{plan}\n"))
}

fn solved(asks: &[Ask], catalogs: &Catalogs, world: &World, session: &Session) -> Result<Plan, SolveError> {
    let (sources, faults) = catalogs.for_solving();
    for fault in faults {
        say(&format!("warning: left out: {fault}"));
    }
    let _step = session.progress.step("solving");
    solve(&world.question(asks, catalogs, &sources, Instant::now() + TIME_BUDGET))
}

/// A plan for commands that carry it out.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan for people.
    pub(crate) told: String,
    /// What to write, step by step; the members of a step need each other.
    pub(crate) steps: Vec<Vec<PlannedExtension>>,
}

/// An extension as a plan wants it.
#[derive(Debug)]
pub(crate) struct PlannedExtension {
    /// What becomes of it, such as `install base 1.4.0 (…)`.
    pub(crate) told: String,
    /// The extension, pinned to version and catalog.
    pub(crate) extension: ClusterExtension,
    /// Name of the bundle.
    pub(crate) bundle: String,
    /// Reference of its image.
    pub(crate) image: String,
    /// Name of the bundle that is installed; `None` where there is none.
    pub(crate) before: Option<String>,
}

/// Plans `extension`, which need not exist yet, and everything that it needs, as the cluster's controller is configured. What
/// is new is installed into its namespace.
///
/// # Errors
/// Those of the sources; no plan exists, or it is not found in time.
pub(crate) async fn plan_as(
    controller: &Controller,
    extension: &ClusterExtension,
    sources: &[String],
    access: &Access,
    session: &Session,
) -> Result<Planned, Failure> {
    let rules = rules_of(controller, extension)?;
    let mut ask = Ask::of_extension(extension, &rules)?;
    let catalogs = read(&ask, true, sources, &rules, access, session).await?;
    ask.name_default_channel(&catalogs)?;
    let world = World::of_cluster(&access.cluster.connect().await?, &rules, session).await?;
    let asks = [ask];
    let plan = solved(&asks, &catalogs, &world, session).map_err(|error| {
        let hints: String = missing(&asks, &catalogs).iter().map(|hint| format!("\nhint: {hint}")).collect();
        Failure::Told(code(&error), format!("{error}{hints}"))
    })?;
    let namespace = extension.spec.as_ref().map(|spec| spec.namespace.as_str());
    let written = written(&plan, &asks, &world, namespace);
    let planned = |(change, manifest): (&Change, Manifest)| PlannedExtension {
        told: change.to_string(),
        extension: manifest.into(),
        bundle: change.to.bundle.clone(),
        image: change.to.image.clone(),
        before: change.from.as_ref().map(|from| from.bundle.clone()),
    };
    let steps = written.into_iter().map(|step| step.into_iter().map(planned).collect()).collect();
    Ok(Planned { told: plan.to_string(), steps })
}

/// Says which packages are in no catalog, and which names are similar.
fn missing(asks: &[Ask], catalogs: &Catalogs) -> Vec<String> {
    let absent = asks.iter().filter(|ask| catalogs.packages(ask.package(), &ask.selector).is_empty());
    absent.map(|ask| catalogs.missing(ask.package())).collect()
}

/// Prints why there is no plan for programs, and gives the failure that tells people.
fn told(
    error: &SolveError,
    hints: &[String],
    format: Format,
    session: &mut Session,
) -> Result<Failure, Failure> {
    let conflict = match error {
        SolveError::Conflict(conflict) => Some(conflict.as_ref()),
        _ => None,
    };
    if format != Format::Table {
        let document = Document { plan: None, conflict, error: Some(error.to_string()) };
        session.output.result(format, KIND, &document, |_| String::new())?;
    }
    let hints: String = hints.iter().map(|hint| format!("\nhint: {hint}")).collect();
    Ok(Failure::Told(code(error), format!("{error}{hints}")))
}

fn code(error: &SolveError) -> Code {
    match error {
        SolveError::Conflict(_) => Code::NoCandidate,
        SolveError::TimeBudget { .. } => Code::Operational,
        SolveError::Wish { .. } | SolveError::Twice { .. } => Code::Usage,
    }
}

/// The ClusterExtensions of a plan, to be applied in their order.
fn manifests(plan: &Plan, asks: &[Ask], world: &World, namespace: Option<&str>) -> Result<String, Failure> {
    let mut text = String::new();
    for (number, step) in written(plan, asks, world, namespace).iter().enumerate() {
        for (_, manifest) in step {
            text += if text.is_empty() { "" } else { "---\n" };
            text += &format!("# Step {} of {}\n{}", number + 1, plan.steps.len(), yaml(manifest)?);
        }
    }
    Ok(text)
}

/// The changes of a plan by step, with the extensions that make them.
fn written<'a>(
    plan: &'a Plan,
    asks: &[Ask],
    world: &World,
    namespace: Option<&str>,
) -> Vec<Vec<(&'a Change, Manifest)>> {
    let dependent: BTreeSet<&str> = plan.requirements.iter().map(|met| met.bundle.as_str()).collect();
    let step = |step: &'a Step| {
        // Members of a group wait for each other, which mode Check would not let them.
        let mode = if step.changes.len() > 1 { "Report" } else { "Check" };
        let change = |change: &'a Change| {
            let mode = Some(mode).filter(|_| dependent.contains(change.to.bundle.as_str()));
            let about: Vec<&Ask> =
                asks.iter().chain(world.asks()).filter(|ask| ask.package() == change.package).collect();
            (change, manifest(change, &about, namespace, mode))
        };
        step.changes.iter().map(change).collect()
    };
    plan.steps.iter().map(step).collect()
}

/// The extension as it must be for a change: pinned to the version and the catalog of the plan. Whatever else is known of it
/// stays, as applying the manifest removes what is not in it.
fn manifest(change: &Change, asks: &[&Ask], namespace: Option<&str>, mode: Option<&str>) -> Manifest {
    let original = asks.iter().find_map(|ask| ask.original.as_ref());
    let known = original.map(|original| original.metadata.clone()).unwrap_or_default();
    let mut annotations = known.annotations.unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    annotations.extend(mode.map(|mode| (annotations::EXT_DEPENDENCY_MODE.to_owned(), mode.to_owned())));
    let from = change.from.as_ref().map(|from| from.extension.as_str());
    let asked = asks.iter().find_map(|ask| ask.extension.as_deref());
    let name = from.or(asked).unwrap_or(&change.package).to_owned();
    let mut spec = original.and_then(|original| original.spec.clone()).unwrap_or_else(|| {
        let namespace = asks.iter().find_map(|ask| ask.namespace.as_deref()).or(namespace);
        new_spec(namespace.unwrap_or(&change.package))
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
        // A plan that follows no edge needs the policy that lets it.
        upgrade_constraint_policy: asks.iter().find_map(|ask| ask.filter.upgrade_constraint_policy.clone()),
    });
    let metadata = Metadata { name, labels: known.labels.unwrap_or_default(), annotations };
    Manifest { api_version: API_VERSION, kind: "ClusterExtension", metadata, spec }
}

/// The specification of a new extension, which asks for nothing yet.
fn new_spec(namespace: &str) -> ClusterExtensionSpec {
    ClusterExtensionSpec {
        namespace: namespace.to_owned(),
        service_account: None,
        source: ExtensionSource { source_type: SourceType::Catalog, catalog: None },
        install: None,
        config: None,
        progress_deadline_minutes: None,
    }
}

/// A ClusterExtension in the order in which people write one.
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
