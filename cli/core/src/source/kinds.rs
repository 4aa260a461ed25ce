//! APIs that extensions define: CustomResourceDefinitions and APIServices with owner labels, and discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, ListParams};
use kube::core::discovery::v2::APIGroupDiscoveryList;
use kube::core::{GroupVersionKind, NotUsed, Object};
use olm_api::labels;
use olm_runtime::cluster::{describe, list_all, within_deadline};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cluster::ClusterConnection;
use crate::error::CliError;
use crate::session::Session;

/// Page size. A CustomResourceDefinition may have a megabyte.
pub(super) const PAGE: u32 = 50;

/// Kind that the API server serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKind {
    /// Kind, such as `Lamp`.
    pub kind: String,
    /// API group, such as `example.com`. Empty for the core group.
    pub group: String,
    /// Plural name in paths and rules, such as `lamps`.
    pub resource: String,
    /// Served versions.
    pub versions: Vec<String>,
    /// `Namespaced` or `ClusterConnection`.
    pub scope: String,
}

/// Kind that an extension defines.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedKind {
    /// Name of the extension.
    pub owner: String,
    /// The kind.
    pub api: ApiKind,
}

/// CustomResourceDefinition, reduced to the fields used here.
pub type Crd = Object<CrdSpec, NotUsed>;

/// Fields of `spec` that describe the kind.
#[derive(Clone, Debug, Deserialize)]
pub struct CrdSpec {
    group: String,
    names: CrdNames,
    scope: String,
    versions: Vec<CrdVersion>,
}

#[derive(Clone, Debug, Deserialize)]
struct CrdNames {
    kind: String,
    plural: String,
}

#[derive(Clone, Debug, Deserialize)]
struct CrdVersion {
    name: String,
    served: bool,
}

impl ApiKind {
    /// `<resource>.<group>`, as a CustomResourceDefinition is named.
    pub fn name(&self) -> String {
        format!("{}.{}", self.resource, self.group)
    }

    /// Reports whether its objects are in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == "Namespaced"
    }
}

impl OwnedKind {
    /// Kind of a CRD with owner labels.
    pub fn of_crd(crd: Crd) -> Option<Self> {
        let owner = owner(&crd)?;
        let CrdSpec { group, names, scope, versions } = crd.spec;
        let versions = versions.into_iter().filter(|version| version.served).map(|version| version.name);
        let api =
            ApiKind { kind: names.kind, group, resource: names.plural, versions: versions.collect(), scope };
        Some(Self { owner, api })
    }
}

impl ClusterConnection {
    /// CRDs, with the fields of `S`.
    pub fn crds<S>(&self) -> Api<Object<S, NotUsed>>
    where
        S: Clone + DeserializeOwned + Debug,
    {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
        Api::all_with(self.client().clone(), &resource)
    }

    /// Kinds of the CRDs of the extension `name`, or of all extensions. The inner error is the reason for which the
    /// caller may not list CRDs.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn owned_crds(
        &self,
        name: Option<&str>,
        session: &Session,
    ) -> Result<Result<Vec<OwnedKind>, String>, CliError> {
        let found = listed(&self.crds(), "CustomResourceDefinitions", of_extensions(name), session).await?;
        Ok(found.map(|found| found.into_iter().filter_map(OwnedKind::of_crd).collect()))
    }

    /// Kinds of the [aggregated APIs](APIService) of the extension `name`, or of all extensions, as far as their servers
    /// answer. The inner error is the reason for which the caller may not list APIServices.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn owned_api_services(
        &self,
        name: Option<&str>,
        session: &Session,
    ) -> Result<Result<Vec<OwnedKind>, String>, CliError> {
        let api: Api<APIService> = Api::all(self.client().clone());
        let found = match listed(&api, "APIServices", of_extensions(name), session).await? {
            Ok(found) if !found.is_empty() => found,
            other => return Ok(other.map(|_| Vec::new())),
        };
        Ok(Ok(kinds_of_services(&found, &self.discovered(session).await?)))
    }

    /// All kinds that the API server announces, except for those of the core group. Each has all of its versions.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn discovered(&self, session: &Session) -> Result<Vec<ApiKind>, CliError> {
        let call = self.client().list_api_groups_aggregated();
        Ok(announced(self.call("the APIs of the cluster", call, session).await?))
    }
}

/// All objects of a list, or the reason for which the caller may not read it.
///
/// # Errors
/// The API server does not answer.
pub async fn listed<K>(
    api: &Api<K>,
    what: &str,
    page: ListParams,
    session: &Session,
) -> Result<Result<Vec<K>, String>, CliError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let list = |page| async move { within_deadline(api.list(&page)).await };
    match session.interruptible(list_all(page.limit(PAGE), list)).await? {
        Ok(objects) => Ok(Ok(objects)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(status.message)),
        Err(error) => Err(CliError::operational(format!("cannot list {what}: {}", describe(&error)))),
    }
}

/// Selects the objects of the extension `name`, or of all extensions.
pub fn of_extensions(name: Option<&str>) -> ListParams {
    let name = name.map(|name| format!(",{}={name}", labels::OWNER_NAME)).unwrap_or_default();
    ListParams::default().labels(&format!("{}={}{name}", labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION))
}

/// Name of the extension in the owner labels of an object.
pub fn owner(object: &impl ResourceExt) -> Option<String> {
    let is_owned =
        object.labels().get(labels::OWNER_KIND).is_some_and(|kind| kind == labels::OWNER_KIND_EXTENSION);
    object.labels().get(labels::OWNER_NAME).filter(|_| is_owned).cloned()
}

/// Announced kinds of the groups and versions of APIServices.
fn kinds_of_services(services: &[APIService], announced: &[ApiKind]) -> Vec<OwnedKind> {
    let mut served: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for service in services {
        let (Some(owner), Some(spec)) = (owner(service), &service.spec) else { continue };
        let group = spec.group.as_deref().unwrap_or_default();
        served.entry((group, owner)).or_default().extend(spec.version.as_deref());
    }
    let mut found = Vec::new();
    for ((group, owner), versions) in served {
        for api in announced.iter().filter(|api| api.group == group) {
            let mut api = api.clone();
            api.versions.retain(|version| versions.contains(version.as_str()));
            if !api.versions.is_empty() {
                found.push(OwnedKind { owner: owner.clone(), api });
            }
        }
    }
    found
}

fn announced(list: APIGroupDiscoveryList) -> Vec<ApiKind> {
    let mut apis: BTreeMap<(String, String), ApiKind> = BTreeMap::new();
    for found in list.items {
        let group = found.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in found.versions {
            let number = version.version.unwrap_or_default();
            for one in version.resources {
                let (Some(resource), Some(kind)) =
                    (one.resource, one.response_kind.and_then(|kind| kind.kind))
                else {
                    continue;
                };
                let api = apis.entry((group.clone(), resource.clone())).or_insert_with(|| ApiKind {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_of_api_services_have_the_versions_of_the_services() {
        let resource = |name: &str, kind: &str| json!({"resource": name, "scope": "Namespaced", "verbs": ["get"], "responseKind": {"group": "", "version": "", "kind": kind}});
        let group = |name: &str| {
            json!({"metadata": {"name": name}, "versions": [
                {"version": "v1", "resources": [resource("lamps", "Lamp"), resource("bulbs", "Bulb")]},
                {"version": "v1beta1", "resources": [resource("lamps", "Lamp")]},
                {"version": "v1alpha1", "resources": [resource("shades", "Shade")]},
            ]})
        };
        let list = json!({"items": [group("example.com"), group("other.com")]});
        let announced = announced(serde_json::from_value(list).unwrap());
        assert_eq!(announced.len(), 6);
        let service = |version: &str, labels: serde_json::Value| {
            let service = json!({"metadata": {"name": format!("{version}.example.com"), "labels": labels},
                "spec": {"group": "example.com", "version": version, "groupPriorityMinimum": 1, "versionPriority": 1}});
            serde_json::from_value::<APIService>(service).unwrap()
        };
        let owned = json!({labels::OWNER_KIND: "ClusterExtension", labels::OWNER_NAME: "lamp"});
        let services =
            [service("v1", owned.clone()), service("v1beta1", owned), service("v1alpha1", json!({}))];
        let found = kinds_of_services(&services, &announced);
        let found: Vec<_> = found
            .iter()
            .map(|one| format!("{} {} {:?}", one.owner, one.api.name(), one.api.versions))
            .collect();
        assert_eq!(
            found,
            [r#"lamp bulbs.example.com ["v1"]"#, r#"lamp lamps.example.com ["v1", "v1beta1"]"#]
        );
    }
}
