//! `olm config explain`: one field of the configuration, in the manner of `kubectl explain`. Pure.

use olm_bundle::{BundleContent, InstallMode};
use olm_cli_core::error::CliError;
use serde_json::Value;

use super::{gate_note, unknown_field};
use crate::rendering::schema_fields::{fields, target};

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Explain the fields of the configuration

Lists the fields that a bundle accepts in spec.config.inline of a ClusterExtension, with their types, limits and \
effects. For a ClusterExtension, fields that a disabled feature gate of operator-controller refuses are marked.";

/// Descriptions of the fields of the configuration. Fields below them are those of the Kubernetes API.
const DESCRIPTIONS: [(&str, &str); 19] = [
    ("", "Configuration of the operator, spec.config.inline of its ClusterExtension."),
    ("watchNamespace", "The single namespace that the operator watches. It must exist."),
    ("watchNamespaces", "Namespaces that the operator watches. They must exist."),
    (
        "watchNamespaceSelector",
        "Labels of the namespaces that the operator watches, at most 200. A change of the list creates a new revision.",
    ),
    ("watchNamespaceSelector.matchLabels", "Labels that a namespace must have, with these values."),
    ("watchNamespaceSelector.matchExpressions", "Conditions that the labels of a namespace must all meet."),
    ("watchNamespaceSelector.matchExpressions.key", "Key of the label."),
    ("watchNamespaceSelector.matchExpressions.operator", "In, NotIn, Exists or DoesNotExist."),
    ("watchNamespaceSelector.matchExpressions.values", "Values for In and NotIn. Empty for the others."),
    (
        "deploymentConfig",
        "Changes of all Deployments of the bundle and of all their containers, except for init containers.",
    ),
    (
        "deploymentConfig.annotations",
        "Annotations that are added to the Deployments and their pods. Annotations of the bundle are kept.",
    ),
    (
        "deploymentConfig.affinity",
        "Replaces each given part of the pods' affinity. An empty part is removed.",
    ),
    ("deploymentConfig.env", "Environment variables. A variable of the same name is replaced."),
    ("deploymentConfig.envFrom", "Sources of environment variables. Existing ones are kept."),
    ("deploymentConfig.nodeSelector", "Replaces the node selector of the pods. {} removes it."),
    ("deploymentConfig.resources", "Replaces the resources of the containers. {} removes them."),
    ("deploymentConfig.tolerations", "Tolerations of the pods. Existing ones are kept."),
    ("deploymentConfig.volumeMounts", "Mounts in the containers. A mount of the same volume is replaced."),
    ("deploymentConfig.volumes", "Volumes of the pods. A volume of the same name is replaced."),
];

/// Text about the field at `path`. `off` are the fields that a disabled gate refuses.
///
/// # Errors
/// The field does not exist. Names its siblings.
pub(super) fn explain(
    bundle: &BundleContent,
    schema: &Value,
    path: &str,
    off: &[(&'static str, &'static str)],
) -> Result<String, CliError> {
    let parts: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
    let mut value = schema;
    for (index, part) in parts.iter().enumerate() {
        let fields = fields(schema, value);
        let names: Vec<&str> = fields.iter().flat_map(|fields| fields.keys()).map(String::as_str).collect();
        let known = fields.and_then(|fields| fields.get(*part));
        value = known.ok_or_else(|| unknown_field(&parts[..=index].join("."), &names))?;
    }
    let mut text = format!("BUNDLE:  {}\n", bundle.name());
    if path.is_empty() {
        let modes: Vec<_> = bundle.install_modes().into_iter().map(InstallMode::name).collect();
        text.push_str(&format!("MODES:   {}\n", modes.join(", ")));
    } else {
        text.push_str(&format!("FIELD:   {path} <{}>{}\n", kind(value), limits(value)));
    }
    let of_kubernetes = "A field of the Kubernetes API; see `kubectl explain pod.spec --recursive`.";
    text.push_str(&format!("\n{}\n", description(path).unwrap_or(of_kubernetes)));
    if path.is_empty() {
        text.push_str(default_scope(schema));
    }
    text.extend(gate_note(off, parts.first().unwrap_or(&"")).map(|note| format!("{note}\n")));
    if let Some(fields) = fields(schema, value).filter(|fields| !fields.is_empty()) {
        text.push_str("\nFIELDS:\n");
        let required = required(schema, value);
        for (name, field) in fields {
            let is_required = if required.contains(&name.as_str()) { " required" } else { "" };
            let note = gate_note(off, name).filter(|_| parts.is_empty());
            let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
            text.push_str(&format!("  {name} <{}>{}{is_required}{note}\n", kind(field), limits(field)));
            let field = if path.is_empty() { name.clone() } else { format!("{}.{name}", parts.join(".")) };
            text.extend(description(&field).map(|text| format!("    {text}\n")));
        }
    } else if path.is_empty() {
        text.push_str("\nThe bundle accepts no configuration.\n");
    }
    Ok(text)
}

pub(super) fn description(path: &str) -> Option<&'static str> {
    DESCRIPTIONS.iter().find(|(name, _)| *name == path).map(|(_, description)| *description)
}

/// Namespaces that the operator watches without a configuration.
fn default_scope(schema: &Value) -> &'static str {
    let one = schema.pointer("/properties/watchNamespace");
    let several = schema.pointer("/properties/watchNamespaces");
    let is_required = schema.get("required").is_some() || schema.get("anyOf").is_some();
    match (one.or(several), is_required) {
        (None, _) => "The operator watches all namespaces.\n",
        (Some(_), false) => "Without a configuration the operator watches all namespaces.\n",
        (Some(_), true) => {
            "The operator cannot watch all namespaces. The configuration must name the namespaces.\n"
        }
    }
}

fn required<'a>(schema: &'a Value, value: &'a Value) -> Vec<&'a str> {
    let value = target(schema, value);
    let list = value.get("required").or_else(|| target(schema, value.get("items")?).get("required"));
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Type of a field in the notation of `kubectl explain`.
pub(super) fn kind(value: &Value) -> String {
    if let Some(name) = value.get("$ref").and_then(Value::as_str) {
        return name.rsplit('/').next().unwrap_or(name).to_owned();
    }
    let choices = ["anyOf", "oneOf"].iter().find_map(|keyword| value.get(*keyword)?.as_array());
    if let Some(choices) = choices {
        let kinds = choices.iter().filter(|one| one["type"] != "null").map(kind);
        return kinds.collect::<Vec<_>>().join(" or ");
    }
    match (value["type"].as_str().unwrap_or("object"), value.get("items"), value.get("additionalProperties"))
    {
        ("array", Some(items), _) => format!("[]{}", kind(items)),
        ("object", _, Some(values)) if values.is_object() => format!("map[string]{}", kind(values)),
        (name, ..) => name.to_owned(),
    }
}

/// Limits of the value, in parentheses.
pub(super) fn limits(value: &Value) -> String {
    let choice = value.get("anyOf").and_then(Value::as_array).and_then(|all| all.last());
    let value = choice.unwrap_or(value);
    let mut limits = Vec::new();
    if let (Some(least), Some(most)) = (value.get("minItems"), value.get("maxItems")) {
        limits.push(format!("{least} to {most}"));
    }
    let format = value.get("format").or_else(|| value.get("items")?.get("format")).and_then(Value::as_str);
    match format {
        Some("ownNamespaceInstallMode") => limits.push("must be the install namespace".to_owned()),
        Some("singleNamespaceInstallMode" | "multiNamespaceInstallMode") => {
            limits.push("not the install namespace".to_owned());
        }
        _ => {}
    }
    if limits.is_empty() { String::new() } else { format!(" ({})", limits.join(", ")) }
}
