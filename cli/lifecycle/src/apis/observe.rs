//! Reads of the command. A permission that the user lacks is not an error.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_cli_core::access_level::ANY;
use olm_cli_core::access_review::is_allowed;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ApiKind, ClusterConnection, Crd, OwnedKind, of_extensions, owner};
use olm_runtime::cluster::{describe, list_all, within_deadline};
use olm_version::quote;
use serde::de::DeserializeOwned;

use super::join::{Deployments, Extension, Extent, Facts};
use super::rights::{Allowed, Names, Rules, VERBS};

const CRDS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// Page size of list calls.
const PAGE: u32 = 50;
const CONCURRENT_CALLS: usize = 8;
/// Domains of the APIs of Kubernetes and of OLM, which belong to no operator.
const OWN_DOMAINS: [&str; 2] = ["k8s.io", "olm.operatorframework.io"];

/// Calls to the API server as the user.
struct Reader<'a> {
    cluster: &'a ClusterConnection,
    client: &'a Client,
    namespace: &'a str,
    session: &'a Session,
}

/// Reads everything that the user may read.
///
/// # Errors
/// The namespace does not exist, OLM is not installed, or the API server does not answer.
pub(super) async fn facts(
    cluster: &ClusterConnection,
    namespace: &str,
    session: &Session,
) -> Result<Facts, CliError> {
    let _step = session.progress.step("reading operators and permissions");
    let reader = Reader { cluster, client: cluster.client(), namespace, session };
    reader.check_namespace().await?;
    let (rules, incomplete) = reader.rules().await?;
    let extensions = reader.extensions().await?;
    let deployments = reader.deployments().await?;
    let (mut owned, discovered) = match cluster.owned_crds(None, session).await? {
        Ok(owned) => (owned, None),
        Err(_) => {
            let mut discovered = cluster.discovered(session).await?;
            discovered.retain(|api| is_of_operators(&api.group));
            (reader.named_crds(&rules, &discovered).await?, Some(discovered))
        }
    };
    let services = cluster.owned_api_services(None, session).await?;
    let lists_api_services = services.is_ok();
    owned.extend(services.unwrap_or_default());
    let all = owned.iter().map(|one| &one.api).chain(discovered.iter().flatten());
    let cluster_scoped = reader.cluster_scoped(&rules, all).await?;
    let namespace = namespace.to_owned();
    Ok(Facts {
        namespace,
        extensions,
        owned,
        discovered,
        lists_api_services,
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

    /// A misspelled namespace would look like one without permissions.
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
        let parameters = PostParams::default();
        let review = api.create(&parameters, &review);
        let review = self.cluster.call("your permissions", review, self.session).await?;
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
        let page = of_extensions(None);
        let all: Api<Deployment> = Api::all(self.client.clone());
        let one: Api<Deployment> = Api::namespaced(self.client.clone(), self.namespace);
        for (api, extent) in [(all, Extent::All), (one, Extent::Namespace)] {
            if let Some(found) = self.listed("Deployments", &api, page.clone()).await? {
                let found = found.iter().filter_map(|found| Some((installed_for(found)?, targets(found))));
                return Ok(Deployments { targets: found.collect(), extent });
            }
        }
        Ok(Deployments::default())
    }

    /// Kinds of CRDs of extensions that the user may get by name.
    async fn named_crds(&self, rules: &Rules, discovered: &[ApiKind]) -> Result<Vec<OwnedKind>, CliError> {
        let (group, resource) = CRDS;
        let names = discovered.iter().map(ApiKind::name);
        let names: Vec<String> = match rules.names(group, resource, "get") {
            // The rules of a RoleBinding do not apply to CRDs.
            Names::All if !self.may(group, resource, None, "get").await? => Vec::new(),
            Names::All => names.collect(),
            Names::Only(readable) => names.filter(|name| readable.contains(name)).collect(),
        };
        let api: &Api<Crd> = &self.cluster.crds();
        let get = |name: String| async move {
            self.permitted("CustomResourceDefinitions", within_deadline(api.get_opt(&name))).await
        };
        let found = stream::iter(names.into_iter().map(get)).buffered(CONCURRENT_CALLS);
        let found: Vec<_> = found.try_collect().await?;
        Ok(found.into_iter().flatten().flatten().filter_map(OwnedKind::of_crd).collect())
    }

    /// Permissions on cluster-scoped resources. The rules of a namespace include those of its RoleBindings, which do not
    /// apply to them, so that each claimed verb is checked.
    async fn cluster_scoped(
        &self,
        rules: &Rules,
        apis: impl Iterator<Item = &ApiKind>,
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
        let permission = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            name: name.cloned(),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let call = within_deadline(is_allowed(self.client, permission));
        Ok(self.permitted("your permissions", call).await?.unwrap_or_default())
    }
}

/// Extension that installed the Deployment. Users may label their own Deployments, so a revision must control it.
fn installed_for(deployment: &Deployment) -> Option<String> {
    let mut owners = deployment.owner_references().iter();
    let is_revision = |one: &OwnerReference| {
        one.controller == Some(true)
            && one.kind == ClusterObjectSet::kind(&())
            && one.api_version == ClusterObjectSet::api_version(&())
    };
    owner(deployment).filter(|_| owners.any(is_revision))
}

/// Namespaces that the pods of a Deployment watch.
fn targets(deployment: &Deployment) -> Option<Vec<String>> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    let targets = template.annotations.as_ref()?.get(annotations::TARGET_NAMESPACES)?;
    Some(targets.split(',').map(str::to_owned).collect())
}

/// Reports whether an operator may define the group: it has a domain, which is not that of Kubernetes or OLM.
fn is_of_operators(group: &str) -> bool {
    let is_below =
        |domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    group.contains('.') && !OWN_DOMAINS.into_iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_kubernetes_and_olm_are_left_out() {
        for (group, expected) in [
            ("apps", false),
            ("rbac.authorization.k8s.io", false),
            ("metrics.k8s.io", false),
            ("olm.operatorframework.io", false),
            ("ext.olm.operatorframework.io", false),
            ("example.com", true),
            ("my-k8s.io", true),
        ] {
            assert_eq!(is_of_operators(group), expected, "{group}");
        }
    }
}
