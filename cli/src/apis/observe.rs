//! Reads of the command. A right that the user lacks is no error.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::discovery::v2::APIGroupDiscoveryList;
use kube::core::{GroupVersionKind, NotUsed, Object};
use kube::{Client, ResourceExt};
use olm_api::{ClusterExtension, annotations, labels};
use olm_runtime::cluster::{describe, list_all, within_deadline};
use olm_version::quote;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::join::{self, Definition, Deployments, Extension, Extent, Facts};
use super::rights::{ANY, Allowed, Names, Rules, VERBS};
use crate::error::CliError;
use crate::session::Session;
use crate::source::Cluster;

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// Page size of list calls. A CRD may have a megabyte.
const PAGE: u32 = 50;
const CONCURRENT_CALLS: usize = 8;
/// Domains of the APIs of Kubernetes and of OLM, which are no operator's.
const OWN_DOMAINS: [&str; 2] = ["k8s.io", "olm.operatorframework.io"];

/// CustomResourceDefinition, reduced to the fields used here.
type RawDefinition = Object<DefinitionSpec, NotUsed>;

#[derive(Clone, Debug, Deserialize)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
    scope: String,
    versions: Vec<DefinitionVersion>,
}

#[derive(Clone, Debug, Deserialize)]
struct DefinitionNames {
    kind: String,
    plural: String,
}

#[derive(Clone, Debug, Deserialize)]
struct DefinitionVersion {
    name: String,
    served: bool,
}

/// Calls to the API server as the user.
struct Reader<'a> {
    client: &'a Client,
    namespace: &'a str,
    session: &'a Session,
}

/// Reads everything that the user may read.
///
/// # Errors
/// The namespace does not exist, OLM is not installed, or the API server does not answer.
pub(super) async fn facts(cluster: &Cluster, namespace: &str, session: &Session) -> Result<Facts, CliError> {
    let _step = session.progress.step("reading operators and rights");
    let reader = Reader { client: cluster.client(), namespace, session };
    reader.check_namespace().await?;
    let (rules, incomplete) = reader.rules().await?;
    let extensions = reader.extensions().await?;
    let deployments = reader.deployments().await?;
    let (definitions, discovered) = match reader.definitions().await? {
        Some(definitions) => (definitions, None),
        None => {
            let discovered = reader.discovered().await?;
            (reader.named_definitions(&rules, &discovered).await?, Some(discovered))
        }
    };
    let all = definitions.iter().map(|definition| &definition.api).chain(discovered.iter().flatten());
    let cluster_scoped = reader.cluster_scoped(&rules, all).await?;
    let namespace = namespace.to_owned();
    Ok(Facts {
        namespace,
        extensions,
        definitions,
        discovered,
        deployments,
        rules,
        incomplete,
        cluster_scoped,
    })
}

impl Reader<'_> {
    /// Result of a call, `None` if the user may not make it.
    async fn permitted<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Option<T>, CliError> {
        match self.session.interruptible(call).await? {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(CliError::operational(format!(
                "OLM v1 is not installed in this cluster: it has no {what}"
            ))),
            Err(error) => Err(CliError::operational(format!("cannot read {what}: {}", describe(&error)))),
        }
    }

    async fn listed<K>(&self, what: &str, api: &Api<K>, page: ListParams) -> Result<Option<Vec<K>>, CliError>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let list = |page: ListParams| async move { within_deadline(api.list(&page)).await };
        self.permitted(what, list_all(page.limit(PAGE), list)).await
    }

    /// A misspelled namespace would look like one without rights.
    async fn check_namespace(&self) -> Result<(), CliError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = self.permitted("the namespace", within_deadline(api.get_metadata_opt(self.namespace)));
        match found.await? {
            Some(None) => {
                Err(CliError::no_candidate(format!("there is no namespace {}", quote(self.namespace))))
            }
            _ => Ok(()),
        }
    }

    async fn rules(&self) -> Result<(Rules, Option<String>), CliError> {
        let api: Api<SelfSubjectRulesReview> = Api::all(self.client.clone());
        let spec = SelfSubjectRulesReviewSpec { namespace: Some(self.namespace.to_owned()) };
        let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
        let review = within_deadline(api.create(&PostParams::default(), &review)).await;
        let review = review.map_err(|error| {
            CliError::operational(format!("cannot read your rights: {}", describe(&error)))
        })?;
        let status = review.status.unwrap_or_default();
        let incomplete = status.incomplete.then(|| {
            let unknown = || "an authorizer of the cluster cannot list them".to_owned();
            status.evaluation_error.filter(|error| !error.is_empty()).unwrap_or_else(unknown)
        });
        Ok((Rules(status.resource_rules), incomplete))
    }

    async fn extensions(&self) -> Result<Option<Vec<Extension>>, CliError> {
        let resource = ApiResource::erase::<ClusterExtension>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = self.listed("ClusterExtensions", &api, ListParams::default()).await?;
        let read = |object: DynamicObject| Extension::read(object.name_any(), &object.data);
        Ok(found.map(|found| found.into_iter().map(read).collect()))
    }

    /// Deployments of extensions: of the cluster, else of the namespace.
    async fn deployments(&self) -> Result<Deployments, CliError> {
        let page = ListParams::default().labels(&of_extensions());
        let all: Api<Deployment> = Api::all(self.client.clone());
        let one: Api<Deployment> = Api::namespaced(self.client.clone(), self.namespace);
        for (api, extent) in [(all, Extent::All), (one, Extent::Namespace)] {
            if let Some(found) = self.listed("Deployments", &api, page.clone()).await? {
                return Ok(Deployments { targets: found.iter().filter_map(targets).collect(), extent });
            }
        }
        Ok(Deployments::default())
    }

    fn definition_api(&self) -> Api<RawDefinition> {
        let kind = GroupVersionKind::gvk(DEFINITIONS.0, "v1", "CustomResourceDefinition");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk_with_plural(&kind, DEFINITIONS.1))
    }

    /// CRDs of all extensions, `None` without the right to list them.
    async fn definitions(&self) -> Result<Option<Vec<Definition>>, CliError> {
        let page = ListParams::default().labels(&of_extensions());
        let found = self.listed("CustomResourceDefinitions", &self.definition_api(), page).await?;
        Ok(found.map(|found| found.into_iter().filter_map(definition).collect()))
    }

    /// APIs that the API server announces, except for those of Kubernetes and OLM.
    async fn discovered(&self) -> Result<Vec<join::Api>, CliError> {
        let call = within_deadline(self.client.list_api_groups_aggregated());
        let groups = self.permitted("the APIs of the cluster", call).await?;
        Ok(groups.map(apis).unwrap_or_default())
    }

    /// CRDs of extensions that the user may get by name.
    async fn named_definitions(
        &self,
        rules: &Rules,
        discovered: &[join::Api],
    ) -> Result<Vec<Definition>, CliError> {
        let names: Vec<String> =
            discovered.iter().map(|api| format!("{}.{}", api.resource, api.group)).collect();
        let names = match rules.names(DEFINITIONS.0, DEFINITIONS.1, "get") {
            Names::All => names,
            Names::Only(readable) => names.into_iter().filter(|name| readable.contains(name)).collect(),
        };
        let api = &self.definition_api();
        let get = |name: String| async move {
            self.permitted("CustomResourceDefinitions", within_deadline(api.get_opt(&name))).await
        };
        let found = stream::iter(names.into_iter().map(get)).buffered(CONCURRENT_CALLS);
        let found: Vec<_> = found.try_collect().await?;
        Ok(found.into_iter().flatten().flatten().filter_map(definition).collect())
    }

    /// Rights on cluster-scoped resources. The rules of a namespace include those of its RoleBindings, which do not
    /// apply to them, so that each claimed verb is checked.
    async fn cluster_scoped(
        &self,
        rules: &Rules,
        apis: impl Iterator<Item = &join::Api>,
    ) -> Result<BTreeMap<(String, String), Allowed>, CliError> {
        let claimed: BTreeMap<(String, String), Allowed> = apis
            .filter(|api| api.scope == "Cluster")
            .map(|api| ((api.group.clone(), api.resource.clone()), rules.on(&api.group, &api.resource)))
            .filter(|(_, claimed)| !claimed.is_none())
            .collect();
        let confirm = |(key, claimed): ((String, String), Allowed)| async move {
            let allowed = self.confirmed(&key.0, &key.1, &claimed).await?;
            Ok::<_, CliError>((key, allowed))
        };
        stream::iter(claimed.into_iter().map(confirm)).buffered(CONCURRENT_CALLS).try_collect().await
    }

    async fn confirmed(&self, group: &str, resource: &str, claimed: &Allowed) -> Result<Allowed, CliError> {
        let mut allowed = Allowed::default();
        let all = claimed.verbs.iter().map(|verb| (None, verb));
        let named =
            claimed.named.iter().flat_map(|(name, verbs)| verbs.iter().map(move |verb| (Some(name), verb)));
        for (name, verb) in all.chain(named) {
            let verb = verb.as_str();
            let is_any = verb == ANY && self.may(group, resource, name, ANY).await?;
            let verbs = if is_any || verb != ANY { vec![verb] } else { VERBS.to_vec() };
            for verb in verbs {
                if is_any || self.may(group, resource, name, verb).await? {
                    let verbs = match name {
                        Some(name) => allowed.named.entry(name.clone()).or_default(),
                        None => &mut allowed.verbs,
                    };
                    verbs.insert(verb.to_owned());
                }
            }
        }
        Ok(allowed.tidied())
    }

    async fn may(
        &self,
        group: &str,
        resource: &str,
        name: Option<&String>,
        verb: &str,
    ) -> Result<bool, CliError> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            name: name.cloned(),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let call = within_deadline(async { api.create(&PostParams::default(), &review).await });
        let review = self.permitted("your rights", call).await?;
        Ok(review.and_then(|review| review.status).is_some_and(|status| status.allowed))
    }
}

/// Selector of objects of extensions.
fn of_extensions() -> String {
    format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION)
}

fn owner(object: &impl ResourceExt) -> Option<String> {
    let is_owned =
        object.labels().get(labels::OWNER_KIND).is_some_and(|kind| kind == labels::OWNER_KIND_EXTENSION);
    object.labels().get(labels::OWNER_NAME).filter(|_| is_owned).cloned()
}

/// Extension of a Deployment, and the namespaces that its pods watch.
fn targets(deployment: &Deployment) -> Option<(String, Vec<String>)> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    let targets = template.annotations.as_ref()?.get(annotations::TARGET_NAMESPACES)?;
    Some((owner(deployment)?, targets.split(',').map(str::to_owned).collect()))
}

fn definition(raw: RawDefinition) -> Option<Definition> {
    let owner = owner(&raw)?;
    let DefinitionSpec { group, names, scope, versions } = raw.spec;
    let versions = versions.into_iter().filter(|version| version.served).map(|version| version.name);
    let api =
        join::Api { kind: names.kind, group, resource: names.plural, versions: versions.collect(), scope };
    Some(Definition { owner, api })
}

/// Kinds of operators among all kinds, each with all of its versions.
fn apis(list: APIGroupDiscoveryList) -> Vec<join::Api> {
    let mut apis: BTreeMap<(String, String), join::Api> = BTreeMap::new();
    for found in list.items {
        let group = found.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        if !is_of_operators(&group) {
            continue;
        }
        for version in found.versions {
            let number = version.version.unwrap_or_default();
            for one in version.resources {
                let (Some(resource), Some(kind)) =
                    (one.resource, one.response_kind.and_then(|kind| kind.kind))
                else {
                    continue;
                };
                let api = apis.entry((group.clone(), resource.clone())).or_insert_with(|| join::Api {
                    kind,
                    group: group.clone(),
                    resource,
                    versions: Vec::new(),
                    scope: one.scope.unwrap_or_default(),
                });
                api.versions.push(number.clone());
            }
        }
    }
    apis.into_values().collect()
}

/// Reports whether an operator may define the group: it has a domain, which is not that of Kubernetes or OLM.
fn is_of_operators(group: &str) -> bool {
    let is_below =
        |domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    group.contains('.') && !OWN_DOMAINS.into_iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn discovered_kinds_of_kubernetes_and_olm_are_left_out() {
        let group = |name: &str, versions: &[&str]| {
            let resource = json!({"resource": "lamps", "scope": "Namespaced", "verbs": ["get"],
                "responseKind": {"group": name, "version": "", "kind": "Lamp"}});
            let version = |version: &&str| json!({"version": version, "resources": [resource]});
            json!({"metadata": {"name": name}, "versions": versions.iter().map(version).collect::<Vec<_>>()})
        };
        let list = json!({"items": [
            group("apps", &["v1"]), group("rbac.authorization.k8s.io", &["v1"]), group("metrics.k8s.io", &["v1"]),
            group("olm.operatorframework.io", &["v1"]), group("ext.olm.operatorframework.io", &["v1alpha1"]),
            group("example.com", &["v1", "v1beta1"]), group("my-k8s.io", &["v1"]),
        ]});
        let found = apis(serde_json::from_value(list).unwrap());
        let found: Vec<_> = found.iter().map(|api| (api.group.as_str(), api.versions.join(","))).collect();
        assert_eq!(found, [("example.com", "v1,v1beta1".to_owned()), ("my-k8s.io", "v1".to_owned())]);
    }
}
