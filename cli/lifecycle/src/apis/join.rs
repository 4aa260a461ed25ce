//! Operators, their APIs and the user's permissions in one namespace, from what the user may read. Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::source::{ApiKind, OwnedKind};
use serde::Serialize;
use serde_json::Value;

use super::rights::{Allowed, Rules};

/// Permission to list extensions.
pub(super) const LIST_EXTENSIONS: &str = "list clusterextensions.olm.operatorframework.io";
/// Permission to list CRDs.
pub(super) const LIST_CRDS: &str = "list customresourcedefinitions.apiextensions.k8s.io";
/// Permission to list the registrations of aggregated APIs.
pub(super) const LIST_API_SERVICES: &str = "list apiservices.apiregistration.k8s.io";
/// Permission to list Deployments.
pub(super) const LIST_DEPLOYMENTS: &str = "list deployments.apps";

/// What the user may read.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) namespace: String,
    /// `None` without the permission to list them.
    pub(super) extensions: Option<Vec<Extension>>,
    /// Kinds of extensions, of CRDs and APIServices that the user may read.
    pub(super) owned: Vec<OwnedKind>,
    /// APIs from discovery. `None` if all CRDs could be listed.
    pub(super) discovered: Option<Vec<ApiKind>>,
    /// Set with the permission to list APIServices.
    pub(super) lists_api_services: bool,
    pub(super) deployments: Deployments,
    /// Permissions in the namespace.
    pub(super) rules: Rules,
    /// Reason for which the rules are incomplete.
    pub(super) incomplete: Option<String>,
    /// Permissions on cluster-scoped resources, by group and resource, where the rules of the namespace claim any.
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
    pub(super) configured: Configured,
}

/// Watched namespaces in the configuration of an extension.
#[derive(Debug, Default)]
pub(super) enum Configured {
    /// No setting: all namespaces, because a bundle with another default cannot be installed without one.
    #[default]
    Default,
    Named(Vec<String>),
    ByLabel,
}

/// Readable Deployments of extensions.
#[derive(Debug, Default)]
pub(super) struct Deployments {
    /// Annotated target namespaces by extension.
    pub(super) targets: BTreeMap<String, Option<Vec<String>>>,
    pub(super) extent: Extent,
}

/// Namespaces in which the user may list Deployments.
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
    /// Permissions that the user lacks.
    pub(super) missing: Vec<Missing>,
    /// Reason for which the user may have more permissions than shown.
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
    /// The extension has no Deployment.
    NoOperator,
}

/// API with the permissions of the user.
#[derive(Debug, Serialize)]
pub(super) struct Access {
    #[serde(flatten)]
    pub(super) api: ApiKind,
    pub(super) allowed: Allowed,
}

/// Permission that the user lacks, and what the output lacks without it.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Missing {
    pub(super) permission: &'static str,
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
        let named = one.or_else(|| list("/spec/config/inline/watchNamespaces"));
        Self {
            name,
            package: text("/spec/source/catalog/packageName").unwrap_or_default(),
            version: text("/status/install/bundle/version"),
            reported: list("/status/targetNamespaces").filter(|all| !all.is_empty()),
            configured: match named {
                _ if is_selected => Configured::ByLabel,
                Some(named) => Configured::Named(named),
                None => Configured::Default,
            },
        }
    }
}

/// Joins the facts.
pub(super) fn join(facts: &Facts) -> NamespaceApis {
    let mut apis: BTreeMap<&str, Vec<Access>> = BTreeMap::new();
    for OwnedKind { owner, api } in &facts.owned {
        apis.entry(owner).or_default().push(facts.access(api));
    }
    let mut names: BTreeSet<&str> = apis.keys().copied().collect();
    names.extend(facts.extensions.iter().flatten().map(|extension| extension.name.as_str()));
    if facts.extensions.is_none() {
        names.extend(facts.deployments.targets.keys().map(String::as_str));
    }
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
        facts.owned.iter().map(|one| (&one.api.group, &one.api.resource)).collect();
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
    fn access(&self, api: &ApiKind) -> Access {
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
        let reported = extension.and_then(|extension| extension.reported.clone());
        let deployment = self.deployments.targets.get(name);
        let annotated = deployment.cloned().flatten();
        let installed = extension.filter(|extension| extension.version.is_some());
        let configured = match installed.map(|extension| &extension.configured) {
            Some(Configured::Named(named)) => Some(named.clone()),
            // Of an extension without Deployment, the default would be wrong.
            Some(Configured::Default) if deployment.is_some() => Some(vec![String::new()]),
            _ => None,
        };
        let sources = [
            (reported, "status.targetNamespaces"),
            (annotated, "annotation olm.targetNamespaces of the Deployment"),
            (configured, "spec.config.inline"),
        ];
        let found = sources.into_iter().find_map(|(targets, source)| Some((targets?, source)));
        let Some((targets, source)) = found else {
            let watched = match extension {
                Some(extension) if extension.version.is_none() => Watched::NotInstalled,
                Some(_) if deployment.is_none() && self.deployments.extent == Extent::All => {
                    Watched::NoOperator
                }
                _ => Watched::Unknown,
            };
            return Watch { watched, target_namespaces: None, source: None };
        };
        let is_watched = targets.iter().any(|one| one.is_empty() || *one == self.namespace);
        Watch {
            watched: if is_watched { Watched::Yes } else { Watched::No },
            target_namespaces: Some(targets),
            source: Some(source),
        }
    }

    /// Only permissions that would add to the output.
    fn missing(&self, operators: &[Operator]) -> Vec<Missing> {
        let mut missing = Vec::new();
        if self.extensions.is_none() {
            let effect =
                "installed operators, their versions and the namespaces that they watch may be missing";
            missing.push(Missing { permission: LIST_EXTENSIONS, effect: effect.to_owned() });
        }
        if self.discovered.is_some() {
            let effect =
                "the operator of an API may be unknown, and the list may contain APIs without an operator";
            missing.push(Missing { permission: LIST_CRDS, effect: effect.to_owned() });
        }
        if !self.lists_api_services {
            let effect = "kinds of aggregated APIs, or their operators, may be missing";
            missing.push(Missing { permission: LIST_API_SERVICES, effect: effect.to_owned() });
        }
        let unknown = operators.iter().filter(|one| one.watch.watched == Watched::Unknown);
        let unknown: Vec<&str> = unknown.map(|operator| operator.name.as_str()).collect();
        if self.deployments.extent != Extent::All && !unknown.is_empty() {
            let effect = format!("whether the namespace is watched is unknown for {}", unknown.join(", "));
            missing.push(Missing { permission: LIST_DEPLOYMENTS, effect });
        }
        missing
    }
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
