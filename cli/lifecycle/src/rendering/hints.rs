//! Hints about fields of a configuration that the bundle, or a feature gate, does not admit. Pure.
//!
//! The errors themselves are those of operator-controller (docs/design/bundles.md#configuration-errors).

use olm_bundle::{BundleContent, InstallMode, config_schema};
use olm_cli_core::names::nearest;
use serde_json::Value;

use super::schema_fields::{fields, target};
use super::settings::{DEPLOYMENT_CONFIG, MULTI_WATCH, OWN_NAMESPACE, OWNED_API_SERVICES};

const ONE: &str = "watchNamespace";
const SEVERAL: &str = "watchNamespaces";
const SELECTED: &str = "watchNamespaceSelector";
const DEPLOYMENTS: &str = "deploymentConfig";

/// Fields that a disabled feature gate refuses, with the gate. Bundles that support AllNamespaces accept
/// `watchNamespace` without a gate (docs/design/bundles.md#watched-namespaces).
pub(crate) fn refused_fields(
    bundle: &BundleContent,
    is_on: impl Fn(&str) -> bool,
) -> Vec<(&'static str, &'static str)> {
    let modes = bundle.install_modes();
    let takes_several = modes.contains(&InstallMode::MultiNamespace) && is_on(MULTI_WATCH);
    let takes_one = modes.contains(&InstallMode::AllNamespaces) || takes_several || is_on(OWN_NAMESPACE);
    [
        (ONE, OWN_NAMESPACE, takes_one),
        (SEVERAL, MULTI_WATCH, is_on(MULTI_WATCH)),
        (SELECTED, MULTI_WATCH, is_on(MULTI_WATCH)),
        (DEPLOYMENTS, DEPLOYMENT_CONFIG, is_on(DEPLOYMENT_CONFIG)),
    ]
    .into_iter()
    .filter(|(.., is_accepted)| !is_accepted)
    .map(|(field, gate, _)| (field, gate))
    .collect()
}

/// One hint for each field of `config` that has no effect or is refused, and one for a gate that the bundle itself
/// needs. `is_on` tells the value of a feature gate.
pub(crate) fn hints(bundle: &BundleContent, config: &Value, is_on: impl Fn(&str) -> bool) -> Vec<String> {
    let schema = config_schema(bundle, true, true);
    let mut hints = Vec::new();
    if bundle.has_api_services() && !is_on(OWNED_API_SERVICES) {
        hints.push(format!("aggregated APIs need feature gate {OWNED_API_SERVICES} of operator-controller"));
    }
    for (field, gate) in refused_fields(bundle, is_on) {
        if config.get(field).is_some() && schema["properties"].get(field).is_some() {
            hints.push(format!("{field} needs feature gate {gate} of operator-controller"));
        }
    }
    let mut walk = Walk { bundle, schema: &schema, hints };
    walk.visit(&schema, config, "");
    walk.hints.sort();
    walk.hints
}

struct Walk<'a> {
    bundle: &'a BundleContent,
    schema: &'a Value,
    hints: Vec<String>,
}

impl Walk<'_> {
    fn visit(&mut self, schema: &Value, value: &Value, path: &str) {
        let schema = target(self.schema, schema);
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.visit(&schema["items"], item, &below(&index.to_string()));
                }
            }
            Value::Object(entries) => {
                let Some(known) = schema.get("properties").and_then(Value::as_object) else { return };
                for (name, value) in entries {
                    match known.get(name) {
                        Some(schema) => self.visit(schema, value, &below(name)),
                        None => {
                            let hint = self.unknown(name, path, known.keys().map(String::as_str));
                            self.hints.extend(hint);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn unknown<'n>(&self, name: &str, path: &str, siblings: impl Iterator<Item = &'n str>) -> Option<String> {
        let place = if path.is_empty() { String::new() } else { format!(" in {path}") };
        if path.is_empty() && [ONE, SEVERAL, SELECTED].contains(&name) {
            let modes: Vec<_> = self.bundle.install_modes().into_iter().map(InstallMode::name).collect();
            return Some(format!("the bundle has no {name}: its install modes are {}", modes.join(", ")));
        }
        if let Some(near) = nearest(name, siblings) {
            return Some(format!("{}{place}: did you mean {near}?", olm_version::quote(name)));
        }
        let is_field =
            |schema: &Value| fields(self.schema, schema).is_some_and(|fields| fields.contains_key(name));
        if path == DEPLOYMENTS && is_field(self.schema) {
            return Some(format!("{name} belongs beside {DEPLOYMENTS}, not into it"));
        }
        let belongs = path.is_empty() && is_field(&self.schema["properties"][DEPLOYMENTS]);
        belongs.then(|| format!("{name} belongs in {DEPLOYMENTS}"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    pub(crate) fn bundle(modes: &[&str]) -> BundleContent {
        bundle_with(modes, json!({}))
    }

    fn bundle_with(modes: &[&str], api_services: Value) -> BundleContent {
        let modes: Vec<Value> = modes.iter().map(|mode| json!({"type": mode, "supported": true})).collect();
        let csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "lamp.v1.0.0"}, "spec": {"version": "1.0.0", "installModes": modes,
                "apiservicedefinitions": api_services}});
        let annotations =
            json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": "lamp"}});
        let files = [("manifests/csv.yaml", csv), ("metadata/annotations.yaml", annotations)];
        let files: BTreeMap<String, Vec<u8>> = files
            .into_iter()
            .map(|(path, content)| (path.to_owned(), content.to_string().into_bytes()))
            .collect();
        BundleContent::load(&files).unwrap()
    }

    #[test]
    fn unknown_field_gets_nearest_name_or_its_place() {
        let any = bundle(&["AllNamespaces", "SingleNamespace", "OwnNamespace", "MultiNamespace"]);
        let all = bundle(&["AllNamespaces"]);
        for (bundle, config, expected) in [
            (&any, json!({"watchNamespace": "a", "deploymentConfig": {"env": [{"name": "A"}]}}), &[][..]),
            (&any, json!({"watchNamespce": "a"}), &["\"watchNamespce\": did you mean watchNamespace?"]),
            (&any, json!({"nodeSelector": {}}), &["nodeSelector belongs in deploymentConfig"]),
            (
                &any,
                json!({"deploymentConfig": {"watchNamespace": "a"}}),
                &["watchNamespace belongs beside deploymentConfig, not into it"],
            ),
            (
                &any,
                json!({"deploymentConfig": {"enviroment": [], "ENV": [], "envs": []}}),
                &[
                    "\"ENV\" in deploymentConfig: did you mean env?",
                    "\"envs\" in deploymentConfig: did you mean env?",
                ],
            ),
            (
                &any,
                json!({"deploymentConfig": {"env": [{"name": "A", "valeu": "b"}]}}),
                &["\"valeu\" in deploymentConfig.env.0: did you mean value?"],
            ),
            (
                &any,
                json!({"deploymentConfig": {"resources": {"request": {"cpu": 1}, "limits": {"cpuu": 1}}}}),
                &["\"request\" in deploymentConfig.resources: did you mean requests?"],
            ),
            (
                &all,
                json!({"watchNamespace": "a"}),
                &["the bundle has no watchNamespace: its install modes are AllNamespaces"],
            ),
            (&all, json!({"foo": 1}), &[]),
            (&all, json!("text"), &[]),
        ] {
            assert_eq!(hints(bundle, &config, |_| true), expected, "{config}");
        }
    }

    #[test]
    fn watch_namespace_needs_a_gate_only_without_all_namespaces() {
        let (one, several) = ("SingleOwnNamespaceInstallSupport", "MultiWatchNamespaces");
        for (modes, on, expected) in [
            (&["AllNamespaces", "OwnNamespace"][..], "", &[SEVERAL, SELECTED, DEPLOYMENTS][..]),
            (&["OwnNamespace"], "", &[ONE, SEVERAL, SELECTED, DEPLOYMENTS]),
            (&["OwnNamespace"], one, &[SEVERAL, SELECTED, DEPLOYMENTS]),
            (&["OwnNamespace"], several, &[ONE, DEPLOYMENTS]),
            (&["OwnNamespace", "MultiNamespace"], several, &[DEPLOYMENTS]),
        ] {
            let refused = refused_fields(&bundle(modes), |gate| gate == on);
            let fields: Vec<_> = refused.iter().map(|(field, _)| *field).collect();
            assert_eq!(fields, expected, "{modes:?} {on}");
        }
        let config = json!({"watchNamespace": "a", "deploymentConfig": {}});
        let found = hints(&bundle(&["OwnNamespace"]), &config, |_| false);
        assert_eq!(
            found,
            [
                "deploymentConfig needs feature gate DeploymentConfig of operator-controller",
                "watchNamespace needs feature gate SingleOwnNamespaceInstallSupport of operator-controller",
            ]
        );
    }

    #[test]
    fn aggregated_apis_need_a_gate_also_without_configuration() {
        let owned = json!({"owned": [{"name": "lamps", "group": "example.com", "version": "v1", "kind": "Lamp",
            "deploymentName": "lamp"}]});
        let bundle = bundle_with(&["AllNamespaces"], owned);
        let expected = "aggregated APIs need feature gate OwnedAPIServices of operator-controller";
        assert_eq!(hints(&bundle, &Value::Null, |_| false), [expected]);
        assert_eq!(hints(&bundle, &Value::Null, |_| true), [""; 0]);
    }
}
