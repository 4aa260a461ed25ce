//! `olm plan`: shows what the next revision of an extension changes, and whether it waits for an approval
//! (docs/design/approvals.md#approval).
//!
//! The choice comes from the resolver, the changes from the comparison of `olm diff`, the digest and the verdict from
//! the functions that operator-controller calls. If operator-controller wrote an ExtensionPlan, nothing is computed.

pub mod approve;
mod recorded;

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt};
use olm_api::annotations::EXT_RETRY_REQUESTED_AT as RETRY;
use olm_api::{ClusterExtension, ClusterObjectSet, OperatorCondition};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::{Fields, FormatArgs};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_plan::Target;
use olm_request::{
    DraftChange, ExtensionRules, HoldCause, RolledBackContent, Settings, replaced_operator, upgrade_blocker,
};
use olm_runtime::cluster::present;
use serde::Serialize;
use serde_json::Value;

use self::recorded::RecordedChanges;
use crate::diff::{ComparedExtension, Diff};
use crate::resolve::{ResolvedBundle, choose_as};
use crate::status::observe;

/// First lines of the command's help.
pub const ABOUT: &str = "Show the plan of an extension: what its next revision changes

The plan is that of the bundle that operator-controller would choose now. It lists objects, permissions, CRDs and \
images that change, and ends with the digest that an approval names. Nothing is changed.

If operator-controller wrote the plan as an ExtensionPlan (feature gate ExtensionPlans), this object is shown, and \
neither catalogs nor bundles are read. `olm diff --extension NAME` shows the changed fields.

The output names what holds the plan: an annotation (approval, approve-permission-increase or upgrade-window), the \
OperatorCondition of the operator, or a rollback. `olm approve` approves the plan.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the bundle cannot be installed this way
  4 the requested object does not exist, or no bundle can be chosen   6 the plan requires an approval

Examples:
  {olm} plan my-operator
  {olm} plan my-operator -o json | jq -r .digest")]
pub struct PlanArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// State of a plan. The names of the variants are the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum PlanState {
    /// The newest revision already has this content.
    Applied,
    /// operator-controller applies it by itself.
    Automatic,
    /// It is approved.
    Approved,
    ApprovalRequired,
    OutsideWindow,
    /// The OperatorCondition of the operator prevents it.
    OperatorNotUpgradeable,
    /// It was rolled back, and is applied again only on request.
    RolledBack,
}

/// Plan of an extension.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanReport {
    pub(crate) extension: String,
    pub(crate) bundle: String,
    pub(crate) version: String,
    pub(crate) catalog: String,
    pub(crate) image: String,
    pub(crate) digest: String,
    /// Name of the ExtensionPlan, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) object: Option<String>,
    pub(crate) state: PlanState,
    /// Next opening of an upgrade window, if the plan waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opens: Option<String>,
    /// Report of the operator that prevents the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocker: Option<String>,
    /// Changes on one line.
    pub(crate) summary: String,
    pub(crate) changes: Changes,
}

/// Changes of a plan.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Changes {
    /// Compared with the cluster.
    Computed(Box<Diff>),
    /// Listed by an ExtensionPlan.
    Recorded(RecordedChanges),
}

/// Runs the command.
///
/// # Errors
/// The extension does not exist, no bundle can be chosen, it cannot be read, or the plan requires an approval
/// ([`Code::ApprovalRequired`]).
pub async fn run(args: PlanArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.access.cluster.connect().await?;
    let live = observe::extension(&cluster, &args.name, session).await?;
    let (object, warning) = recorded::find(&cluster, &live, session).await?;
    warning.iter().for_each(|warning| say(&format!("warning: {warning}")));
    let report = match object {
        Some(object) => recorded::report(&object, &live),
        None => report(&cluster, &live, &args.access, session).await?.0,
    };
    session.output.result(args.format.output, "Plan", &report, PlanReport::text)?;
    match report.state {
        PlanState::ApprovalRequired => Err(CliError::ExitCode(Code::ApprovalRequired as u8)),
        _ => Ok(()),
    }
}

/// Computes the plan of an extension as operator-controller does.
///
/// # Errors
/// No bundle can be chosen, or the bundle or the cluster cannot be read.
pub(crate) async fn report(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    access: &Access,
    session: &Session,
) -> Result<(PlanReport, ResolvedBundle), CliError> {
    let name = extension.name_any();
    let controller = ControllerArgs::read(cluster, session).await?;
    let choice = choose_as(&controller, extension, &["cluster".to_owned()], access, session).await?;
    let compared = ComparedExtension { cluster, extension, session };
    let planned = compared.planned(&choice.image, &controller, access).await?;
    let revisions = observe::revisions(cluster, &name, session).await?;
    let content = newest_objects(cluster, &revisions, session).await?;
    let rules = ExtensionRules::of(extension.metadata.annotations.as_ref(), Settings::default());
    rules.invalid.iter().for_each(|fault| say(&format!("warning: {fault}")));
    let target = Target {
        version: &choice.version,
        release: choice.release.as_deref(),
        image: planned.diff.new.digest.as_deref().unwrap_or_default(),
        objects: &planned.objects,
        plan: &planned.digest,
    };
    let mut change = olm_plan::change(&revisions, content.as_deref(), &target);
    if planned.operator_conditions && change.is_upgrade() {
        change.blocker = blocker(cluster, extension, &revisions, content.as_deref(), session).await?;
    }
    let is_applied = !change.is_first
        && !change.changes_bundle
        && content.as_ref().is_some_and(|old| olm_plan::objects::changes(old, &planned.objects).is_empty());
    let refusal = olm_plan::newest_active(&revisions).and_then(RolledBackContent::of);
    let is_refused =
        refusal.is_some_and(|refusal| refusal.holds(&rules) && refusal.digest == planned.content);
    let (state, opens) = match state(&rules, &change, is_applied, Timestamp::now()) {
        (PlanState::Applied, _) => (PlanState::Applied, None),
        _ if is_refused => (PlanState::RolledBack, None),
        state => state,
    };
    let summary = olm_plan::summary(content.as_deref().unwrap_or_default(), &planned.objects);
    let report = PlanReport {
        extension: name,
        bundle: choice.bundle.clone(),
        version: planned.diff.new.version.clone(),
        catalog: choice.catalog.clone(),
        image: choice.image.clone(),
        digest: planned.digest,
        object: None,
        state,
        opens,
        blocker: change.blocker.filter(|_| state == PlanState::OperatorNotUpgradeable),
        summary,
        changes: Changes::Computed(Box::new(planned.diff)),
    };
    Ok((report, choice))
}

/// Objects of the newest active revision. `None`, with a warning, if they cannot be read.
async fn newest_objects(
    cluster: &ClusterConnection,
    revisions: &[ClusterObjectSet],
    session: &Session,
) -> Result<Option<Vec<Value>>, CliError> {
    let content = match olm_plan::newest_active(revisions) {
        Some(revision) => session.interruptible(observe::stored(cluster, revision)).await?,
        None => Ok(Vec::new()),
    };
    let content = content.map_err(|why| say(&format!("warning: permissions are not compared: {why}"))).ok();
    Ok(content.map(|phases| {
        phases.into_iter().flat_map(|phase| phase.objects).map(|content| content.object).collect()
    }))
}

/// Report of the operator that prevents its replacement. `content` are the objects of the newest revision.
async fn blocker(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    revisions: &[ClusterObjectSet],
    content: Option<&[Value]>,
    session: &Session,
) -> Result<Option<String>, CliError> {
    let namespace = extension.spec.as_ref().map_or("", |spec| spec.namespace.as_str());
    let newest = olm_plan::newest_active(revisions);
    let Some((namespace, name)) = replaced_operator(newest, content, namespace) else { return Ok(None) };
    let api: Api<OperatorCondition> = Api::namespaced(cluster.client().clone(), &namespace);
    let what = format!("OperatorCondition {namespace}/{name}");
    let found = cluster.call(&what, async { present(api.get(&name).await) }, session).await?;
    // Any user of the namespace may create one.
    let is_controlled = |found: &&OperatorCondition| {
        let mut owners = found.metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        controller.is_some_and(|owner| {
            revisions.iter().any(|revision| revision.metadata.uid.as_ref() == Some(&owner.uid))
        })
    };
    let blocker = found.as_ref().filter(is_controlled).and_then(upgrade_blocker);
    Ok(blocker.map(|why| format!("{what}: {why}")))
}

/// State of the plan at the time `now`, and the next opening of a window that it waits for.
fn state(
    rules: &ExtensionRules,
    change: &DraftChange,
    is_applied: bool,
    now: Timestamp,
) -> (PlanState, Option<String>) {
    if is_applied {
        return (PlanState::Applied, None);
    }
    match rules.approval.hold(change, now) {
        Some(HoldCause::ApprovalRequired) => (PlanState::ApprovalRequired, None),
        Some(HoldCause::OutsideWindow { opens }) => {
            (PlanState::OutsideWindow, opens.map(|opens| opens.to_string()))
        }
        Some(HoldCause::OperatorNotUpgradeable) => (PlanState::OperatorNotUpgradeable, None),
        None if rules.approval.approved.as_ref() == Some(&change.digest) => (PlanState::Approved, None),
        None => (PlanState::Automatic, None),
    }
}

impl PlanReport {
    fn text(&self) -> String {
        match &self.changes {
            Changes::Computed(diff) => format!("{}\n{}", self.heading(), diff.text()),
            Changes::Recorded(_) => self.heading(),
        }
    }

    /// Text without computed changes.
    fn heading(&self) -> String {
        let mut fields = Fields::default();
        fields.add(0, "Extension", &self.extension);
        let bundle = format!("{}, version {}", self.bundle, self.version);
        let catalog = if self.catalog.is_empty() { "" } else { ", from catalog " };
        fields.add(0, "Bundle", &format!("{bundle}{catalog}{}", self.catalog));
        fields.add(0, "Image", &self.image);
        fields.add(0, "Plan", &self.digest);
        if let Some(object) = &self.object {
            fields.add(0, "Object", &format!("ExtensionPlan {object}"));
        }
        fields.add(0, "State", &self.state_text());
        if self.state != PlanState::Applied {
            fields.add(0, "Changes", &self.summary);
        }
        match &self.changes {
            Changes::Computed(_) => fields.text,
            Changes::Recorded(recorded) => format!("{}{}", fields.text, recorded.text()),
        }
    }

    /// State as a sentence.
    pub(crate) fn state_text(&self) -> String {
        match (self.state, &self.opens) {
            (PlanState::Applied, _) => "the newest revision has this content".to_owned(),
            (PlanState::Automatic, _) => "operator-controller applies it without an approval".to_owned(),
            (PlanState::Approved, _) => "approved; operator-controller applies it".to_owned(),
            (PlanState::ApprovalRequired, _) => {
                format!("requires approval; `olm approve {}` approves it", self.extension)
            }
            (PlanState::OutsideWindow, Some(opens)) => {
                format!("waits; the next upgrade window opens at {opens}")
            }
            (PlanState::OutsideWindow, None) => "waits; no upgrade window opens".to_owned(),
            (PlanState::OperatorNotUpgradeable, _) => {
                format!("waits; {}", self.blocker.as_deref().unwrap_or_default())
            }
            (PlanState::RolledBack, _) => {
                format!("was rolled back; to apply it again, change annotation {RETRY}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use olm_api::annotations;

    use super::*;

    #[test]
    fn state_of_plan_follows_the_annotations() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let change = DraftChange { digest: digest.clone(), changes_bundle: true, ..DraftChange::default() };
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let of = |annotations: &[(&str, &str)], is_applied| {
            let prefix = annotations::EXT_PREFIX;
            let all: BTreeMap<String, String> = annotations
                .iter()
                .map(|(key, value)| (format!("{prefix}{key}"), (*value).to_owned()))
                .collect();
            state(&ExtensionRules::of(Some(&all), Settings::default()), &change, is_applied, now)
        };
        let manual = ("approval", "ManualUpgrades");
        let closed = ("upgrade-window", "0 22 * * * 1h");
        assert_eq!(of(&[], false), (PlanState::Automatic, None));
        assert_eq!(of(&[manual], false), (PlanState::ApprovalRequired, None));
        assert_eq!(of(&[manual], true), (PlanState::Applied, None));
        assert_eq!(of(&[manual, ("approved", &digest)], false), (PlanState::Approved, None));
        let opens = Some("2026-11-21T22:00:00Z".to_owned());
        assert_eq!(of(&[manual, ("approved", &digest), closed], false), (PlanState::OutsideWindow, opens));

        let change = DraftChange { blocker: Some("migrating".to_owned()), ..change };
        let blocked = state(&ExtensionRules::default(), &change, false, now);
        assert_eq!(blocked, (PlanState::OperatorNotUpgradeable, None));
    }
}
