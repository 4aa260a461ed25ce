//! Operators, their APIs and the user's rights in one namespace, from what the user may read. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::rights::{Allowed, Rules};

/// Right to list extensions.
pub(super) const LIST_EXTENSIONS: &str = "list clusterextensions.olm.operatorframework.io";
/// Right to list CRDs.
pub(super) const LIST_DEFINITIONS: &str = "list customresourcedefinitions.apiextensions.k8s.io";
/// Right to list Deployments.
pub(super) const LIST_DEPLOYMENTS: &str = "list deployments.apps";

/// What the user may read.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) namespace: String,
    /// `None` without the right to list them.
    pub(super) extensions: Option<Vec<Extension>>,
    /// CRDs of extensions that the user may read.
    pub(super) definitions: Vec<Definition>,
    /// APIs from discovery. `None` if all CRDs could be listed.
    pub(super) discovered: Option<Vec<Api>>,
    pub(super) deployments: Deployments,
    /// Rights in the namespace.
    pub(super) rules: Rules,
    /// Reason for which the rules are incomplete.
    pub(super) incomplete: Option<String>,
    /// Rights on cluster-scoped resources, by group and resource, where the rules of the namespace claim any.
    pub(super) cluster_scoped: BTreeMap<(String, String), Allowed>,
}

/// Installed or requested extension.
#[derive(Debug, Default)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) package: String,
    /// Version of the installed bundle.
    pub(super) version: Option<String>,
    /// `status.targetNamespaces`, if the controller writes it.
    pub(super) reported: Option<Vec<String>>,
    /// Watched namespaces of the configuration, `None` if they cannot be told from it.
    pub(super) configured: Option<Vec<String>>,
}

/// One kind of a CRD.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Api {
    pub(super) kind: String,
    pub(super) group: String,
    pub(super) resource: String,
    /// Served versions.
    pub(super) versions: Vec<String>,
    /// `Namespaced` or `Cluster`.
    pub(super) scope: String,
}

/// CRD of an extension.
#[derive(Debug)]
pub(super) struct Definition {
    /// Name of the extension.
    pub(super) owner: String,
    pub(super) api: Api,
}

/// Readable Deployments of extensions.
#[derive(Debug, Default)]
pub(super) struct Deployments {
    /// Watched namespaces by extension.
    pub(super) targets: BTreeMap<String, Vec<String>>,
    pub(super) extent: Extent,
}

/// Namespaces whose Deployments the user may list.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Extent {
    All,
    /// Only the namespace of the command.
    Namespace,
    #[default]
    None,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NamespaceApis {
    pub(super) namespace: String,
    pub(super) operators: Vec<Operator>,
    /// APIs that may belong to an operator that is not known.
    pub(super) other_apis: Vec<Access>,
    /// Rights that the user lacks.
    pub(super) missing: Vec<Missing>,
    /// Reason for which the user may have more rights than shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
}

/// Operator with its APIs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operator {
    /// Name of the ClusterExtension.
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) package: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    pub(super) watch: Watch,
    pub(super) apis: Vec<Access>,
}

/// Answer to whether the operator watches the namespace.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watch {
    pub(super) watched: Watched,
    /// Namespaces that the operator watches. The empty string stands for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_namespaces: Option<Vec<String>>,
    /// Field that names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Watched {
    Yes,
    No,
    Unknown,
    NotInstalled,
}

/// API with the rights of the user.
#[derive(Debug, Serialize)]
pub(super) struct Access {
    #[serde(flatten)]
    pub(super) api: Api,
    pub(super) allowed: Allowed,
}

/// Right that the user lacks, and what the output lacks without it.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Missing {
    pub(super) right: &'static str,
    pub(super) effect: String,
}

impl Extension {
    /// Reads a ClusterExtension. The status is read as it is, because an older CRD lacks `targetNamespaces`.
    pub(super) fn read(name: String, object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let list = |path: &str| {
            let items = object.pointer(path)?.as_array()?;
            Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
        };
        let inline = object.pointer("/spec/config/inline");
        let is_selected = inline.is_some_and(|inline| inline.get("watchNamespaceSelector").is_some());
        let one = text("/spec/config/inline/watchNamespace").map(|one| vec![one]);
        // A bundle whose default is not all namespaces cannot be installed without one of the fields.
        let configured = one.or_else(|| list("/spec/config/inline/watchNamespaces"));
        Self {
            name,
            package: text("/spec/source/catalog/packageName").unwrap_or_default(),
            version: text("/status/install/bundle/version"),
            reported: list("/status/targetNamespaces").filter(|all| !all.is_empty()),
            configured: if is_selected { None } else { configured.or_else(|| Some(vec![String::new()])) },
        }
    }
}

/// Joins the facts.
pub(super) fn join(facts: &Facts) -> NamespaceApis {
    let mut apis: BTreeMap<&str, Vec<Access>> = BTreeMap::new();
    for definition in &facts.definitions {
        apis.entry(&definition.owner).or_default().push(facts.access(&definition.api));
    }
    let mut names: BTreeSet<&str> = apis.keys().copied().collect();
    names.extend(facts.extensions.iter().flatten().map(|extension| extension.name.as_str()));
    names.extend(facts.deployments.targets.keys().map(String::as_str));
    let operators: Vec<Operator> = names
        .into_iter()
        .map(|name| {
            let extension = facts.extensions.iter().flatten().find(|one| one.name == name);
            Operator {
                name: name.to_owned(),
                package: extension.map(|extension| extension.package.clone()),
                version: extension.and_then(|extension| extension.version.clone()),
                watch: facts.watch(name, extension),
                apis: sorted(apis.remove(name).unwrap_or_default()),
            }
        })
        .collect();
    let of_operators: BTreeSet<_> =
        facts.definitions.iter().map(|one| (&one.api.group, &one.api.resource)).collect();
    let other = facts.discovered.iter().flatten();
    let other = other.filter(|api| !of_operators.contains(&(&api.group, &api.resource)));
    NamespaceApis {
        namespace: facts.namespace.clone(),
        missing: facts.missing(&operators),
        other_apis: sorted(other.map(|api| facts.access(api)).collect()),
        operators,
        incomplete: facts.incomplete.clone(),
    }
}

fn sorted(mut apis: Vec<Access>) -> Vec<Access> {
    apis.sort_by(|a, b| (&a.api.kind, &a.api.group).cmp(&(&b.api.kind, &b.api.group)));
    apis
}

impl Facts {
    fn access(&self, api: &Api) -> Access {
        let allowed = match api.scope.as_str() {
            "Cluster" => {
                let key = (api.group.clone(), api.resource.clone());
                self.cluster_scoped.get(&key).cloned().unwrap_or_default()
            }
            _ => self.rules.on(&api.group, &api.resource),
        };
        Access { api: api.clone(), allowed }
    }

    /// The status is what the controller applied, the pods' annotation what the operator reads, and the configuration
    /// what was asked for.
    fn watch(&self, name: &str, extension: Option<&Extension>) -> Watch {
        let reported = extension.and_then(|extension| extension.reported.as_ref());
        let annotated = self.deployments.targets.get(name);
        let installed = extension.filter(|extension| extension.version.is_some());
        let configured = installed.and_then(|extension| extension.configured.as_ref());
        let sources = [
            (reported, "status.targetNamespaces"),
            (annotated, "annotation olm.targetNamespaces of the Deployment"),
            (configured, "spec.config.inline"),
        ];
        let found = sources.into_iter().find_map(|(targets, source)| Some((targets?, source)));
        let Some((targets, source)) = found else {
            let is_absent = extension.is_some_and(|extension| extension.version.is_none());
            let watched = if is_absent { Watched::NotInstalled } else { Watched::Unknown };
            return Watch { watched, target_namespaces: None, source: None };
        };
        let is_watched = targets.iter().any(|one| one.is_empty() || *one == self.namespace);
        Watch {
            watched: if is_watched { Watched::Yes } else { Watched::No },
            target_namespaces: Some(targets.clone()),
            source: Some(source),
        }
    }

    /// Only rights that would add to the output.
    fn missing(&self, operators: &[Operator]) -> Vec<Missing> {
        let mut missing = Vec::new();
        if self.extensions.is_none() {
            let effect =
                "installed operators, their versions and the namespaces that they watch may be missing";
            missing.push(Missing { right: LIST_EXTENSIONS, effect: effect.to_owned() });
        }
        if self.discovered.is_some() {
            let effect = "the operator of an API may be unknown, and the list has APIs without operator";
            missing.push(Missing { right: LIST_DEFINITIONS, effect: effect.to_owned() });
        }
        let unknown = operators.iter().filter(|one| one.watch.watched == Watched::Unknown);
        let unknown: Vec<&str> = unknown.map(|operator| operator.name.as_str()).collect();
        if self.deployments.extent != Extent::All && !unknown.is_empty() {
            let effect = format!("whether the namespace is watched is unknown for {}", unknown.join(", "));
            missing.push(Missing { right: LIST_DEPLOYMENTS, effect });
        }
        missing
    }
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
