//! Customization of the deployments of a bundle by administrators
//! (docs/design/bundles.md#deployment-configuration).

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::go_json;
use crate::typed::{Type, convert};

/// `deploymentConfig` in normal form.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeploymentConfig {
    env: Vec<Value>,
    env_from: Vec<Value>,
    volumes: Vec<Value>,
    volume_mounts: Vec<Value>,
    tolerations: Vec<Value>,
    resources: Option<Value>,
    node_selector: Option<Value>,
    affinity: Option<Map<String, Value>>,
    annotations: Option<Map<String, Value>>,
}

impl DeploymentConfig {
    /// Reads a value that the schema has accepted.
    ///
    /// # Errors
    /// Invalid quantities and integers out of range, which the schema does not check.
    pub(crate) fn read(value: &Value) -> Result<Self, String> {
        let normal =
            convert(value.clone(), &Type::Struct("DeploymentConfig")).map_err(|error| error.to_string())?;
        if let Some(number) = lost_integer(value, &normal) {
            return Err(format!("json: cannot unmarshal number {number} into Go value of type int32"));
        }
        Self::deserialize(normal).map_err(|error| error.to_string())
    }
}

/// Integer that the typed pass truncated, if any.
fn lost_integer(given: &Value, kept: &Value) -> Option<String> {
    match (given, kept) {
        (Value::Number(given), Value::Number(kept)) => {
            (given.as_f64() != kept.as_f64()).then(|| go_json::number(given))
        }
        (Value::Array(given), Value::Array(kept)) => {
            given.iter().zip(kept).find_map(|(given, kept)| lost_integer(given, kept))
        }
        (Value::Object(given), Value::Object(kept)) => {
            given.iter().find_map(|(key, given)| lost_integer(given, kept.get(key)?))
        }
        _ => None,
    }
}

/// Applies the configuration to a Deployment. Container fields apply to every container except init containers.
pub(crate) fn apply(config: &DeploymentConfig, deployment: &mut Value) {
    if let Some(annotations) = &config.annotations {
        add_annotations(&mut deployment["metadata"], annotations);
        add_annotations(&mut deployment["spec"]["template"]["metadata"], annotations);
    }
    let pod = &mut deployment["spec"]["template"]["spec"];
    for container in pod["containers"].as_array_mut().into_iter().flatten() {
        replace_by_name(container, "env", &config.env);
        append_new(container, "envFrom", &config.env_from);
        replace_by_name(container, "volumeMounts", &config.volume_mounts);
        if let Some(resources) = &config.resources {
            container["resources"] = resources.clone();
        }
    }
    replace_by_name(pod, "volumes", &config.volumes);
    append_new(pod, "tolerations", &config.tolerations);
    if let Some(selector) = &config.node_selector {
        set_or_drop(pod, "nodeSelector", selector.clone());
    }
    if let Some(affinity) = &config.affinity {
        let merged = merged_affinity(pod.get("affinity"), affinity);
        set_or_drop(pod, "affinity", merged);
    }
}

/// Adds missing annotations. Annotations of the bundle take precedence.
fn add_annotations(metadata: &mut Value, added: &Map<String, Value>) {
    if added.is_empty() {
        return;
    }
    let mut annotations = added.clone();
    if let Some(present) = metadata.get("annotations").and_then(Value::as_object) {
        annotations.extend(present.clone());
    }
    metadata["annotations"] = Value::Object(annotations);
}

/// List to which `entries` are added. `None` if there are none.
fn list_mut<'a>(owner: &'a mut Value, field: &str, entries: &[Value]) -> Option<&'a mut Vec<Value>> {
    if entries.is_empty() {
        return None;
    }
    let list = owner.as_object_mut()?.entry(field).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// Replaces the last original entry of the same name, or appends. Entries of the configuration do not replace one
/// another.
pub(crate) fn replace_by_name(owner: &mut Value, field: &str, entries: &[Value]) {
    let Some(list) = list_mut(owner, field, entries) else {
        return;
    };
    let name = |entry: &Value| go_json::text(&entry["name"]);
    let positions: BTreeMap<String, usize> =
        list.iter().enumerate().map(|(position, present)| (name(present), position)).collect();
    for entry in entries {
        match positions.get(&name(entry)) {
            Some(position) => list[*position] = entry.clone(),
            None => list.push(entry.clone()),
        }
    }
}

fn append_new(owner: &mut Value, field: &str, entries: &[Value]) {
    let Some(list) = list_mut(owner, field, entries) else {
        return;
    };
    let mut present: BTreeSet<String> = list.iter().map(go_json::text).collect();
    for entry in entries {
        if present.insert(go_json::text(entry)) {
            list.push(entry.clone());
        }
    }
}

fn set_or_drop(owner: &mut Value, field: &str, value: Value) {
    let Some(owner) = owner.as_object_mut() else {
        return;
    };
    if value.as_object().is_some_and(Map::is_empty) {
        owner.remove(field);
    } else {
        owner.insert(field.to_string(), value);
    }
}

/// Replaces sub-fields of the pod by those of the configuration. Empty sub-fields remove theirs, an empty
/// configuration removes all.
fn merged_affinity(present: Option<&Value>, config: &Map<String, Value>) -> Value {
    if config.is_empty() {
        return json!({});
    }
    let mut merged = present.and_then(Value::as_object).cloned().unwrap_or_default();
    for (part, value) in config {
        if is_empty_affinity(value) {
            merged.remove(part);
        } else {
            merged.insert(part.clone(), value.clone());
        }
    }
    if merged.values().all(is_empty_affinity) {
        return json!({});
    }
    Value::Object(merged)
}

/// Reports whether there is neither a preferred nor a required term. A required node affinity is a selector whose
/// terms may be an empty list.
fn is_empty_affinity(part: &Value) -> bool {
    let filled = |list: Option<&Value>| list.and_then(Value::as_array).is_some_and(|terms| !terms.is_empty());
    let required = part.get("requiredDuringSchedulingIgnoredDuringExecution");
    !filled(part.get("preferredDuringSchedulingIgnoredDuringExecution"))
        && !filled(required)
        && !filled(required.and_then(|selector| selector.get("nodeSelectorTerms")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(config: Value, containers: Value, pod: Value) -> Value {
        let config = DeploymentConfig::read(&config).unwrap();
        let mut deployment = json!({"metadata": {}, "spec": {"template": {"metadata": {}, "spec": pod}}});
        deployment["spec"]["template"]["spec"]["containers"] = containers;
        apply(&config, &mut deployment);
        deployment
    }

    fn pod_after(config: Value, pod: Value) -> Value {
        let mut pod = applied(config, json!([]), pod)["spec"]["template"]["spec"].take();
        pod.as_object_mut().unwrap().remove("containers");
        pod
    }

    #[test]
    fn empty_affinity_removes_all_or_one_sub_field() {
        // Case bundles-54
        let node = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}});
        let pods = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]});
        let pod = json!({"affinity": {"nodeAffinity": node, "podAffinity": pods}});
        assert_eq!(pod_after(json!({"affinity": {}}), pod.clone()), json!({}));
        assert_eq!(
            pod_after(json!({"affinity": {"nodeAffinity": {}}}), pod.clone()),
            json!({"affinity": {"podAffinity": pods}})
        );
        let both = json!({"affinity": {"nodeAffinity": {}, "podAffinity": {}}});
        assert_eq!(pod_after(both, pod.clone()), json!({}));
        assert_eq!(pod_after(json!({}), pod.clone()), pod);
        let no_terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}});
        assert_eq!(
            pod_after(json!({"affinity": {"nodeAffinity": no_terms}}), pod),
            json!({"affinity": {"podAffinity": pods}})
        );
    }

    #[test]
    fn env_replaces_by_name_in_every_container() {
        // Case bundles-55
        let config = json!({"env": [{"name": "A", "value": "new"}, {"name": "B", "value": "1"}, {"name": "B", "value": "2"}]});
        let containers = json!([
            {"name": "a", "env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]},
            {"name": "b"},
        ]);
        let init = json!({"initContainers": [{"name": "i"}]});
        let pod = applied(config, containers, init)["spec"]["template"]["spec"].take();
        let added = [json!({"name": "B", "value": "1"}), json!({"name": "B", "value": "2"})];
        let expected =
            json!([{"name": "A", "value": "x"}, {"name": "A", "value": "new"}, added[0], added[1]]);
        assert_eq!(pod["containers"][0]["env"], expected);
        assert_eq!(pod["containers"][1]["env"], json!([{"name": "A", "value": "new"}, added[0], added[1]]));
        assert_eq!(pod["initContainers"], json!([{"name": "i"}]));
    }

    #[test]
    fn config_annotations_do_not_override_those_of_the_bundle() {
        // Case bundles-56
        let config = DeploymentConfig::read(&json!({"annotations": {"a": "config", "b": "config"}})).unwrap();
        let mut deployment = json!({
            "metadata": {"name": "d"},
            "spec": {"template": {"metadata": {"annotations": {"a": "bundle"}}, "spec": {}}},
        });
        apply(&config, &mut deployment);
        assert_eq!(deployment["metadata"]["annotations"], json!({"a": "config", "b": "config"}));
        let expected = json!({"a": "bundle", "b": "config"});
        assert_eq!(deployment["spec"]["template"]["metadata"]["annotations"], expected);
    }

    #[test]
    fn selector_and_resources_are_replaced_or_removed() {
        let pod = json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]});
        assert_eq!(
            pod_after(
                json!({"nodeSelector": {}, "tolerations": [{"key": "k"}, {"key": "l", "tolerationSeconds": 3}]}),
                pod
            ),
            json!({"tolerations": [{"key": "k"}, {"key": "l", "tolerationSeconds": 3}]})
        );
        let containers = json!([{"name": "a", "resources": {"limits": {"cpu": "1"}}}]);
        let pod = applied(json!({"resources": {}}), containers, json!({}))["spec"]["template"]["spec"].take();
        assert_eq!(pod["containers"][0]["resources"], json!({}));
        assert_eq!(DeploymentConfig::read(&json!({})), Ok(DeploymentConfig::default()));
    }

    #[test]
    fn invalid_quantity_and_integer_overflow_are_errors() {
        let read = |value: Value| DeploymentConfig::read(&value).unwrap_err();
        let cpu = read(json!({"resources": {"limits": {"cpu": "x"}}}));
        assert!(cpu.starts_with("quantities must match the regular expression"), "{cpu}");
        let mode = json!({"volumes": [{"name": "v", "secret": {"defaultMode": 99_999_999_999_i64}}]});
        assert_eq!(read(mode), "json: cannot unmarshal number 99999999999 into Go value of type int32");
    }
}
