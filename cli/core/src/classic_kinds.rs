//! Hints for objects of classic OLM in user input: the v1 equivalent of each (case seeds-s1-5).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::output::printable;

/// Largest file that is inspected.
const MAX_FILE: u64 = 1 << 20;

/// Names the v1 equivalent if `object` (JSON or YAML) belongs to classic OLM.
pub fn hint(object: &[u8]) -> Option<String> {
    let objects = olm_yaml::all_from_slice(object).ok()?;
    let hints: Vec<_> = objects.iter().filter_map(hint_for).collect();
    (!hints.is_empty()).then(|| hints.join("\n"))
}

/// [`hint`] for a file. `None` for a file that cannot be read.
pub(crate) fn hint_for_file(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    // Checked before opening, because opening a pipe would block.
    let file = std::fs::metadata(path).ok()?.is_file().then(|| File::open(path).ok())??;
    file.take(MAX_FILE).read_to_end(&mut text).ok()?;
    hint(&text)
}

/// Reports whether the object is an OperatorCondition that operator-controller uses, with a gate.
pub(crate) fn is_used(object: &Value) -> bool {
    object["kind"] == "OperatorCondition"
        && ["operators.coreos.com/v1", "operators.coreos.com/v2"]
            .iter()
            .any(|version| object["apiVersion"] == *version)
}

fn hint_for(object: &Value) -> Option<String> {
    if object["packageName"].is_string() && object["channels"][0]["currentCSV"].is_string() {
        return Some(PACKAGE_MANIFEST.to_owned());
    }
    let group = object["apiVersion"].as_str()?.split_once('/')?.0;
    let kind = object["kind"].as_str()?;
    if !matches!(group, "operators.coreos.com" | "packages.operators.coreos.com") {
        return None;
    }
    Some(match (group, kind) {
        ("operators.coreos.com", "OperatorCondition") => OPERATOR_CONDITION.to_owned(),
        _ => format!("{} is an object of classic OLM: {}", printable(kind), v1_form(object, kind)),
    })
}

/// Equivalent of an object of classic OLM.
fn v1_form(object: &Value, kind: &str) -> String {
    let field = |path: &str| object.pointer(path).and_then(Value::as_str).map(printable);
    let fixed = match kind {
        "Subscription" => {
            return format!(
                "in v1 it is a ClusterExtension (olm.operatorframework.io/v1) with spec.namespace, and in \
                 spec.source.catalog packageName{}, channels{} and version. Upgrades stay within version: an exact \
                 one replaces startingCSV with installPlanApproval: Manual",
                value(field("/spec/name")),
                value(field("/spec/channel").map(|channel| format!("[{channel}]")))
            );
        }
        "CatalogSource" => {
            return format!(
                "in v1 it is a ClusterCatalog (olm.operatorframework.io/v1) with spec.source.image.ref{}, \
                 pollIntervalMinutes in place of updateStrategy.registryPoll, and spec.priority{}",
                value(field("/spec/image")),
                if field("/metadata/annotations/olm.catalogImageTemplate").is_some() {
                    ". It has the same annotation olm.catalogImageTemplate"
                } else {
                    ""
                }
            );
        }
        "PackageManifest" => {
            return format!(
                "v1 does not store packages: `olm catalog show cluster {}` reads one from the catalogs of the \
                 cluster, and `olm catalog ls cluster` lists them",
                field("/metadata/name").unwrap_or_else(|| "PACKAGE".to_owned())
            );
        }
        "OperatorGroup" => return operator_group(object),
        "OLMConfig" => {
            "v1 has no OLMConfig: it copies no CSVs, and the servers are configured by their flags and feature gates"
        }
        "InstallPlan" => {
            "v1 has no InstallPlan: the installed objects are in the ClusterObjectSets of a ClusterExtension; `olm \
             plan` shows an upgrade, and annotation ext.olm.operatorframework.io/approval makes it wait for `olm \
             approve`"
        }
        "ClusterServiceVersion" => {
            "a ClusterServiceVersion belongs in the manifests folder of a bundle; in v1 the installed bundle is in \
             status.install of a ClusterExtension"
        }
        "Operator" => {
            "v1 has no Operator: `olm status NAME` lists the objects of a ClusterExtension, and each of them has \
             the label olm.operatorframework.io/owner-name"
        }
        _ => {
            "v1 has no object of this kind; it manages ClusterExtensions and ClusterCatalogs \
              (olm.operatorframework.io/v1)"
        }
    };
    fixed.to_owned()
}

/// Equivalent of an OperatorGroup, with the reserved API groups of a static one.
fn operator_group(object: &Value) -> String {
    let form = "v1 has no OperatorGroup: the operator watches all namespaces, or the namespace in \
                spec.config.inline.watchNamespace of its ClusterExtension, as far as the install modes of its bundle allow; \
                bundles without AllNamespaces need the feature gate SingleOwnNamespaceInstallSupport. spec.targetNamespaces \
                is watchNamespaces and spec.selector is watchNamespaceSelector, with the feature gate MultiWatchNamespaces";
    if object.pointer("/spec/staticProvidedAPIs") != Some(&Value::Bool(true)) {
        return form.to_owned();
    }
    let apis = object.pointer("/metadata/annotations/olm.providedAPIs").and_then(Value::as_str);
    // An API is written KIND.VERSION.GROUP.
    let groups: BTreeSet<&str> =
        apis.unwrap_or_default().split(',').filter_map(|api| api.trim().splitn(3, '.').nth(2)).collect();
    let entries: String =
        groups.into_iter().map(|group| format!("\n  {}: extension:NAME", printable(group))).collect();
    format!(
        "{form}. For spec.staticProvidedAPIs, apply policies/reserved-api-groups.yaml with these entries in its ConfigMap. \
         Name the extensions, users and groups that may define kinds of the API group:{entries}"
    )
}

/// Hint for the format before bundles.
const PACKAGE_MANIFEST: &str = "a package manifest is a format before bundles: in a catalog it is an olm.package with \
    defaultChannel, and an olm.channel for each channel, whose head is currentCSV";

/// Hint for the only classic kind that v1 uses (docs/design/approvals.md#operator-conditions).
const OPERATOR_CONDITION: &str = "OperatorCondition is an object of classic OLM: in v1, with the feature gate \
    OperatorConditionCompat, operator-controller creates one for each operator; administrators set its spec.overrides";

/// ` (here: VALUE)`, or an empty string without a value.
fn value(value: Option<String>) -> String {
    value.map(|value| format!(" (here: {value})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Case seeds-s1-5
    #[test]
    fn hint_names_v1_form_of_each_classic_kind() {
        let subscription = "apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: s}\n\
                            spec: {name: etcd, channel: stable, source: x}\n";
        assert_eq!(
            hint(subscription.as_bytes()).unwrap(),
            "Subscription is an object of classic OLM: in v1 it is a ClusterExtension (olm.operatorframework.io/v1) with \
             spec.namespace, and in spec.source.catalog packageName (here: etcd), channels (here: [stable]) and version. \
             Upgrades stay within version: an exact one replaces startingCSV with installPlanApproval: Manual"
        );
        for (version, kind, expected) in [
            ("v1alpha1", "CatalogSource", "ClusterCatalog"),
            ("v1", "OperatorGroup", "watchNamespace"),
            ("v1", "OLMConfig", "copies no CSVs"),
            ("v1alpha1", "InstallPlan", "olm approve"),
            ("v1alpha1", "ClusterServiceVersion", "bundle"),
            ("v1", "Operator", "olm status"),
            ("v1alpha2", "OperatorGroup", "watchNamespace"),
            ("v1", "OperatorCondition", "spec.overrides"),
            ("v2", "OperatorCondition", "spec.overrides"),
            ("v1", "Other", "v1 has no object of this kind"),
        ] {
            let object = format!(r#"{{"apiVersion":"operators.coreos.com/{version}","kind":"{kind}"}}"#);
            let hint = hint(object.as_bytes()).unwrap();
            assert!(hint.starts_with(&format!("{kind} is an object of classic OLM: ")), "{hint}");
            assert!(hint.contains(expected), "{kind}: {hint}");
        }
        let package =
            "apiVersion: packages.operators.coreos.com/v1\nkind: PackageManifest\nmetadata: {name: etcd}\n";
        assert!(hint(package.as_bytes()).unwrap().contains("`olm catalog show cluster etcd`"));
        let group = r#"{"apiVersion":"operators.coreos.com/v1","kind":"OperatorGroup","metadata":{"annotations":{"olm.providedAPIs":
            "Alertmanager.v1.monitoring.coreos.com,Prometheus.v1.monitoring.coreos.com, Lamp.v1alpha1.example.com"}},
            "spec":{"staticProvidedAPIs":true}}"#;
        let entries = ":\n  example.com: extension:NAME\n  monitoring.coreos.com: extension:NAME";
        assert!(hint(group.as_bytes()).unwrap().ends_with(entries));
        let manifest = b"packageName: lamp\nchannels:\n- name: stable\n  currentCSV: lamp.v1.0.0\n";
        assert_eq!(hint(manifest).as_deref(), Some(PACKAGE_MANIFEST));
        let template = b"apiVersion: operators.coreos.com/v1alpha1\nkind: CatalogSource\nmetadata:\n  annotations: {olm.catalogImageTemplate: x}\n";
        assert!(hint(template).unwrap().ends_with("the same annotation olm.catalogImageTemplate"));
        assert_eq!(hint(b"apiVersion: v1\nkind: Subscription"), None);
        assert_eq!(hint(b"schema: olm.package"), None);
        assert_eq!(hint(b"- 1"), None);
    }
}
