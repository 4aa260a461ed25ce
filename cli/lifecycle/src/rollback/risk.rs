//! Risks of a rollback: custom resources that it would delete, or fields of them that it would drop. Pure, except for
//! counting custom resources.

use olm_api::ClusterExtension;
use olm_cli_core::source::ClusterConnection;
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::losses::{Counted, custom_resources, loss};

use crate::crd_check::{CrdResult, FindingDetails, Verdict};
use crate::diff::{Diff, Prediction, is_unchecked, unsafe_upgrade};

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

impl Risks {
    /// Judges `diff`, the changes that the desired extension would make. `gone` contains the custom resources of each
    /// deleted CRD.
    pub(super) fn new(diff: &Diff, gone: &[(String, Counted)], desired: &ClusterExtension) -> Self {
        let lines = |counts: fn(&FindingDetails) -> bool| -> Vec<String> {
            let unsafe_ones = diff.crds.iter().filter(|crd| crd.result == Verdict::Unsafe);
            let of_crd = |crd: &CrdResult| -> Vec<String> {
                let findings = crd.findings.iter().filter(|finding| counts(finding));
                findings.map(|finding| format!("{}: {}", crd.name, finding.line)).collect()
            };
            unsafe_ones.flat_map(of_crd).collect()
        };
        let mut losses = lines(|finding| finding.loses_data);
        losses.extend(gone.iter().filter_map(|(name, counted)| loss(name, counted)));
        let all = lines(|_| true);
        let prediction = Prediction { unsafe_crds: all.clone(), ..Prediction::default() };
        let refusals = match unsafe_upgrade(desired, &prediction) {
            Some(_) => all,
            None if is_unchecked(desired) => Vec::new(),
            None => lines(|finding| finding.is_absolute),
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

/// Counts the custom resources of each CRD that `diff` deletes, by name of the CRD.
pub(super) async fn count(diff: &Diff, cluster: &ClusterConnection) -> Vec<(String, Counted)> {
    let engine = KubeCluster::new(cluster.client().clone());
    let mut counted = Vec::new();
    for crd in diff.crds.iter().filter(|crd| crd.result == Verdict::OnlyInOld) {
        counted.push((crd.name.clone(), custom_resources(&engine, &crd.name).await));
    }
    counted
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::crd_check::compare;

    fn crd(fields: &Value, stored: &str, version: &str) -> Value {
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
        let crds = vec![compare("pipes.example.com", Some(old), Some(new)).unwrap()];
        Diff { crds, ..Diff::default() }
    }

    fn extension(crd_check: &str, enforcement: &str) -> ClusterExtension {
        let install = json!({"preflight": {"crdUpgradeSafety": {"enforcement": enforcement}}});
        serde_json::from_value(json!({
            "metadata": {"name": "pipe", "annotations": {"ext.olm.operatorframework.io/crd-check": crd_check}},
            "spec": {"namespace": "ns", "install": install, "source": {"sourceType": "Catalog"}}}))
        .unwrap()
    }

    // docs/design/cli.md#changing-commands; case additions-a47
    #[test]
    fn loss_is_reported_in_every_mode_and_refusal_if_enforced() {
        let text = |kind: &str| json!({"a": {"type": kind}});
        let two = json!({"a": {"type": "string"}, "b": {"type": "string"}});
        let safe = diff(&crd(&text("string"), "v1", "v1"), &crd(&two, "v1", "v1"));
        let stricter = diff(&crd(&text("string"), "v1", "v1"), &crd(&text("integer"), "v1", "v1"));
        let field = diff(&crd(&two, "v1", "v1"), &crd(&text("string"), "v1", "v1"));
        let stored = diff(&crd(&two, "v1", "v1"), &crd(&two, "v1", "v2"));
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
}
