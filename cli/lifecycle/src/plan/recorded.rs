//! Plans that operator-controller wrote as ExtensionPlans (docs/design/approvals.md#plan-objects).

use std::fmt::Write;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use olm_api::conditions::{reasons, types};
use olm_api::extension_plan::{PlannedObject, PlannedRevision};
use olm_api::text::one_line;
use olm_api::{ClusterExtension, ExtensionPlan, labels, names};
use olm_cli_core::change::{self, DryRun, FIELD_MANAGER, WriteResult, WrittenObject};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::qualified;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_request::{DraftChange, ExtensionRules, HeldMessage, Settings};
use olm_runtime::cluster::present;
use olm_version::quote;
use serde::Serialize;
use serde_json::json;

use super::{Changes, PlanReport, PlanState, state};

/// Changes that an ExtensionPlan lists.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordedChanges {
    objects: Vec<PlannedObject>,
    permissions_gained: Vec<String>,
    crd_findings: Vec<String>,
    truncated: bool,
}

/// Lists of an ExtensionPlan.
#[derive(Clone, Copy, Debug)]
pub struct RecordedPlan<'a> {
    /// Created, changed and deleted objects.
    pub objects: &'a [PlannedObject],
    /// Sentences, the permission that allows most first.
    pub permissions_gained: &'a [String],
    /// `true` if a list is not complete.
    pub truncated: bool,
}

/// ExtensionPlan that the extension waits for. `None` also if the user may not read ExtensionPlans, with a warning.
///
/// # Errors
/// A signal arrived.
pub(super) async fn find(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    session: &Session,
) -> Result<(Option<ExtensionPlan>, Option<String>), CliError> {
    let api: Api<ExtensionPlan> = Api::all(cluster.client().clone());
    let owned = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, extension.name_any()));
    // 404: the cluster does not serve the kind.
    let all = async { Ok(present(api.list(&owned).await)?.map_or_else(Vec::new, |list| list.items)) };
    let mut all = match cluster.call("ExtensionPlans", all, session).await {
        Ok(all) => all,
        Err(failure @ CliError::Message(Code::Interrupted, _)) => return Err(failure),
        Err(failure) => {
            let warning = format!("cannot read the ExtensionPlans, so the plan is computed: {failure}");
            return Ok((None, Some(warning)));
        }
    };
    // Other objects are not those of operator-controller, and approve nothing.
    let is_named = |plan: &ExtensionPlan| {
        let content = &plan.spec.plan;
        content.extension == extension.name_any()
            && plan.name_any() == names::plan_name(&content.extension, content.revision, &content.digest)
    };
    all.retain(|plan| {
        plan.is_waiting() && plan.belongs_to(extension.metadata.uid.as_deref()) && is_named(plan)
    });
    Ok((all.into_iter().max_by_key(|plan| plan.spec.plan.revision), None))
}

/// The plan that the object describes.
pub(super) fn report(object: &ExtensionPlan, extension: &ClusterExtension) -> PlanReport {
    let plan = object.spec.plan.clone();
    let annotations = extension.metadata.annotations.as_ref();
    let mut rules = ExtensionRules::of(annotations, Settings::default());
    if object.spec.approved {
        rules.approval = rules.approval.approving(&plan.digest);
    }
    // The object exists because its plan was held. So values that it does not record are those of a held plan.
    let change = DraftChange {
        digest: plan.digest.clone(),
        changes_bundle: true,
        gains_permissions: !plan.permissions_gained.is_empty(),
        blocker: blocker(extension, &plan),
        ..DraftChange::default()
    };
    let (state, opens) = state(&rules, &change, false, Timestamp::now());
    PlanReport {
        extension: extension.name_any(),
        bundle: plan.bundle.name,
        version: plan.bundle.version,
        catalog: plan.bundle.catalog.unwrap_or_default(),
        image: plan.bundle.image,
        digest: plan.digest,
        object: Some(object.name_any()),
        state,
        opens,
        blocker: change.blocker.filter(|_| state == PlanState::OperatorNotUpgradeable),
        summary: plan.summary,
        changes: Changes::Recorded(RecordedChanges {
            objects: plan.objects,
            permissions_gained: plan.permissions_gained,
            crd_findings: plan.crd_findings,
            truncated: plan.truncated,
        }),
    }
}

/// Report of the operator against the plan, according to the condition of the extension.
fn blocker(extension: &ClusterExtension, plan: &PlannedRevision) -> Option<String> {
    let condition = extension.condition(types::UPGRADE_AVAILABLE)?;
    let held = HeldMessage::parse(&condition.message).filter(|held| held.digest == plan.digest)?;
    let blocker = held.next(&plan.summary)?;
    (condition.reason == reasons::OPERATOR_NOT_UPGRADEABLE).then(|| blocker.to_owned())
}

/// Approves the plan, unless the object was modified since it was read.
///
/// # Errors
/// The API server refuses the write or does not answer.
pub(super) async fn approve(
    cluster: &ClusterConnection,
    object: &ExtensionPlan,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<WrittenObject, CliError> {
    let value = |plan: &ExtensionPlan| {
        serde_json::to_value(plan).map_err(|error| CliError::operational(error.to_string()))
    };
    if object.spec.approved {
        return Ok(WrittenObject::new(value(object)?, WriteResult::Unchanged, dry_run));
    }
    if dry_run == Some(DryRun::Client) {
        let mut approved = object.clone();
        approved.spec.approved = true;
        return Ok(WrittenObject::new(value(&approved)?, WriteResult::Changed, dry_run));
    }
    let patch = Patch::Merge(json!({
        "metadata": {"uid": object.uid(), "resourceVersion": object.resource_version()},
        "spec": {"approved": true},
    }));
    let parameters = PatchParams {
        dry_run: dry_run.is_some(),
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let api: Api<ExtensionPlan> = Api::all(cluster.client().clone());
    let name = object.name_any();
    let changed = api.patch(&name, &parameters, &patch);
    let what = format!("change {} {}", ExtensionPlan::kind(&()), quote(&name));
    let changed = change::call(&what, changed, session).await?;
    Ok(WrittenObject::new(value(&changed)?, WriteResult::Changed, dry_run))
}

impl RecordedChanges {
    pub(super) fn parts(&self) -> RecordedPlan<'_> {
        let Self { objects, permissions_gained, truncated, .. } = self;
        RecordedPlan { objects, permissions_gained, truncated: *truncated }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let objects = self.objects.iter().map(|object| {
            let name = qualified(&object.namespace, &object.name);
            format!("{} {} {name}", object.change, object.kind)
        });
        section(&mut text, "Objects", objects);
        section(&mut text, "Permissions gained", self.permissions_gained.iter().cloned());
        section(&mut text, "CRD findings", self.crd_findings.iter().cloned());
        if self.truncated {
            text.push_str("\nThe lists are truncated.\n");
        }
        text
    }
}

fn section(text: &mut String, title: &str, lines: impl ExactSizeIterator<Item = String>) {
    let none = if lines.len() == 0 { " none" } else { "" };
    let _ = writeln!(text, "\n{title}:{none}");
    for line in lines {
        let _ = writeln!(text, "  {}", one_line(&line));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::PlanState;
    use super::*;

    fn object(approved: bool) -> ExtensionPlan {
        let plan = json!({"extension": "pipe", "revision": 2, "digest": "sha256:a", "summary": "s",
            "bundle": {"name": "pipe.v2", "version": "2.0.0", "image": "r/p", "imageDigest": "sha256:b"},
            "objects": [{"change": "Changed", "kind": "Secret", "namespace": "ns", "name": "a"}],
            "permissionsGained": ["User a: get on pods cluster-wide"], "truncated": true});
        serde_json::from_value(
            json!({"metadata": {"name": "pipe-2-a"}, "spec": {"approved": approved, "plan": plan}}),
        )
        .unwrap()
    }

    fn extension(annotations: Value) -> ClusterExtension {
        serde_json::from_value(json!({"metadata": {"name": "pipe", "annotations": annotations}})).unwrap()
    }

    #[test]
    fn state_follows_object_and_annotations() {
        let key = |key: &str| format!("{}{key}", olm_api::annotations::EXT_PREFIX);
        let window = json!({key("upgrade-window"): "0 0 29 2 * 1m"});
        for (approved, annotations, state) in [
            (false, json!({key("approval"): "Manual"}), PlanState::ApprovalRequired),
            (true, json!({key("approval"): "Manual"}), PlanState::Approved),
            (false, json!({key("approve-permission-increase"): "true"}), PlanState::ApprovalRequired),
            (false, window.clone(), PlanState::OutsideWindow),
            (true, window, PlanState::OutsideWindow),
            (false, json!({}), PlanState::Automatic),
        ] {
            let report = report(&object(approved), &extension(annotations.clone()));
            assert_eq!(report.state, state, "{approved} {annotations}");
        }
    }

    #[test]
    fn recorded_text_forges_no_line() {
        let mut object = object(false);
        let forged = "a\nCRD findings: none".to_owned();
        let plan = &mut object.spec.plan;
        plan.objects[0].name = forged.clone();
        plan.permissions_gained = vec![forged.clone()];
        plan.crd_findings = vec![forged];
        let text = report(&object, &extension(json!({}))).text();
        assert!(!text.lines().any(|line| line.starts_with("CRD findings: none")), "{text}");
    }

    #[test]
    fn text_lists_the_recorded_changes() {
        let text = report(&object(false), &extension(json!({}))).text();
        for line in [
            "pipe-2-a",
            "\nObjects:\n  Changed Secret ns/a\n",
            "\nPermissions gained:\n  User a: get on pods cluster-wide\n",
            "\nCRD findings: none\n",
            "\nThe lists are truncated.\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
