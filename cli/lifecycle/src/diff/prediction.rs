//! Summary of the changes that a bundle makes on a cluster, for commands that then install it.

use std::sync::Arc;

use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_api::{ClusterExtension, annotations};
use olm_cli_core::bundle_source::BundleFiles;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::counted;
use olm_cli_core::progress::say;
use olm_cli_core::source::Access;
use olm_plan::objects::ObjectChange;
use olm_request::{CrdCheck, ExtensionRules, Settings};

use super::cluster::ComparedExtension;
use super::ownership::{Collision, collision_error};
use super::report::Diff;
use crate::crd_check::{CrdResult, Verdict};

/// Highest number of objects or findings that a message names.
const NAMED: usize = 5;

/// Predicted effects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prediction {
    /// One or two lines.
    pub(crate) changes: Vec<String>,
    /// Problems that prevent or delay the change.
    pub problems: Vec<String>,
    /// CRDs whose upgrade would break custom resources, each with its findings.
    pub(crate) unsafe_crds: Vec<String>,
    /// Objects that belong to another extension.
    pub(crate) collisions: Vec<Collision>,
}

impl ComparedExtension<'_> {
    /// Difference that installing the bundle in `image` makes. `read` reads it. The inner error is the reason for which
    /// the CLI cannot tell: the cluster may be able to read the bundle.
    ///
    /// # Errors
    /// The bundle cannot be installed this way, or a signal arrived.
    pub(crate) async fn difference(
        &self,
        image: &str,
        controller: &ControllerArgs,
        read: impl AsyncFn(&str) -> Result<Arc<BundleFiles>, CliError>,
    ) -> Result<Result<Diff, String>, CliError> {
        let seen = async {
            let files = read(image).await?;
            self.with_files(&files, controller, true).await
        };
        match seen.await {
            Err(CliError::Message(Code::Operational | Code::Usage, why)) => Ok(Err(why)),
            seen => seen.map(Ok),
        }
    }

    /// Predicts the effect of installing the bundle in `image`. Without `compare`, as for a namespace that does not
    /// exist, new objects are only counted and searched for collisions. A bundle that the CLI cannot read only causes a
    /// warning, because the cluster may be able to read it.
    ///
    /// # Errors
    /// The bundle cannot be installed this way, or a signal arrived.
    pub(crate) async fn predict_or_warn(
        &self,
        image: &str,
        controller: &ControllerArgs,
        compare: bool,
        access: &Access,
    ) -> Result<Prediction, CliError> {
        let prediction = async {
            if compare {
                return Ok(Prediction::of(&self.with_image(image, controller, access).await?));
            }
            let diff = self.rendered(image, controller, access).await?;
            let changes = vec![format!("{} created", counted(diff.objects.len(), "object"))];
            let collisions = diff.collisions;
            Ok(Prediction { changes, collisions, ..Prediction::default() })
        };
        match prediction.await {
            Err(CliError::Message(Code::Operational | Code::Usage, why)) => {
                say(&format!("warning: cannot predict the changes of the bundle: {why}"));
                Ok(Prediction::default())
            }
            prediction => prediction,
        }
    }
}

/// Error if the change would collide with another extension, or if the controller would refuse it because of CRDs.
pub(crate) fn refusal(extension: &ClusterExtension, prediction: &Prediction) -> Option<CliError> {
    collision_error(&prediction.collisions).or_else(|| unsafe_upgrade(extension, prediction))
}

/// Error if the controller would refuse the upgrade because of CRDs (docs/design/apply.md#crd-upgrade-safety). `None`
/// if the check is disabled, or if its result depends on existing objects.
pub(crate) fn unsafe_upgrade(extension: &ClusterExtension, prediction: &Prediction) -> Option<CliError> {
    let crds = &prediction.unsafe_crds;
    let rules = ExtensionRules::of(extension.metadata.annotations.as_ref(), Settings::default());
    let strict = rules.crd_check.unwrap_or(CrdCheck::Strict) == CrdCheck::Strict && !is_unchecked(extension);
    if crds.is_empty() || !strict {
        return None;
    }
    let (key, name) = (annotations::EXT_CRD_CHECK, extension.metadata.name.as_deref().unwrap_or_default());
    Some(CliError::findings(format!(
        "the controller would refuse the upgrade:\n  {}\nto check the existing custom resources instead: `kubectl annotate \
             clusterextension {name} {key}=Live`; to disable the check: spec.install.preflight.crdUpgradeSafety.enforcement: None",
        crds.join("\n  ")
    )))
}

/// Reports whether the specification disables the CRD upgrade check.
pub(crate) fn is_unchecked(extension: &ClusterExtension) -> bool {
    let preflight = extension.spec.as_ref().and_then(|spec| spec.install.as_ref()?.preflight.as_ref());
    let enforcement = preflight.map(|preflight| &preflight.crd_upgrade_safety.enforcement);
    enforcement == Some(&CrdUpgradeSafetyEnforcement::None)
}

impl Prediction {
    /// Summarizes a difference.
    pub fn of(diff: &Diff) -> Self {
        let [created, changed, deleted] = diff.counts();
        let created = counted(created, "object");
        let mut changes = vec![format!("{created} created, {changed} changed, {deleted} deleted")];
        let gaining = diff.permissions.iter().filter(|change| !change.gained.is_empty()).count();
        if gaining > 0 {
            changes.push(format!("permissions gained by {}", counted(gaining, "subject")));
        }
        let dropped = diff.crds.iter().filter(|crd| crd.result == Verdict::OnlyInOld);
        changes.extend(
            dropped.map(|crd| format!("CustomResourceDefinition {} is not in the new bundle", crd.name)),
        );
        let unserved =
            diff.crds.iter().flat_map(|crd| crd.no_longer_served.iter().map(move |one| (crd, one)));
        changes.extend(unserved.map(|(crd, one)| format!("CustomResourceDefinition {}: {one}", crd.name)));
        let noted =
            |change: &ObjectChange| change.notes.first().map(|note| format!("{}: {note}", change.object));
        let breaking = |crd: &&CrdResult| crd.result == Verdict::Unsafe;
        Self {
            changes,
            problems: shortened(diff.objects.iter().filter_map(noted).collect()),
            unsafe_crds: diff.crds.iter().filter(breaking).map(broken).collect(),
            collisions: diff.collisions.clone(),
        }
    }
}

fn broken(crd: &CrdResult) -> String {
    let lines = crd.findings.iter().map(|finding| finding.line.clone()).collect();
    format!("CustomResourceDefinition {}: {}", crd.name, shortened(lines).join("; "))
}

/// First items, and the number of the others.
fn shortened(mut items: Vec<String>) -> Vec<String> {
    let more = items.len().saturating_sub(NAMED);
    items.truncate(NAMED);
    if more > 0 {
        items.push(format!("and {more} more"));
    }
    items
}

#[cfg(test)]
mod tests {
    use olm_plan::objects;
    use serde_json::{Value, json};

    use super::*;

    fn service_account(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "ns"}})
    }

    #[test]
    fn prediction_counts_created_changed_and_deleted_objects() {
        let (old, new) = (vec![service_account("a")], vec![service_account("b"), service_account("c")]);
        let mut changes = objects::changes(&old, &new);
        for change in &mut changes {
            change.notes = vec!["the API server refuses it".to_owned()];
        }
        let prediction = Prediction::of(&Diff::new(&old, &new, &old, changes));
        assert_eq!(prediction.changes, ["2 objects created, 0 changed, 1 deleted"]);
        assert_eq!(prediction.problems.len(), 3);
        assert_eq!(prediction.problems[0], "ServiceAccount ns/b: the API server refuses it");
        assert_eq!(prediction.unsafe_crds, [""; 0]);
        let many: Vec<String> = (0..7).map(|n| n.to_string()).collect();
        assert_eq!(shortened(many), ["0", "1", "2", "3", "4", "and 2 more"]);
    }

    // Cases apply-49, apply-50
    #[test]
    fn unsafe_crd_upgrade_fails_only_if_enforced() {
        let extension = |annotations: Value, install: Value| -> ClusterExtension {
            let spec = json!({"namespace": "ns", "install": install, "source": {"sourceType": "Catalog"}});
            let metadata = json!({"name": "pipe", "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let unsafe_crds = vec!["CustomResourceDefinition a: removed".to_owned()];
        let prediction = Prediction { unsafe_crds, ..Prediction::default() };
        let none = json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}});
        for (annotations, install, refused) in [
            (json!({}), Value::Null, true),
            (json!({annotations::EXT_CRD_CHECK: "Strict"}), Value::Null, true),
            (json!({annotations::EXT_CRD_CHECK: "Live"}), Value::Null, false),
            (json!({annotations::EXT_CRD_CHECK: "Warn"}), Value::Null, false),
            (json!({}), none, false),
        ] {
            let extension = extension(annotations, install);
            let refusal = unsafe_upgrade(&extension, &prediction);
            assert_eq!(refusal.is_some(), refused, "{extension:?}");
            assert!(refusal.is_none_or(|refusal| refusal.exit_code() == 3));
            assert!(unsafe_upgrade(&extension, &Prediction::default()).is_none());
        }
    }
}
