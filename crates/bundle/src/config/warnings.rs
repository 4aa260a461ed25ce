//! Warnings about configuration without effect. They never prevent an installation, because the reference accepts
//! such configuration (docs/design/bundles.md#author-checks).

use std::collections::{BTreeMap, BTreeSet};

use olm_version::quote;
use serde_json::Value;

use super::schema::DEPLOYMENT_CONFIG;
use crate::bundle::BundleContent;
use crate::limits::sorted_texts;
use crate::pointer::list;
use crate::typed::{Type, children, types};

/// Fields below `deploymentConfig` with a fixed set of values, by type and name, as of Kubernetes 1.36. The empty
/// string selects the default in each of them.
const CHOICES: [(&str, &str, &[&str]); 13] = [
    ("AzureDiskVolumeSource", "cachingMode", &["None", "ReadOnly", "ReadWrite"]),
    ("AzureDiskVolumeSource", "kind", &["Dedicated", "Managed", "Shared"]),
    (
        "HostPathVolumeSource",
        "type",
        &["BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"],
    ),
    ("ImageVolumeSource", "pullPolicy", &["Always", "IfNotPresent", "Never"]),
    ("LabelSelectorRequirement", "operator", &["DoesNotExist", "Exists", "In", "NotIn"]),
    ("NodeSelectorRequirement", "operator", &["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]),
    (
        "PersistentVolumeClaimSpec",
        "accessModes",
        &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"],
    ),
    ("PersistentVolumeClaimSpec", "volumeMode", &["Block", "Filesystem"]),
    ("Toleration", "effect", &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    ("Toleration", "operator", &["Equal", "Exists", "Gt", "Lt"]),
    ("VolumeMount", "mountPropagation", &["Bidirectional", "HostToContainer", "None"]),
    ("VolumeMount", "recursiveReadOnly", &["Disabled", "Enabled", "IfPossible"]),
    ("ScaleIOVolumeSource", "storageMode", &["ThickProvisioned", "ThinProvisioned"]),
];

/// Warnings about the `deploymentConfig` of `config`, the inline configuration of a ClusterExtension: unknown
/// fields, which are dropped, values unknown to Kubernetes, and entries that displace others. One sentence each,
/// sorted. Errors of [`render`](crate::render()) are not included.
pub fn config_warnings(bundle: &BundleContent, config: &Value) -> Vec<String> {
    let mut warnings = BTreeSet::new();
    let Some(Value::Object(deployments)) = config.get(DEPLOYMENT_CONFIG) else {
        return Vec::new();
    };
    for field in types().fields("DeploymentConfig") {
        if let Some(value) = deployments.get(field.name) {
            collect(value, &field.kind, &format!("{DEPLOYMENT_CONFIG}.{}", field.name), &mut warnings);
        }
    }
    for list in ["env", "volumes"] {
        warnings.extend(repeated_names(config, list));
    }
    warnings.extend(displaced_mounts(bundle, config));
    sorted_texts(warnings)
}

fn collect(value: &Value, kind: &Type, path: &str, warnings: &mut BTreeSet<String>) {
    let owner = if let Type::Struct(name) = kind { *name } else { "" };
    for (key, value, kind) in children(value, kind) {
        if let Some(kind) = kind {
            let path = format!("{path}.{key}");
            warnings.extend(unknown_choices(owner, &key, value, &path));
            collect(value, kind, &path, warnings);
        } else {
            let field = quote(&format!("{path}.{}", key.replace('~', "~0").replace('/', "~1")));
            let known: Vec<&str> = types().fields(owner).iter().map(|field| field.name).collect();
            warnings.insert(format!("unknown field {field} is ignored; known fields: {}", known.join(", ")));
        }
    }
}

/// Warnings for values that are not among the choices of the field, if it has choices.
fn unknown_choices(owner: &str, field: &str, value: &Value, path: &str) -> Vec<String> {
    let Some((.., choices)) = CHOICES.iter().find(|(kind, name, _)| (*kind, *name) == (owner, field)) else {
        return Vec::new();
    };
    let values = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    values
        .iter()
        .filter_map(Value::as_str)
        .filter(|value| !value.is_empty() && !choices.contains(value))
        .map(|value| {
            let (value, field, choices) = (quote(value), quote(path), choices.join(", "));
            format!("unknown value {value} of field {field}; known values: {choices}")
        })
        .collect()
}

fn name_of(entry: &Value) -> Option<&str> {
    entry.get("name").and_then(Value::as_str)
}

/// Items of a list below `deploymentConfig`.
fn configured<'a>(config: &'a Value, field: &str) -> &'a [Value] {
    list(config, &format!("/{DEPLOYMENT_CONFIG}/{field}"))
}

/// Reports repeated names, because entries do not replace one another
/// (docs/design/bundles.md#deployment-configuration).
fn repeated_names(config: &Value, field: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let names = configured(config, field).iter().filter_map(name_of);
    names
        .filter(|name| !seen.insert(*name))
        .map(|name| {
            let field = quote(&format!("{DEPLOYMENT_CONFIG}.{field}"));
            format!("field {field} has more than one entry named {}: all of them are added", quote(name))
        })
        .collect()
}

/// Reports mounts that displace another: a mount replaces a mount of the same volume, whatever its path
/// (docs/design/bundles.md#deployment-configuration).
fn displaced_mounts(bundle: &BundleContent, config: &Value) -> Vec<String> {
    let path_of = |mount: &Value| mount.get("mountPath").and_then(Value::as_str).map(str::to_string);
    let last = |mounts: &[Value]| -> BTreeMap<String, (usize, Option<String>)> {
        let named = mounts.iter().enumerate();
        named
            .filter_map(|(index, mount)| Some((name_of(mount)?.to_string(), (index, path_of(mount)))))
            .collect()
    };
    let replacing = last(configured(config, "volumeMounts"));
    let mut warnings = Vec::new();
    for deployment in bundle.csv.deployments() {
        for container in list(&deployment.spec, "/template/spec/containers") {
            for (volume, (_, path)) in last(list(container, "/volumeMounts")) {
                let Some((index, _)) = replacing.get(&volume).filter(|(_, replacing)| *replacing != path)
                else {
                    continue;
                };
                warnings.push(format!(
                    "field {} replaces the mount of volume {} at {} in container {} of deployment {}",
                    quote(&format!("{DEPLOYMENT_CONFIG}.volumeMounts.{index}")),
                    quote(&volume),
                    quote(&path.unwrap_or_default()),
                    quote(name_of(container).unwrap_or_default()),
                    quote(&deployment.name),
                ));
            }
        }
    }
    warnings
}
