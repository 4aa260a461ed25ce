//! Refuses APIServices whose group and version the cluster already serves by other means
//! (docs/design/bundles.md#aggregated-apis).

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Api, Client, ResourceExt};
use olm_api::labels;
use olm_bundle::InjectionKind;
use olm_controller_core::install_error::{InstallError, api_request};
use olm_runtime::cluster::within_deadline;
use serde_json::Value;

use super::{MAX_CONCURRENT_CALLS, Preflight, collect_some};

/// Label of the APIServices that the API server itself manages: `onstart` for built-in groups, `true` for CRDs.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

impl Preflight {
    /// Returns a sentence for each APIService among `objects` that exists and does not belong to the extension. With
    /// `adopts`, one that the same Service serves is not foreign: the digest of the adopted objects decides.
    ///
    /// # Errors
    /// The API server did not answer.
    pub(crate) async fn foreign_api_services(
        &self,
        extension: &str,
        objects: &[&Value],
        adopts: bool,
    ) -> Result<Vec<String>, InstallError> {
        let services: Api<APIService> = Api::all(self.client.clone());
        let is_api_service = |object: &&&Value| InjectionKind::of(object) == Some(InjectionKind::ApiService);
        let foreign = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let service = object["spec"]["service"].clone();
            let services = services.clone();
            async move {
                let live = api_request(services.get_opt(&name), format!("getting APIService {name:?}"));
                match live.await? {
                    Some(live) if adopts && is_adoptable(&live, &service) => Ok(None),
                    Some(live) if !belongs_to(&live, extension) => {
                        let owner = owner(&self.client, &live).await;
                        Ok(Some(format!("APIService {name:?} already exists: {owner}")))
                    }
                    _ => Ok(None),
                }
            }
        };
        let services = objects.iter().filter(is_api_service).map(|object| foreign(object));
        collect_some(services.collect(), MAX_CONCURRENT_CALLS).await
    }
}

/// Reports whether `service` of the bundle serves the APIService, and neither a controller nor an extension owns it.
fn is_adoptable(live: &APIService, service: &Value) -> bool {
    let Some(served) = live.spec.as_ref().and_then(|spec| spec.service.as_ref()) else { return false };
    served.namespace.as_deref() == service["namespace"].as_str()
        && served.name.as_deref() == service["name"].as_str()
        && live.owner_references().iter().all(|owner| owner.controller != Some(true))
        && !live.labels().contains_key(labels::OWNER_NAME)
}

fn belongs_to(live: &APIService, extension: &str) -> bool {
    let has = |key: &str, value: &str| live.labels().get(key).is_some_and(|label| label == value);
    has(labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION) && has(labels::OWNER_NAME, extension)
}

/// Description of the owner of an APIService, and what to do about it.
async fn owner(client: &Client, live: &APIService) -> String {
    if let Some(extension) = live.labels().get(labels::OWNER_NAME) {
        return format!("it belongs to ClusterExtension {extension:?}; only one extension can serve it");
    }
    let spec = live.spec.clone().unwrap_or_default();
    if let Some(service) = spec.service {
        let (namespace, name) = (service.namespace.unwrap_or_default(), service.name.unwrap_or_default());
        return format!(
            "Service {namespace}/{name} serves it; remove that API server and its APIService first"
        );
    }
    if live.labels().get(AUTOMANAGED).is_none_or(|value| value != "true") {
        return "the API server itself serves this group and version".to_owned();
    }
    let version = [spec.group.clone().unwrap_or_default(), spec.version.unwrap_or_default()].join("/");
    let served = within_deadline(client.list_api_group_resources(&version)).await;
    let resources = served.map(|list| list.resources).unwrap_or_default();
    let group = spec.group.unwrap_or_default();
    let crds: Vec<String> = resources
        .iter()
        .filter(|resource| !resource.name.contains('/'))
        .map(|resource| format!("{}.{group}", resource.name))
        .collect();
    match crds.is_empty() {
        true => format!("a CustomResourceDefinition of group {group} serves it; delete that first"),
        false => format!("CustomResourceDefinition {} serves it; delete that first", crds.join(", ")),
    }
}
