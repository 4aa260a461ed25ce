//! Risks of a rollback: custom resources that it would delete, or fields of them that it would drop. Pure, except for
//! counting custom resources.

use kube::core::GroupVersionKind;
use olm_api::ClusterExtension;
use olm_revision::cluster::{Cluster as _, ClusterError, Instances};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;

use crate::crd_check::{CrdResult, Verdict};
use crate::diff::{Diff, Prediction, is_unchecked, unsafe_upgrade};
use crate::output::{counted, qualified};
use crate::source::Cluster;
use crate::uninstall::served_kind;

/// CRD findings after which stored data becomes unreadable or loses fields at the next write.
const LOSSES: [&str; 3] = ["scope", "storedVersionRemoval", "existingFieldRemoval"];
/// CRD findings that operator-controller accepts in no mode of annotation crd-check
/// (docs/design/additions.md#crd-checks).
const NEVER_ACCEPTED: [&str; 2] = ["scope", "storedVersionRemoval"];

/// Risks of a rollback.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Risks {
    /// Possible data losses, one line each.
    pub(super) losses: Vec<String>,
    /// Reasons for which operator-controller would refuse the rollback, one line each.
    pub(super) refusals: Vec<String>,
    /// `true` if a deleted CRD has custom resources.
    pub(super) deletes_objects: bool,
}

/// Custom resources of a deleted CRD.
pub(super) type Counted = Result<Option<Instances>, ClusterError>;

impl Risks {
    /// Judges `diff`, the changes that the wanted extension would make. `gone` contains the custom resources of each
    /// deleted CRD.
    pub(super) fn new(diff: &Diff, gone: &[(String, Counted)], wanted: &ClusterExtension) -> Self {
        let lines = |checks: Option<&[&str]>| -> Vec<String> {
            let unsafe_ones = diff.crds.iter().filter(|crd| crd.result == Verdict::Unsafe);
            let of_crd = |crd: &CrdResult| -> Vec<String> {
                let counts = |check: &str| checks.is_none_or(|checks| checks.contains(&check));
                let findings = crd.findings.iter().filter(|finding| counts(finding.check));
                findings.map(|finding| format!("{}: {}", crd.name, finding.line)).collect()
            };
            unsafe_ones.flat_map(of_crd).collect()
        };
        let mut losses = lines(Some(&LOSSES));
        losses.extend(gone.iter().filter_map(|(name, counted)| loss(name, counted)));
        let all = lines(None);
        let prediction = Prediction { unsafe_crds: all.clone(), ..Prediction::default() };
        let refusals = match unsafe_upgrade(wanted, &prediction) {
            Some(_) => all,
            None if is_unchecked(wanted) => Vec::new(),
            None => lines(Some(&NEVER_ACCEPTED)),
        };
        let deletes_objects = gone.iter().any(|(_, counted)| !matches!(counted, Ok(None)));
        Self { losses, refusals, deletes_objects }
    }

    /// Reports whether there are no risks.
    pub(super) fn is_empty(&self) -> bool {
        self.losses.is_empty() && self.refusals.is_empty()
    }

    /// Text of all risks, without duplicates.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut say = |title: &str, lines: &[String]| {
            if !lines.is_empty() {
                text += &format!("\n{title}\n  {}", lines.join("\n  "));
            }
        };
        say("data may be lost:", &self.losses);
        let rest: Vec<String> =
            self.refusals.iter().filter(|line| !self.losses.contains(line)).cloned().collect();
        say("operator-controller would refuse the rollback:", &rest);
        text
    }
}

fn loss(name: &str, instances: &Counted) -> Option<String> {
    match instances {
        Ok(None) => None,
        Ok(Some(Instances { count, first, .. })) => {
            let objects = counted(usize::try_from(*count).unwrap_or(usize::MAX), "custom resource");
            let first = qualified(&first.namespace, &first.name);
            Some(format!("{name} is deleted, with {objects} (first: {first})"))
        }
        Err(error) => Some(format!("{name} is deleted, and its custom resources cannot be counted: {error}")),
    }
}

/// Counts the custom resources of each CRD that `diff` deletes, by name of the CRD.
pub(super) async fn count(diff: &Diff, cluster: &Cluster) -> Vec<(String, Counted)> {
    let engine = KubeCluster::new(cluster.client().clone());
    let mut counted = Vec::new();
    for crd in diff.crds.iter().filter(|crd| crd.result == Verdict::OnlyInOld) {
        counted.push((crd.name.clone(), instances(&engine, &crd.name).await));
    }
    counted
}

async fn instances(engine: &KubeCluster, definition: &str) -> Counted {
    let key = ObjectKey {
        gvk: GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        namespace: String::new(),
        name: definition.to_owned(),
    };
    match engine.get(&key).await?.as_ref().and_then(served_kind) {
        Some(gvk) => engine.instances(&gvk).await,
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use olm_revision::cluster::Reason;
    use serde_json::{Value, json};

    use super::*;
    use crate::crd_check::compare;

    fn definition(fields: &Value, stored: &str, version: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "pipes.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "pipes", "kind": "Pipe"},
                "versions": [{"name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}}]},
            "status": {"storedVersions": [stored]},
        })
    }

    fn diff(old: &Value, new: &Value) -> Diff {
        Diff {
            old: Default::default(),
            new: Default::default(),
            empty: false,
            objects: Vec::new(),
            permissions: Vec::new(),
            crds: vec![compare("pipes.example.com", Some(old), Some(new)).unwrap()],
            config: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn extension(crd_check: &str, enforcement: &str) -> ClusterExtension {
        let install = json!({"preflight": {"crdUpgradeSafety": {"enforcement": enforcement}}});
        serde_json::from_value(json!({
            "metadata": {"name": "pipe", "annotations": {"ext.olm.operatorframework.io/crd-check": crd_check}},
            "spec": {"namespace": "ns", "install": install, "source": {"sourceType": "Catalog"}}}))
        .unwrap()
    }

    // docs/design/additions.md#changing-commands; case additions-a47
    #[test]
    fn loss_is_reported_in_every_mode_and_refusal_if_enforced() {
        let text = |kind: &str| json!({"a": {"type": kind}});
        let two = json!({"a": {"type": "string"}, "b": {"type": "string"}});
        let safe = diff(&definition(&text("string"), "v1", "v1"), &definition(&two, "v1", "v1"));
        let stricter =
            diff(&definition(&text("string"), "v1", "v1"), &definition(&text("integer"), "v1", "v1"));
        let field = diff(&definition(&two, "v1", "v1"), &definition(&text("string"), "v1", "v1"));
        let stored = diff(&definition(&two, "v1", "v1"), &definition(&two, "v1", "v2"));
        for (what, diff, mode, enforcement, losses, refusals) in [
            ("safe", &safe, "Strict", "Strict", false, false),
            ("another type", &stricter, "Strict", "Strict", false, true),
            ("another type, objects decide", &stricter, "Live", "Strict", false, false),
            ("another type, no check", &stricter, "Strict", "None", false, false),
            ("a field is removed", &field, "Strict", "Strict", true, true),
            ("a field is removed, objects decide", &field, "Live", "Strict", true, false),
            ("a field is removed, no check", &field, "Strict", "None", true, false),
            ("a stored version is removed", &stored, "Strict", "Strict", true, true),
            ("a stored version is removed, objects decide", &stored, "Live", "Strict", true, true),
            ("a stored version is removed, no check", &stored, "Strict", "None", true, false),
        ] {
            let risks = Risks::new(diff, &[], &extension(mode, enforcement));
            let found = (!risks.losses.is_empty(), !risks.refusals.is_empty());
            assert_eq!(found, (losses, refusals), "{what}: {risks:?}");
        }
        let risks = Risks::new(&field, &[], &extension("Strict", "Strict"));
        assert_eq!(
            risks.text(),
            "\ndata may be lost:\n  pipes.example.com: existingFieldRemoval: removed field : v1.^.b\n\
             operator-controller would refuse the rollback:\n  pipes.example.com: v1: ^.b: type: type changed : \"string\" -> \"\""
        );
    }

    #[test]
    fn deleted_crd_reports_loss_of_custom_resources() {
        let first = ObjectKey::of(&json!({"metadata": {"name": "knee", "namespace": "ns"}}));
        let global = ObjectKey::of(&json!({"metadata": {"name": "knee"}}));
        let error = ClusterError { reason: Reason::Rejected, message: "forbidden".to_owned() };
        for (counted, expected) in [
            (Ok(None), None),
            (
                Ok(Some(Instances { count: 3, first, finalizers: Default::default() })),
                Some("bends is deleted, with 3 custom resources (first: ns/knee)"),
            ),
            (
                Ok(Some(Instances { count: 1, first: global, finalizers: Default::default() })),
                Some("bends is deleted, with 1 custom resource (first: knee)"),
            ),
            (Err(error), Some("bends is deleted, and its custom resources cannot be counted: forbidden")),
        ] {
            assert_eq!(loss("bends", &counted).as_deref(), expected);
        }
    }

    #[test]
    fn custom_resources_are_counted_in_served_version() {
        let mut definition = definition(&json!({}), "v1", "v1");
        assert_eq!(served_kind(&definition), Some(GroupVersionKind::gvk("example.com", "v1", "Pipe")));
        definition["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(served_kind(&definition), None);
    }
}
