//! Patch and messages of a rollback. Pure.

use std::collections::BTreeSet;

use olm_api::cluster_extension::{
    CatalogFilter, CrdUpgradeSafety, CrdUpgradeSafetyEnforcement, InstallConfig, PreflightConfig,
    UpgradeConstraintPolicy,
};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_cli_core::output::Fields;
use olm_request::{ApprovalMode, ExtensionRules, Settings};
use serde_json::{Value, json};

use super::risk::Risks;
use super::target::RollbackTarget;
use crate::diff::{Diff, Prediction};
use crate::resolve::ResolvedBundle;
use crate::status::health::is_paused;
use crate::status::tree::{installed, is_migrated};

/// Path of the version in the managed fields of an extension.
const OWNED_VERSION: &str = "/f:spec/f:source/f:catalog/f:version";
/// Fields that a rollback may change, and their defaults.
const FIELDS: [(&str, &str); 3] = [
    ("spec.source.catalog.version", "any"),
    ("spec.source.catalog.upgradeConstraintPolicy", "CatalogProvided"),
    ("spec.install.preflight.crdUpgradeSafety.enforcement", "Strict"),
];
/// Field manager of `kubectl apply` without `--server-side`.
const KUBECTL_APPLY: &str = "kubectl-client-side-apply";

/// Planned rollback.
#[derive(Debug)]
pub(super) struct Plan {
    live: ClusterExtension,
    target: RollbackTarget,
    /// Revision that adopted the installation from Helm, if any.
    adopted: Option<String>,
    /// The desired extension.
    pub(super) desired: ClusterExtension,
}

impl Plan {
    /// Plans to roll back the extension `live`, which has the revisions `sets`, to `target`.
    pub(super) fn new(
        live: &ClusterExtension,
        target: &RollbackTarget,
        revisions: &[ClusterObjectSet],
    ) -> Self {
        let mut desired = live.clone();
        if let Some(catalog) = desired.spec.as_mut().and_then(|spec| spec.source.catalog.as_mut()) {
            catalog.version = Some(target.version.clone());
            catalog.upgrade_constraint_policy = Some(UpgradeConstraintPolicy::SelfCertified);
        }
        let adopted = revisions
            .iter()
            .find(|revision| is_migrated(revision))
            .and_then(|revision| revision.metadata.name.clone());
        Self { live: live.clone(), target: target.clone(), adopted, desired }
    }

    /// Disables the CRD upgrade check, so that operator-controller accepts unsafe CRDs.
    pub(super) fn disable_crd_check(&mut self) {
        let enforcement = CrdUpgradeSafetyEnforcement::None;
        if let Some(spec) = &mut self.desired.spec {
            let preflight = PreflightConfig { crd_upgrade_safety: CrdUpgradeSafety { enforcement } };
            spec.install = Some(InstallConfig { preflight: Some(preflight) });
        }
    }

    /// Warnings for the user.
    pub(super) fn warnings(&self, choice: &ResolvedBundle) -> Vec<String> {
        let mut warnings = choice.warnings.clone();
        warnings.extend(self.target.warning.clone());
        if is_paused(&self.live) {
            warnings.push("the extension is paused: the rollback starts when it is resumed".to_owned());
        }
        let rules = ExtensionRules::of(self.live.metadata.annotations.as_ref(), Settings::default());
        if rules.approval.mode != ApprovalMode::Automatic {
            warnings.push(
                "the rollback waits until its plan is approved, as every change of the bundle".to_owned(),
            );
        }
        if let Some(revision) = &self.adopted {
            warnings.push(format!(
                "revision {revision} adopted an installation of the upstream Helm applier: a rollback restores its bundle, \
                 but the Helm applier cannot manage the installation again"
            ));
        }
        for manager in self.managers() {
            warnings.push(format!(
                "{manager} manages spec.source.catalog.version: change the version there, too, or the next apply reverts the rollback"
            ));
        }
        warnings
    }

    /// Other field managers that apply the version.
    fn managers(&self) -> BTreeSet<&str> {
        let entries = self.live.metadata.managed_fields.iter().flatten();
        let applying = entries.filter(|entry| {
            let owns =
                entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(OWNED_VERSION).is_some());
            let applies = entry.operation.as_deref() == Some("Apply")
                || entry.manager.as_deref() == Some(KUBECTL_APPLY);
            owns && applies
        });
        applying.filter_map(|entry| entry.manager.as_deref()).collect()
    }

    /// Text output of the rollback.
    pub(super) fn text(&self, diff: Option<&Diff>, warnings: &[String]) -> String {
        let name = self.live.metadata.name.as_deref().unwrap_or_default();
        let before = installed(&self.live).map_or_else(
            || "nothing is installed".to_owned(),
            |bundle| format!("{}, version {}", bundle.name, bundle.version),
        );
        let bundle = self.target.bundle.as_ref().map(|bundle| format!("{bundle}, ")).unwrap_or_default();
        let revision = self.target.revision.map(|number| format!(" (revision {number})"));
        let after = format!("{bundle}version {}{}", self.target.version, revision.unwrap_or_default());
        let mut fields = Fields::default();
        fields.add(0, "Extension", name);
        fields.add(0, "From", &before);
        fields.add(0, "Back to", &after);
        fields.list(0, "Sets", &self.sets());
        if let Some(diff) = diff {
            fields.list(0, "Changes", &Prediction::of(diff).changes);
        }
        fields.list(0, "Warning", warnings);
        fields.text
    }

    /// Text about the accepted risks, and the way to end the pin.
    pub(super) fn afterwards(&self, risks: &Risks) -> String {
        let name = self.live.metadata.name.as_deref().unwrap_or_default();
        let mut fields = Fields::default();
        fields.list(0, "Data at risk", &risks.losses);
        let mut afterwards = Vec::new();
        if risks.deletes_objects {
            afterwards.push(format!(
                "a CustomResourceDefinition with custom resources is not deleted, and blocks the archiving of its revision, \
                 unless annotation {} is Delete",
                annotations::EXT_UNINSTALL_POLICY
            ));
        }
        afterwards.extend([
            "the extension is pinned to this version; to remove the pin:".to_owned(),
            format!("kubectl patch clusterextension {name} --type=merge -p '{}'", self.unpin()),
        ]);
        fields.list(0, "Afterwards", &afterwards);
        fields.text
    }

    /// Changed fields, one string each.
    fn sets(&self) -> Vec<String> {
        let (was, is) = (json!({"spec": self.live.spec}), json!({"spec": self.desired.spec}));
        let change = |(field, default): (&str, &str)| {
            let pointer = format!("/{}", field.replace('.', "/"));
            let text = |side| Value::pointer(side, &pointer).and_then(Value::as_str).unwrap_or(default);
            let (was, is) = (text(&was), text(&is));
            (was != is).then(|| format!("{field}: {is} (was {was})"))
        };
        FIELDS.into_iter().filter_map(change).collect()
    }

    /// Patch that reverts the rollback.
    fn unpin(&self) -> Value {
        let was = catalog(&self.live);
        let version = was.and_then(|was| was.version.as_ref());
        let policy = was.and_then(|was| was.upgrade_constraint_policy.as_ref());
        let mut patch = json!({
            "spec": {"source": {"catalog": {"version": version, "upgradeConstraintPolicy": policy}}}
        });
        let install =
            |extension: &ClusterExtension| extension.spec.as_ref().and_then(|spec| spec.install.clone());
        if install(&self.live) != install(&self.desired) {
            patch["spec"]["install"] = json!(install(&self.live));
        }
        patch
    }
}

fn catalog(extension: &ClusterExtension) -> Option<&CatalogFilter> {
    extension.spec.as_ref()?.source.catalog.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> ResolvedBundle {
        ResolvedBundle {
            bundle: "pipe.v1".to_owned(),
            version: "1.0.0".to_owned(),
            release: None,
            catalog: "hub".to_owned(),
            image: "r.example/pipe:v1".to_owned(),
            unchanged: false,
            text: String::new(),
            warnings: vec!["package is deprecated".to_owned()],
            namespace: Err(String::new()),
            channels: Vec::new(),
        }
    }

    #[test]
    fn warnings_name_pause_manager_migration_and_failed_target() {
        let version = json!({"f:spec": {"f:source": {"f:catalog": {"f:version": {}}}}});
        let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": version});
        let live: ClusterExtension = serde_json::from_value(json!({
            "metadata": {"name": "pipe", "annotations": {"ext.olm.operatorframework.io/paused": "true",
                    "ext.olm.operatorframework.io/approval": "ManualUpgrades"},
                "managedFields": [entry("fleet", "Apply"), entry("kubectl-edit", "Update"),
                    entry(KUBECTL_APPLY, "Update"), {"manager": "other", "operation": "Apply"}]},
            "spec": {"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": {"packageName": "pipe"}}},
        }))
        .unwrap();
        let migrated: ClusterObjectSet = serde_json::from_value(json!({"metadata": {"name": "pipe-1",
            "labels": {"olm.operatorframework.io/migrated-from-helm": "true"}}}))
        .unwrap();
        let never = "revision 2 never rolled out while it was active".to_owned();
        let target = RollbackTarget {
            revision: Some(2),
            bundle: Some("pipe.v1".to_owned()),
            version: "1.0.0".to_owned(),
            warning: Some(never.clone()),
        };
        let choice = choice();
        let mut plan = Plan::new(&live, &target, &[migrated]);
        let undone = "manages spec.source.catalog.version: change the version there, too, or the next apply reverts the rollback";
        assert_eq!(
            plan.warnings(&choice),
            [
                "package is deprecated".to_owned(),
                never,
                "the extension is paused: the rollback starts when it is resumed".to_owned(),
                "the rollback waits until its plan is approved, as every change of the bundle".to_owned(),
                "revision pipe-1 adopted an installation of the upstream Helm applier: a rollback restores its bundle, \
                 but the Helm applier cannot manage the installation again"
                    .to_owned(),
                format!("fleet {undone}"),
                format!("{KUBECTL_APPLY} {undone}"),
            ]
        );
        let unpin =
            json!({"spec": {"source": {"catalog": {"version": null, "upgradeConstraintPolicy": null}}}});
        assert_eq!(plan.unpin(), unpin);
        plan.disable_crd_check();
        assert_eq!(plan.unpin()["spec"]["install"], Value::Null);
        assert_eq!(
            plan.sets(),
            [
                "spec.source.catalog.version: 1.0.0 (was any)",
                "spec.source.catalog.upgradeConstraintPolicy: SelfCertified (was CatalogProvided)",
                "spec.install.preflight.crdUpgradeSafety.enforcement: None (was Strict)",
            ]
        );
    }
}
