//! Prediction of a change: its effect, as far as the CLI can compute it, and whether the controller would refuse it.

use olm_api::ClusterExtension;
use olm_api::annotations;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_request::{CrdCheck, ExtensionRules, Settings};

use super::Controller;
use crate::diff::{Foresight, foresee};
use crate::failure::{Code, Failure};
use crate::progress::say;
use crate::session::Session;
use crate::source::{Access, Cluster};

/// Same as [`foresee`], but a bundle that the CLI cannot read only causes a warning, because the cluster may be able
/// to read it.
///
/// # Errors
/// The bundle cannot be installed this way, or a signal arrived.
pub(crate) async fn foreseen(
    cluster: &Cluster,
    extension: &ClusterExtension,
    image: &str,
    controller: &Controller,
    compare: bool,
    access: &Access,
    session: &Session,
) -> Result<Foresight, Failure> {
    match foresee(cluster, extension, image, controller, compare, access, session).await {
        Err(Failure::Told(Code::Operational | Code::Usage, why)) => {
            say(&format!("warning: what the bundle brings is not known: {why}"));
            Ok(Foresight::default())
        }
        foresight => foresight,
    }
}

/// Error if the controller would refuse the upgrade because of CRDs (docs/design/apply.md#crd-upgrade-safety). `None`
/// if the check is disabled, or if its result depends on existing objects.
pub(crate) fn unsafe_upgrade(extension: &ClusterExtension, foresight: &Foresight) -> Option<Failure> {
    let definitions = &foresight.unsafe_definitions;
    let preflight = extension.spec.as_ref().and_then(|spec| spec.install.as_ref()?.preflight.as_ref());
    let enforcement = preflight.map(|preflight| &preflight.crd_upgrade_safety.enforcement);
    let rules = ExtensionRules::of(extension.metadata.annotations.as_ref(), Settings::default());
    let strict = rules.crd_check.unwrap_or(CrdCheck::Strict) == CrdCheck::Strict
        && enforcement != Some(&CrdUpgradeSafetyEnforcement::None);
    if definitions.is_empty() || !strict {
        return None;
    }
    let (key, name) = (annotations::EXT_CRD_CHECK, extension.metadata.name.as_deref().unwrap_or_default());
    Some(Failure::Told(
        Code::Findings,
        format!(
            "the controller would refuse the upgrade:\n  {}\nthe existing objects decide with `kubectl annotate \
             clusterextension {name} {key}=Live`; spec.install.preflight.crdUpgradeSafety.enforcement: None turns the check off",
            definitions.join("\n  ")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    // Cases apply-49, apply-50
    #[test]
    fn unsafe_crd_upgrade_fails_only_if_enforced() {
        let extension = |annotations: Value, install: Value| -> ClusterExtension {
            let spec = json!({"namespace": "ns", "install": install, "source": {"sourceType": "Catalog"}});
            let metadata = json!({"name": "pipe", "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let unsafe_definitions = vec!["CustomResourceDefinition a: removed".to_owned()];
        let foresight = Foresight { unsafe_definitions, ..Foresight::default() };
        let none = json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}});
        for (annotations, install, refused) in [
            (json!({}), Value::Null, true),
            (json!({annotations::EXT_CRD_CHECK: "Strict"}), Value::Null, true),
            (json!({annotations::EXT_CRD_CHECK: "Live"}), Value::Null, false),
            (json!({annotations::EXT_CRD_CHECK: "Warn"}), Value::Null, false),
            (json!({}), none, false),
        ] {
            let extension = extension(annotations, install);
            let refusal = unsafe_upgrade(&extension, &foresight);
            assert_eq!(refusal.is_some(), refused, "{extension:?}");
            assert!(refusal.is_none_or(|refusal| refusal.exit_code() == 3));
            assert!(unsafe_upgrade(&extension, &Foresight::default()).is_none());
        }
    }
}
