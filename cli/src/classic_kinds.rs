//! Hints for objects of classic OLM in user input: the v1 equivalent of each (case seeds-s1-5).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// Largest file that is inspected.
const MAX_FILE: u64 = 1 << 20;

/// Names the v1 equivalent if `object` (JSON or YAML) belongs to classic OLM.
pub(crate) fn hint(object: &[u8]) -> Option<String> {
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

fn hint_for(object: &Value) -> Option<String> {
    let group = object["apiVersion"].as_str()?.split_once('/')?.0;
    let kind = object["kind"].as_str()?;
    if !matches!(group, "operators.coreos.com" | "packages.operators.coreos.com") {
        return None;
    }
    let field = |path: &str| object.pointer(path).and_then(Value::as_str).map(crate::output::printable);
    let form = match kind {
        "Subscription" => format!(
            "in v1 it is a ClusterExtension (olm.operatorframework.io/v1) with spec.namespace, and in \
             spec.source.catalog packageName{}, channels{} and version. Upgrades stay within version: an exact one \
             replaces startingCSV with installPlanApproval: Manual",
            value(field("/spec/name")),
            value(field("/spec/channel").map(|channel| format!("[{channel}]")))
        ),
        "CatalogSource" => format!(
            "in v1 it is a ClusterCatalog (olm.operatorframework.io/v1) with spec.source.image.ref{}, \
             pollIntervalMinutes in place of updateStrategy.registryPoll, and spec.priority",
            value(field("/spec/image"))
        ),
        "OperatorGroup" => "v1 has no OperatorGroup: the operator watches all namespaces, or the namespace in \
                            spec.config.inline.watchNamespace of its ClusterExtension, as far as the install modes \
                            of its bundle allow; bundles without AllNamespaces need the feature gate \
                            SingleOwnNamespaceInstallSupport. spec.targetNamespaces is watchNamespaces and spec.selector \
                            is watchNamespaceSelector, with the feature gate MultiWatchNamespaces"
            .to_owned(),
        "OLMConfig" => {
            "v1 has no OLMConfig: it copies no CSVs, and the servers are configured by \
                        their flags and feature gates"
                .to_owned()
        }
        "InstallPlan" => {
            "v1 has no InstallPlan: the installed objects are in the ClusterObjectSets of a ClusterExtension"
                .to_owned()
        }
        "ClusterServiceVersion" => {
            "a ClusterServiceVersion belongs in the manifests folder of a bundle; in v1 the \
                                    installed bundle is in status.install of a ClusterExtension"
                .to_owned()
        }
        _ => return None,
    };
    Some(format!("{kind} is an object of classic OLM: {form}"))
}

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
            ("v1alpha1", "CatalogSource", Some("ClusterCatalog")),
            ("v1", "OperatorGroup", Some("watchNamespace")),
            ("v1", "OLMConfig", Some("copies no CSVs")),
            ("v1alpha1", "InstallPlan", Some("ClusterObjectSets")),
            ("v1alpha1", "ClusterServiceVersion", Some("bundle")),
            ("v1", "Other", None),
        ] {
            let object = format!(r#"{{"apiVersion":"operators.coreos.com/{version}","kind":"{kind}"}}"#);
            let hint = hint(object.as_bytes());
            assert_eq!(hint.is_some(), expected.is_some(), "{kind}");
            assert!(hint.unwrap_or_default().contains(expected.unwrap_or_default()), "{kind}");
        }
        assert_eq!(hint(b"apiVersion: v1\nkind: Subscription"), None);
        assert_eq!(hint(b"schema: olm.package"), None);
        assert_eq!(hint(b"- 1"), None);
    }
}
