//! Installation or upgrade of a package with its dependencies: shows the solver's plan, asks, and carries it out step
//! by step (docs/design/additions.md#dependency-modes).
//!
//! The cluster is the only state: the same command, run again, plans the remaining steps.

use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_cli_core::change::{self, ChangeArgs, ChangeFormat, WrittenObject};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::Fields;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_version::quote;

use super::existing::{find_existing, find_twin, require_same, twin_error};
use super::extension::{package, set_namespace};
use super::{InstallNamespace, check_schema, print_warnings};
use crate::diff::{ComparedExtension, refusal};
use crate::hardened;
use crate::resolve::{InstallPlan, PlannedExtension, plan_as};
use crate::rollout::{self, ExpectedState, PlanProgress};

/// Inputs of a plan.
pub(crate) struct PlanContext<'a> {
    pub(crate) cluster: &'a ClusterConnection,
    pub(crate) controller: &'a ControllerArgs,
    /// All extensions of the cluster.
    pub(crate) extensions: &'a [ClusterExtension],
    pub(crate) access: &'a Access,
    pub(crate) change: &'a ChangeArgs,
    /// Namespace of new extensions. `None` for the one that the bundle suggests.
    pub(crate) namespace: Option<&'a InstallNamespace>,
    /// Create a suggested namespace also with labels and annotations.
    pub(crate) create_namespace: bool,
    /// Carry out the plan without asking.
    pub(crate) yes: bool,
    /// The extension exists, and the plan may change it.
    pub(crate) upgrades: bool,
}

/// Planned extension, with the live one if it exists.
struct PlanItem<'a> {
    planned: PlannedExtension,
    live: Option<&'a ClusterExtension>,
}

/// Plans, asks, and installs or upgrades.
///
/// # Errors
/// There is no plan, the cluster would refuse a part of it, the answer is no, or a part does not complete.
pub(crate) async fn run(
    context: &PlanContext<'_>,
    mut desired: ClusterExtension,
    session: &mut Session,
) -> Result<(), CliError> {
    let PlanContext { cluster, controller, extensions, access, change: args, .. } = context;
    let existing = extensions.iter().find(|one| one.name_any() == desired.name_any());
    desired.status = existing.and_then(|existing| existing.status.clone());
    let sources = ["cluster".to_owned()];
    let planned = plan_as(controller, &desired, &sources, access, session).await?;
    let InstallPlan { text, mut steps, namespace } = planned;
    let suggested;
    let namespace = match context.namespace {
        Some(given) => given,
        None => {
            let package = package(&desired);
            suggested = InstallNamespace::suggested(namespace, package, context.create_namespace)?;
            for planned in steps.iter_mut().flatten().filter(|planned| planned.before.is_none()) {
                set_namespace(&mut planned.extension, suggested.name());
            }
            &suggested
        }
    };
    let steps: Vec<Vec<PlanItem<'_>>> =
        steps.into_iter().map(|step| plan_items(step, context, &desired)).collect::<Result<_, _>>()?;
    if steps.is_empty() {
        return change::print(args.output, &format!("{text}\n"), &[], &mut session.output);
    }
    let has_namespace = namespace.exists(cluster, session).await?;
    let problems = check(context, &steps, has_namespace, session).await?;
    let mut fields = Fields { text: format!("{text}\n") };
    let name = namespace.name();
    let created = if has_namespace { "" } else { ", which will be created" };
    let given = || format!("{name}, for new extensions{created}");
    fields.add(0, "Namespace", &namespace.note().unwrap_or_else(given));
    fields.add(
        0,
        "Versions",
        "pinned as planned; `olm upgrade NAME --latest` removes the pin of an extension",
    );
    fields.list(0, "Problems", &problems);
    print_warnings(args.output, problems.iter());
    if args.output == ChangeFormat::Table {
        session.output.text(&fields.text)?;
        session.output.finish()?;
    } else if args.dry_run.is_none() {
        say(&text);
    }
    let mut written = Vec::new();
    if args.dry_run.is_none() {
        let question = if context.upgrades { "Upgrade them?" } else { "Install them?" };
        change::confirm(question, context.yes, session).await?;
    }
    if !has_namespace && let Some(created) = namespace.create(cluster, args.dry_run, session).await? {
        context.print_written(&created, session)?;
        written.push(created);
    }
    let ended = apply_plan(context, &steps, &mut written, session).await;
    if args.output != ChangeFormat::Table || args.dry_run.is_some() {
        change::print(args.output, "", &written, &mut session.output)?;
    }
    ended
}

impl PlanContext<'_> {
    /// In table format, prints each written object at once. The other formats print all at the end.
    fn print_written(&self, written: &WrittenObject, session: &mut Session) -> Result<(), CliError> {
        if self.change.output != ChangeFormat::Table || self.change.dry_run.is_some() {
            return Ok(());
        }
        session.output.text(&format!("{written}\n"))?;
        session.output.finish()
    }
}

/// Members of a step, each with its live extension.
fn plan_items<'a>(
    step: Vec<PlannedExtension>,
    context: &PlanContext<'a>,
    desired: &ClusterExtension,
) -> Result<Vec<PlanItem<'a>>, CliError> {
    let extensions = context.extensions;
    let item = |planned: PlannedExtension| {
        let name = planned.extension.name_any();
        if planned.before.is_some() {
            if name == desired.name_any() && !context.upgrades {
                return Err(CliError::findings(format!(
                    "ClusterExtension {} is already installed, and the plan is to {}\nchange it with `olm upgrade {name}`",
                    quote(&name),
                    planned.summary
                )));
            }
            let live = extensions.iter().find(|one| one.name_any() == name);
            return Ok(PlanItem { planned, live });
        }
        let live = find_existing(extensions, &planned.extension)?;
        if let Some(existing) = live {
            require_same(existing, &planned.extension)?;
        } else if let Some(twin) = find_twin(extensions, &planned.extension) {
            return Err(twin_error(twin, &[]));
        }
        Ok(PlanItem { planned, live })
    };
    step.into_iter().map(item).collect()
}

impl PlanItem<'_> {
    fn name(&self) -> String {
        self.planned.extension.name_any()
    }

    /// Desired extension. Fields of a live one that the plan does not set are kept.
    fn extension(&self) -> ClusterExtension {
        let planned = &self.planned.extension;
        let Some(live) = self.live else { return planned.clone() };
        let mut extension = live.clone();
        if let (Some(spec), Some(planned)) = (&mut extension.spec, &planned.spec) {
            spec.source.clone_from(&planned.source);
        }
        let annotations = planned.metadata.annotations.iter().flatten();
        extension.annotations_mut().extend(annotations.map(|(key, value)| (key.clone(), value.clone())));
        extension
    }

    /// Name and bundle, for messages.
    fn label(&self) -> String {
        format!("{} ({})", self.name(), self.planned.bundle)
    }
}

/// Fails if any part of the plan would be refused. Returns the problems of the other parts.
async fn check(
    context: &PlanContext<'_>,
    steps: &[Vec<PlanItem<'_>>],
    has_namespace: bool,
    session: &Session,
) -> Result<Vec<String>, CliError> {
    let PlanContext { change: args, cluster, controller, access, .. } = context;
    let mut problems = Vec::new();
    for item in steps.iter().flatten() {
        let (extension, image) = (item.extension(), &item.planned.image);
        let of_it = |text: String| format!("{}: {text}", item.name());
        let named = |failure: CliError| match failure {
            CliError::Message(code, text) if code != Code::Interrupted => {
                CliError::Message(code, of_it(text))
            }
            other => other,
        };
        check_schema(&extension).map_err(named)?;
        let new = item.live.is_none();
        // Dependencies that are not installed yet provide no kinds, so a dry run would fail.
        let compare = has_namespace && !new;
        let compared = ComparedExtension { cluster, extension: &extension, session };
        let prediction = compared.predict_or_warn(image, controller, compare, access).await;
        let prediction = prediction.map_err(named)?;
        if let Some(failure) = refusal(&extension, &prediction) {
            return Err(named(failure));
        }
        problems.extend(prediction.problems.into_iter().map(of_it));
        if new && args.dry_run.is_none() {
            change::dry_create(cluster, &extension, session).await.map_err(named)?;
        }
    }
    Ok(problems)
}

/// Writes each step and waits for it before the next one.
async fn apply_plan(
    context: &PlanContext<'_>,
    steps: &[Vec<PlanItem<'_>>],
    written: &mut Vec<WrittenObject>,
    session: &mut Session,
) -> Result<(), CliError> {
    let PlanContext { change: args, cluster, .. } = context;
    let extensions = steps.iter().flatten().map(PlanItem::label).collect();
    let mut progress = PlanProgress::new(extensions);
    for (number, step) in steps.iter().enumerate() {
        let mut targets = Vec::new();
        for item in step {
            let extension = item.extension();
            for granted in hardened::grant(cluster, &extension, args.dry_run, session).await? {
                context.print_written(&granted, session)?;
                written.push(granted);
            }
            let one = change::apply(cluster, item.live, &extension, args.dry_run, session).await;
            let one = one.map_err(|failure| progress.with(failure))?;
            progress.written += 1;
            context.print_written(&one, session)?;
            let (bundle, before) = (item.planned.bundle.clone(), item.planned.before.clone());
            targets.push(ExpectedState::new(&one, Some(bundle), before));
            written.push(one);
        }
        let is_last = number + 1 == steps.len();
        if args.dry_run.is_some() || (is_last && !args.wait) {
            continue;
        }
        for target in targets {
            let waited = rollout::wait_for(cluster, &target, args.timeout, session).await;
            let words = waited.map_err(|failure| progress.with(failure))?;
            progress.complete += 1;
            change::print_end(args.output, &words, session)?;
        }
    }
    Ok(())
}
