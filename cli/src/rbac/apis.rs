//! APIs of an extension, and lists that the caller may not be allowed to read.

use kube::api::{Api, ApiResource, ListParams};
use kube::core::{GroupVersionKind, NotUsed, Object};
use olm_api::labels;
use olm_runtime::cluster::{describe, list_all, within_deadline};
use olm_version::quote;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::CliError;
use crate::session::Session;
use crate::source::Cluster;
use crate::status::observe;

/// Page size. A CustomResourceDefinition may have a megabyte.
const PAGE: u32 = 50;

/// API of an extension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProvidedApi {
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) is_namespaced: bool,
}

impl ProvidedApi {
    /// Name of the CustomResourceDefinition.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }

    /// API with this name, which is assumed to be namespaced.
    fn named(name: &str) -> Result<Self, CliError> {
        match name.split_once('.') {
            Some((resource, group)) if !resource.is_empty() && group.contains('.') => {
                Ok(Self { group: group.to_owned(), resource: resource.to_owned(), is_namespaced: true })
            }
            _ => Err(CliError::usage(format!(
                "--api {}: expected the name of a CustomResourceDefinition, such as lamps.example.com",
                quote(name)
            ))),
        }
    }
}

/// CustomResourceDefinition, reduced to the fields used here.
type Definition = Object<DefinitionSpec, NotUsed>;

#[derive(Clone, Debug, Deserialize)]
struct DefinitionSpec {
    group: String,
    names: Names,
    scope: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Names {
    plural: String,
}

/// APIs of the extension `name`, sorted: those of its CRDs, or those that the caller names.
///
/// # Errors
/// The extension does not exist or has no APIs, or the caller may not list CRDs.
pub(super) async fn provided(
    cluster: &Cluster,
    name: &str,
    named: &[String],
    session: &Session,
) -> Result<Vec<ProvidedApi>, CliError> {
    let mut apis: Vec<ProvidedApi> = if named.is_empty() {
        owned(cluster, name, session).await?
    } else {
        named.iter().map(|name| ProvidedApi::named(name)).collect::<Result<_, _>>()?
    };
    if apis.is_empty() {
        observe::extension(cluster, name, session).await?;
        return Err(CliError::no_candidate(format!(
            "extension {name} has no CustomResourceDefinitions on the cluster; `olm status {name}` shows whether it is \
             installed"
        )));
    }
    apis.sort();
    apis.dedup();
    Ok(apis)
}

async fn owned(cluster: &Cluster, name: &str, session: &Session) -> Result<Vec<ProvidedApi>, CliError> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
    let api: Api<Definition> = Api::all_with(cluster.client().clone(), &resource);
    let selector =
        format!("{}={},{}={name}", labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION, labels::OWNER_NAME);
    let of_name = ListParams::default().labels(&selector);
    let found = listed(&api, "CustomResourceDefinitions", of_name, session).await?;
    let found = found.map_err(|why| {
        CliError::operational(format!(
            "cannot find the APIs of {name}: {why}\nname them instead, such as --api lamps.example.com (kubectl \
             api-resources lists them), or ask an administrator"
        ))
    })?;
    let api = |Definition { spec, .. }: Definition| ProvidedApi {
        group: spec.group,
        resource: spec.names.plural,
        is_namespaced: spec.scope == "Namespaced",
    };
    Ok(found.into_iter().map(api).collect())
}

/// All objects of a list, or the reason for which the caller may not read it.
///
/// # Errors
/// The API server does not answer.
pub(super) async fn listed<K>(
    api: &Api<K>,
    what: &str,
    page: ListParams,
    session: &Session,
) -> Result<Result<Vec<K>, String>, CliError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let list = |page| async move { within_deadline(api.list(&page)).await };
    match session.interruptible(list_all(page.limit(PAGE), list)).await? {
        Ok(objects) => Ok(Ok(objects)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(status.message)),
        Err(error) => Err(CliError::operational(format!("cannot list {what}: {}", describe(&error)))),
    }
}
