//! ClusterServiceVersion of a generated bundle (docs/design/cli.md#bundle-generation).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::InstallMode;
use olm_bundle::pointer::{list, text};
use serde_json::{Map, Value, json};

use super::deployments::related_images;
use super::objects::{Object, served_versions};
use super::summary::{Missing, Report};

const EXAMPLES: &str = "alm-examples";
const SKIP_RANGE: &str = "olm.skipRange";
const MODES: [InstallMode; 4] = [
    InstallMode::OwnNamespace,
    InstallMode::SingleNamespace,
    InstallMode::MultiNamespace,
    InstallMode::AllNamespaces,
];
/// Fields that no input determines.
const WRITTEN: [(&str, &str, &str); 10] = [
    ("spec.description", "/spec/description", "text of the operator in catalogs, in Markdown"),
    ("spec.icon", "/spec/icon", "logo: a list of one object with base64data and mediatype"),
    ("spec.provider", "/spec/provider", "name and url of the publisher"),
    ("spec.maintainers", "/spec/maintainers", "list of name and email"),
    ("spec.keywords", "/spec/keywords", "words that users search for"),
    ("spec.links", "/spec/links", "list of name and url, such as documentation and source"),
    (
        "spec.maturity",
        "/spec/maturity",
        "planning, pre-alpha, alpha, beta, stable, mature, inactive or deprecated",
    ),
    ("spec.minKubeVersion", "/spec/minKubeVersion", "lowest Kubernetes version, such as 1.31.0"),
    (
        "metadata.annotations.capabilities",
        "/metadata/annotations/capabilities",
        "Basic Install up to Auto Pilot",
    ),
    (
        "metadata.annotations.categories",
        "/metadata/annotations/categories",
        "groups of catalogs, such as Database",
    ),
];

/// Options that determine fields.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub(super) package: String,
    pub(super) version: String,
    pub(super) install_modes: Option<BTreeSet<InstallMode>>,
    /// An empty value removes the field.
    pub(super) replaces: Option<String>,
    pub(super) skips: Option<Vec<String>>,
    pub(super) skip_range: Option<String>,
}

impl Choices {
    /// Name of the bundle.
    pub(super) fn name(&self) -> String {
        format!("{}.v{}", self.package, self.version)
    }
}

/// Content that the input determines.
#[derive(Debug, Default)]
pub(super) struct Content<'a> {
    pub(super) deployments: Vec<Value>,
    pub(super) permissions: Vec<Value>,
    pub(super) cluster_permissions: Vec<Value>,
    pub(super) webhooks: Vec<Value>,
    /// Entries without kinds.
    pub(super) api_services: Vec<Value>,
    pub(super) crds: &'a [Object],
    pub(super) examples: &'a [Object],
    /// Deployments of the bundle before the run.
    pub(super) previous: &'a [Value],
    /// `true` if images in all environment variables are related images.
    pub(super) relates_variables: bool,
}

/// Combines the hand-written fields of two ClusterServiceVersions. Those of `first` come before those of `second`.
pub(super) fn merged(first: Option<Value>, second: Option<Value>) -> Value {
    let (Some(mut base), Some(second)) = (first.clone(), second.clone()) else {
        return first.or(second).unwrap_or_else(|| json!({}));
    };
    for path in [
        "/spec",
        "/spec/customresourcedefinitions",
        "/spec/apiservicedefinitions",
        "/metadata",
        "/metadata/annotations",
        "/metadata/labels",
    ] {
        let Some(fields) = second.pointer(path).and_then(Value::as_object) else { continue };
        if let Some(known) = base.pointer_mut(path).and_then(Value::as_object_mut) {
            for (key, value) in fields {
                if known.get(key).is_none_or(is_empty) {
                    known.insert(key.clone(), value.clone());
                }
            }
        }
    }
    for path in ["/spec/customresourcedefinitions/owned", "/spec/apiservicedefinitions/owned"] {
        let more = list(&second, path);
        if let Some(known) = base.pointer_mut(path).and_then(Value::as_array_mut) {
            let more: Vec<Value> = more.iter().filter(|entry| !known.contains(entry)).cloned().collect();
            known.extend(more);
        }
    }
    base
}

/// Reports whether a value has no content, such as `{}` of a new project.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Replaces the fields of `base` that choices and content determine.
pub(super) fn csv(base: Value, choices: &Choices, content: &Content<'_>, report: &mut Report) -> Value {
    let mut csv = base;
    for path in ["metadata", "spec"] {
        if !csv[path].is_object() {
            csv[path] = json!({});
        }
    }
    csv["apiVersion"] = json!("operators.coreos.com/v1alpha1");
    csv["kind"] = json!("ClusterServiceVersion");
    let known = list(&csv, "/spec/relatedImages");
    let related = related_images(&content.deployments, known, content.previous, content.relates_variables);
    let crds = owned_crds(&csv, content.crds, report);
    let services = owned_services(&csv, content, report);
    graph(&mut csv, choices, report);
    annotations(&mut csv, choices, content, report);
    let spec = &mut csv["spec"];
    if text(spec, "/displayName").is_empty() {
        spec["displayName"] = json!(words(&choices.package));
    }
    if let Some(modes) = &choices.install_modes {
        spec["installModes"] = install_modes(modes);
    } else if list(spec, "/installModes").is_empty() {
        spec["installModes"] = install_modes(&BTreeSet::from([InstallMode::AllNamespaces]));
    }
    set(spec, "relatedImages", related);
    set_owned(spec, "customresourcedefinitions", crds);
    set_owned(spec, "apiservicedefinitions", services);
    set(spec, "webhookdefinitions", content.webhooks.clone());
    let mut strategy = json!({"deployments": content.deployments});
    set(&mut strategy, "permissions", content.permissions.clone());
    set(&mut strategy, "clusterPermissions", content.cluster_permissions.clone());
    spec["install"] = json!({"strategy": "deployment", "spec": strategy});
    csv
}

/// Sets a list, or removes the field of an empty one.
fn set(owner: &mut Value, field: &str, items: Vec<Value>) {
    if !items.is_empty() {
        owner[field] = Value::Array(items);
    } else if let Some(fields) = owner.as_object_mut() {
        fields.remove(field);
    }
}

/// Sets the list `owned` of APIs, and keeps the required ones.
fn set_owned(spec: &mut Value, field: &str, owned: Vec<Value>) {
    if !spec[field].is_object() {
        spec[field] = json!({});
    }
    set(&mut spec[field], "owned", owned);
    if spec[field] == json!({})
        && let Some(fields) = spec.as_object_mut()
    {
        fields.remove(field);
    }
}

fn install_modes(supported: &BTreeSet<InstallMode>) -> Value {
    let entry = |mode: &InstallMode| json!({"type": mode.name(), "supported": supported.contains(mode)});
    MODES.iter().map(entry).collect()
}

/// Name, version and upgrade edges.
fn graph(csv: &mut Value, choices: &Choices, report: &mut Report) {
    let name = choices.name();
    let known = text(csv, "/spec/version").to_owned();
    if !known.is_empty() && known != choices.version {
        let skips: Vec<&str> = list(csv, "/spec/skips").iter().filter_map(Value::as_str).collect();
        let range = csv["metadata"]["annotations"][SKIP_RANGE].as_str().unwrap_or_default();
        for (is_given, field, value, option) in [
            (choices.replaces.is_some(), "spec.replaces", text(csv, "/spec/replaces"), "--replaces"),
            (choices.skips.is_some(), "spec.skips", &skips.join(", "), "--skips"),
            (choices.skip_range.is_some(), "annotation olm.skipRange", range, "--skip-range"),
        ] {
            if !is_given && !value.is_empty() {
                report.note(format!(
                    "{field} is still {value}, from version {known}; set it with {option}, or remove it with {option} ''"
                ));
            }
        }
    }
    csv["metadata"]["name"] = json!(name);
    csv["spec"]["version"] = json!(choices.version);
    if let Some(replaces) = &choices.replaces {
        csv["spec"]["replaces"] = json!(replaces);
    }
    if csv["spec"]["replaces"] == "" || csv["spec"]["replaces"] == name {
        csv["spec"].as_object_mut().map(|spec| spec.remove("replaces"));
    }
    if let Some(skips) = &choices.skips {
        let skips = skips.iter().filter(|skip| !skip.is_empty());
        set(&mut csv["spec"], "skips", skips.map(|skip| json!(skip)).collect());
    }
}

fn annotations(csv: &mut Value, choices: &Choices, content: &Content<'_>, report: &mut Report) {
    let mut annotations = match csv["metadata"].get_mut("annotations").map(Value::take) {
        Some(Value::Object(annotations)) => annotations,
        _ => Map::new(),
    };
    match choices.skip_range.as_deref() {
        Some("") => drop(annotations.remove(SKIP_RANGE)),
        Some(range) => drop(annotations.insert(SKIP_RANGE.into(), json!(range))),
        None => {}
    }
    let mut examples = Vec::new();
    for example in content.examples {
        if is_provided(example, content) {
            examples.push(&example.value);
            if !example.is_sample {
                report.skip(example, "example in the annotation alm-examples");
            }
        } else {
            report.skip(example, "its API version is not served");
        }
    }
    if !examples.is_empty() {
        // Pretty-printed, so that a diff shows the changed line.
        let text = serde_json::to_string_pretty(&examples).unwrap_or_default();
        annotations.insert(EXAMPLES.into(), json!(text));
    }
    if annotations.is_empty() {
        csv["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
    } else {
        csv["metadata"]["annotations"] = Value::Object(annotations);
    }
}

/// Reports whether the bundle serves the API of a custom resource.
fn is_provided(example: &Object, content: &Content<'_>) -> bool {
    let (group, version, kind) = (example.group(), example.version(), example.kind());
    let defines = |crd: &Object| {
        text(&crd.value, "/spec/group") == group
            && text(&crd.value, "/spec/names/kind") == kind
            && served_versions(&crd.value).any(|one| one["name"] == version)
    };
    let serves = |service: &Value| service["group"] == group && service["version"] == version;
    content.crds.iter().any(defines) || content.api_services.iter().any(serves)
}

/// Entries of the owned CRDs: one for each served version. Display name, description and other fields of an existing
/// entry are kept.
fn owned_crds(csv: &Value, crds: &[Object], report: &mut Report) -> Vec<Value> {
    let known = list(csv, "/spec/customresourcedefinitions/owned");
    let mut owned = Vec::new();
    for crd in crds {
        let kind = text(&crd.value, "/spec/names/kind");
        for version in served_versions(&crd.value) {
            let (name, version_name) = (crd.name(), text(version, "/name"));
            let is_same = |entry: &&Value| entry["name"] == name && entry["version"] == version_name;
            let mut entry = known.iter().find(is_same).cloned().unwrap_or_else(|| json!({}));
            entry["name"] = json!(name);
            entry["version"] = json!(version_name);
            entry["kind"] = json!(kind);
            if text(&entry, "/displayName").is_empty() {
                entry["displayName"] = json!(words(kind));
            }
            let description = text(version, "/schema/openAPIV3Schema/description");
            if text(&entry, "/description").is_empty() && !description.is_empty() {
                entry["description"] = json!(description);
            }
            owned.push(entry);
        }
    }
    let is_lost = |entry: &&Value| {
        !owned.iter().any(|one| one["name"] == entry["name"] && one["version"] == entry["version"])
    };
    for entry in known.iter().filter(is_lost) {
        let (name, version) = (text(entry, "/name"), text(entry, "/version"));
        report.note(format!("removed owned CRD {name} {version}, which the input does not serve"));
    }
    owned
}

/// Entries of the owned aggregated APIs. An APIService does not name its kinds: they are those of existing entries
/// and of samples.
fn owned_services(csv: &Value, content: &Content<'_>, report: &mut Report) -> Vec<Value> {
    let known = list(csv, "/spec/apiservicedefinitions/owned");
    let mut owned = Vec::new();
    for service in &content.api_services {
        let (group, version) = (&service["group"], &service["version"]);
        let is_same =
            |entry: &&Value| entry.is_object() && entry["group"] == *group && entry["version"] == *version;
        let mut kinds: BTreeMap<String, Value> = BTreeMap::new();
        for entry in known.iter().filter(is_same) {
            kinds.entry(text(entry, "/kind").to_owned()).or_insert_with(|| entry.clone());
        }
        for example in content.examples {
            if *group == example.group() && *version == example.version() {
                kinds.entry(example.kind().to_owned()).or_insert_with(|| json!({}));
            }
        }
        kinds.remove("");
        if kinds.is_empty() {
            let (group, version) = (group.as_str().unwrap_or_default(), version.as_str().unwrap_or_default());
            report.problem(format!(
                "APIService {version}.{group}: its kinds are unknown; add a sample of each kind with --from, or \
                 entries with group, version and kind in spec.apiservicedefinitions.owned of the \
                 ClusterServiceVersion"
            ));
        }
        for (kind, mut entry) in kinds {
            for (field, value) in service.as_object().into_iter().flatten() {
                entry[field] = value.clone();
            }
            if text(&entry, "/name").is_empty() {
                let plural = format!("{}s", kind.to_lowercase());
                report.note(format!("spec.apiservicedefinitions.owned: {kind} got the plural name {plural}"));
                entry["name"] = json!(plural);
            }
            if text(&entry, "/displayName").is_empty() {
                entry["displayName"] = json!(words(&kind));
            }
            entry["kind"] = json!(kind);
            owned.push(entry);
        }
    }
    owned
}

/// Fields that only the author can write and that are absent.
pub(super) fn missing(csv: &Value, is_new: bool) -> Vec<Missing> {
    let is_absent = |pointer: &str| csv.pointer(pointer).is_none_or(is_empty);
    let absent = WRITTEN.iter().filter(|(_, pointer, _)| is_absent(pointer));
    let mut missing: Vec<Missing> = absent.map(|(field, _, purpose)| Missing { field, purpose }).collect();
    if is_new {
        let purpose = "name in catalogs, now derived from the package name";
        missing.insert(0, Missing { field: "spec.displayName", purpose });
    }
    let has_owned = !list(csv, "/spec/customresourcedefinitions/owned").is_empty();
    if has_owned && is_absent("/metadata/annotations/alm-examples") {
        let purpose = "examples of custom resources; add a folder of samples to --from";
        missing.push(Missing { field: "metadata.annotations.alm-examples", purpose });
    }
    missing
}

/// `my-operator` and `MyOperator` as `My Operator`.
fn words(name: &str) -> String {
    let mut words = String::new();
    let mut previous = '-';
    for c in name.chars() {
        let starts = !previous.is_alphanumeric() || (c.is_uppercase() && previous.is_lowercase());
        if c.is_alphanumeric() {
            if starts && !words.is_empty() {
                words.push(' ');
            }
            if starts { words.extend(c.to_uppercase()) } else { words.push(c) }
        }
        previous = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_display_name_splits_package_or_kind_into_words() {
        for (name, expected) in [
            ("my-operator", "My Operator"),
            ("LampShade", "Lamp Shade"),
            ("HTTPProxy", "HTTPProxy"),
            ("a.b_c2", "A B C2"),
            ("", ""),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }

    #[test]
    fn empty_fields_of_the_base_are_filled_from_the_existing_csv() {
        let first = json!({"metadata": {"name": "a"}, "spec": {
            "provider": {}, "icon": [{"base64data": ""}], "maturity": "beta",
            "customresourcedefinitions": {"owned": [{"name": "x", "displayName": "new"}]},
        }});
        let second = json!({"metadata": {"name": "b", "labels": {"l": "1"}}, "spec": {
            "provider": {"name": "p"}, "icon": [{"base64data": "eA=="}], "maturity": "alpha", "links": [1],
            "customresourcedefinitions": {"owned": [{"name": "y"}], "required": [{"name": "z"}]},
        }});
        let expected = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {
            "provider": {"name": "p"}, "icon": [{"base64data": "eA=="}], "maturity": "beta", "links": [1],
            "customresourcedefinitions": {
                "owned": [{"name": "x", "displayName": "new"}, {"name": "y"}], "required": [{"name": "z"}],
            },
        }});
        assert_eq!(merged(Some(first.clone()), Some(second.clone())), expected);
        assert_eq!(merged(None, Some(second.clone())), second);
        assert_eq!(merged(Some(first.clone()), None), first);
        assert_eq!(merged(None, None), json!({}));
    }
}
