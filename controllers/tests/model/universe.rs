//! Bundles and catalogs of the model: the available versions, and the objects of each. Pure.
//!
//! Every extension has a package, two catalogs, a namespace and an API group of its own, so that many can exist at
//! once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Files of an image, by path.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Content of one version of every package, except for its Deployment and ServiceAccount.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) text: &'static str,
    /// Suffixes of the names of its ConfigMaps.
    pub(crate) configs: &'static [&'static str],
    pub(crate) service: bool,
    pub(crate) priority_class: bool,
    /// Number of fields of its Widgets. `None` without that CRD.
    pub(crate) widgets: Option<usize>,
    /// Number of fields of its Gadgets. `None` without that CRD.
    pub(crate) gadgets: Option<usize>,
    /// Storage version of Gadgets. A webhook converts them.
    pub(crate) stored: &'static str,
    /// Update strategy of the Deployment, if not the default one.
    pub(crate) strategy: Option<&'static str>,
}

/// All versions, ascending.
pub(crate) const VERSIONS: [Version; 5] = [
    Version { configs: &["common", "early"], ..plain("1.0.0") },
    // Same manifests as 1.0.0.
    Version { configs: &["common", "early"], ..plain("1.0.1") },
    // Drops an object, adds another one, and adds a field to a CRD.
    Version { configs: &["common", "late"], service: true, widgets: Some(2), ..plain("1.1.0") },
    // Drops a CRD, adds another one, adds a cluster-scoped object, and changes the strategy of the Deployment.
    Version {
        configs: &["common", "late"],
        service: true,
        priority_class: true,
        widgets: None,
        gadgets: Some(1),
        stored: "v1beta1",
        strategy: Some("Recreate"),
        ..plain("1.2.0")
    },
    // Removes a field that 1.1.0 has, and stores Gadgets in a different version than 1.2.0.
    Version { configs: &["common"], gadgets: Some(1), ..plain("2.0.0") },
];

const fn plain(text: &'static str) -> Version {
    Version {
        text,
        configs: &[],
        service: false,
        priority_class: false,
        widgets: Some(1),
        gadgets: None,
        stored: "v1",
        strategy: None,
    }
}

/// Name of the container of every Deployment.
pub(crate) const CONTAINER: &str = "operator";

/// Plurals of the kinds that the CRDs define.
pub(crate) const DEFINED: [&str; 2] = ["widgets", "gadgets"];

pub(crate) fn package(name: &str) -> String {
    format!("{name}-package")
}

pub(crate) fn bundle_name(name: &str, version: &str) -> String {
    format!("{}.v{version}", package(name))
}

/// API group of the CRDs of the extension's bundles.
pub(crate) fn group(name: &str) -> String {
    format!("{name}.model.test")
}

/// Kind of a plural of [`DEFINED`].
pub(crate) fn kind(plural: &str) -> &'static str {
    if plural == "widgets" { "Widget" } else { "Gadget" }
}

/// Identity of an object in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: String,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Key {
    pub(crate) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Identity of this object. The names of the model's kinds are unique across groups.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Self::new(text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    }
}

/// Predictable objects of a version with the known part of their content. `env` is the value in the configuration.
/// The names of roles and bindings are known only to the product, so that they are not included.
pub(crate) fn objects(name: &str, version: &Version, env: Option<&str>) -> BTreeMap<Key, Value> {
    let mut objects = BTreeMap::new();
    for config in version.configs {
        objects.insert(
            Key::new("ConfigMap", name, &format!("{name}-{config}")),
            json!({"data": {"version": content_version(version)}}),
        );
    }
    if version.service {
        let service = json!({"spec": {"ports": [{"port": 80}], "selector": {"app": name}}});
        objects.insert(Key::new("Service", name, &format!("{name}-service")), service);
    }
    if version.priority_class {
        objects.insert(Key::new("PriorityClass", "", &format!("{name}-class")), json!({"value": 7}));
    }
    for (plural, fields) in [("widgets", version.widgets), ("gadgets", version.gadgets)] {
        if let Some(fields) = fields {
            let key = Key::new("CustomResourceDefinition", "", &format!("{plural}.{}", group(name)));
            let mut crd = crd(name, plural, fields);
            if plural == "gadgets" {
                serve_twice(&mut crd["spec"]["versions"], version.stored);
            }
            objects.insert(key, crd);
        }
    }
    let mut container = json!({"name": CONTAINER});
    if let Some(value) = env {
        container["env"] = json!([{"name": "MODEL", "value": value}]);
    }
    let mut deployment = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    if let Some(strategy) = version.strategy {
        deployment["spec"]["strategy"] = json!({"type": strategy});
    }
    objects.insert(Key::new("Deployment", name, &format!("{name}-operator")), deployment);
    objects
}

/// Version in the content of the manifests: 1.0.1 has those of 1.0.0.
fn content_version(version: &Version) -> &'static str {
    if version.text == "1.0.1" { "1.0.0" } else { version.text }
}

/// CRD with this number of fields below `spec`.
pub(crate) fn crd(name: &str, plural: &str, fields: usize) -> Value {
    let (group, kind) = (group(name), kind(plural));
    let properties: serde_json::Map<String, Value> =
        (0..fields).map(|field| (format!("field{field}"), json!({"type": "string"}))).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {
            "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}]},
    })
}

/// Adds `v1beta1` to the versions of a CRD, and sets the storage version.
fn serve_twice(versions: &mut Value, stored: &str) {
    let mut beta = versions[0].clone();
    beta["name"] = "v1beta1".into();
    let versions = versions.as_array_mut().unwrap();
    versions.push(beta);
    for version in versions {
        version["storage"] = (version["name"] == stored).into();
    }
}

/// Number of fields of a CRD below `spec`.
pub(crate) fn fields(crd: &Value) -> usize {
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    crd.pointer(properties).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// Files of a bundle image. `conversion` is the `spec.conversion` of Gadgets.
pub(crate) fn bundle(name: &str, version: &Version, conversion: &Value) -> Files {
    let annotations = json!({"annotations": {
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": package(name),
        "operators.operatorframework.io.bundle.channels.v1": "stable",
    }});
    let mut files = Files::from([
        ("metadata/annotations.yaml".to_owned(), annotations.to_string().into_bytes()),
        ("manifests/csv.yaml".to_owned(), csv(name, version).to_string().into_bytes()),
    ]);
    for (number, (key, content)) in objects(name, version, None).into_iter().enumerate() {
        if key.kind == "Deployment" {
            continue;
        }
        let api_version = match key.kind.as_str() {
            "PriorityClass" => "scheduling.k8s.io/v1",
            "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
            _ => "v1",
        };
        let mut manifest =
            json!({"apiVersion": api_version, "kind": key.kind, "metadata": {"name": key.name}});
        manifest.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        if key.name.starts_with("gadgets.") {
            manifest["spec"]["conversion"] = conversion.clone();
        }
        files.insert(format!("manifests/{number}.yaml"), manifest.to_string().into_bytes());
    }
    files
}

fn csv(name: &str, version: &Version) -> Value {
    let defined = [("widgets", version.widgets), ("gadgets", version.gadgets)];
    let owned: Vec<Value> = defined
        .iter()
        .filter(|(_, fields)| fields.is_some())
        .map(|(plural, _)| json!({"name": format!("{plural}.{}", group(name)), "kind": kind(plural), "version": "v1"}))
        .collect();
    let labels = json!({"app": name});
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let account = format!("{name}-operator");
    let strategy = version.strategy.map_or_else(|| json!({}), |strategy| json!({"type": strategy}));
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": bundle_name(name, version.text)},
        "spec": {
            "version": version.text, "displayName": name,
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": owned},
            "install": {"strategy": "deployment", "spec": {
                "permissions": [{"serviceAccountName": account, "rules": rules}],
                "clusterPermissions": [{"serviceAccountName": account, "rules": rules}],
                "deployments": [{"name": account, "spec": {
                    "replicas": 1, "strategy": strategy, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {
                        "serviceAccountName": account,
                        "containers": [{"name": CONTAINER, "image": format!("model.test/operator:{}", content_version(version))}],
                    }},
                }}],
            }},
        },
    })
}

/// Channel entry: indexes into [`VERSIONS`] of the version, and of those that it replaces and skips.
pub(crate) struct Entry {
    pub(crate) version: usize,
    pub(crate) replaces: Option<usize>,
    pub(crate) skips: &'static [usize],
}

/// Entries of channel `stable`. Each version replaces the previous one.
const STABLE: [Entry; 4] = [
    Entry { version: 0, replaces: None, skips: &[] },
    Entry { version: 1, replaces: Some(0), skips: &[] },
    Entry { version: 2, replaces: Some(1), skips: &[] },
    Entry { version: 3, replaces: Some(2), skips: &[] },
];
/// Entries of channel `next`.
const NEXT: [Entry; 2] =
    [Entry { version: 2, replaces: None, skips: &[] }, Entry { version: 4, replaces: Some(2), skips: &[3] }];

/// Channels of a catalog that offers these versions, each with its entries.
pub(crate) fn channels(offered: &BTreeSet<usize>) -> Vec<(&'static str, Vec<&'static Entry>)> {
    let of = |entries: &'static [Entry]| {
        entries.iter().filter(|entry| offered.contains(&entry.version)).collect::<Vec<_>>()
    };
    [("stable", of(&STABLE)), ("next", of(&NEXT))]
        .into_iter()
        .filter(|(_, entries)| !entries.is_empty())
        .collect()
}

/// Files of a catalog image that offers these versions. `image` returns the image reference of a version's bundle.
pub(crate) fn catalog(name: &str, offered: &BTreeSet<usize>, image: impl Fn(&str) -> String) -> Files {
    let package = package(name);
    let channels = channels(offered);
    let default = channels.first().map_or("stable", |(channel, _)| channel);
    let mut blobs = vec![json!({"schema": "olm.package", "name": package, "defaultChannel": default})];
    for (channel, entries) in channels {
        let entries: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let of = |version: usize| bundle_name(name, VERSIONS[version].text);
                let mut made = json!({"name": of(entry.version)});
                if let Some(replaced) = entry.replaces {
                    made["replaces"] = of(replaced).into();
                }
                if !entry.skips.is_empty() {
                    made["skips"] = entry.skips.iter().map(|skipped| of(*skipped)).collect();
                }
                made
            })
            .collect();
        blobs.push(json!({"schema": "olm.channel", "package": package, "name": channel, "entries": entries}));
    }
    for version in offered {
        let text = VERSIONS[*version].text;
        blobs.push(json!({
            "schema": "olm.bundle", "package": package, "name": bundle_name(name, text), "image": image(text),
            "properties": [{"type": "olm.package", "value": {"packageName": package, "version": text}}],
        }));
    }
    let text = blobs.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    Files::from([("catalog.json".to_owned(), text.into_bytes())])
}
