//! Reads the served APIs, their owning extensions, and the cluster version from the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use kube::core::{ApiResource, NotUsed, Object};
use kube::{Api, Client};
use olm_api::labels;
use olm_api::limits::LIST_PAGE;
use olm_request::{CrdFields, ServedApis};
use olm_resolve::Gvk;
use olm_runtime::cluster::within;

/// Deadline of all requests together.
const DEADLINE: Duration = Duration::from_secs(20);
/// Maximum number of CRDs of extensions.
const MOST_CRDS: usize = 10_000;

/// Served APIs as reported by the API server.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterApis {
    pub served: ServedApis,
    /// API groups with version, `group/version`, whose server does not answer: their APIs are unknown or may have
    /// changed.
    pub stale: BTreeSet<String>,
}

/// Reason why the served APIs are unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// There are too many CRDs.
    #[error(
        "more than {MOST_CRDS} CustomResourceDefinitions have the label {}={}",
        labels::OWNER_KIND,
        labels::OWNER_KIND_EXTENSION
    )]
    TooMany,
    /// The response lists groups without their resources.
    #[error("the API server does not offer aggregated discovery, which is part of Kubernetes 1.26 and later")]
    NotAggregated,
}

/// Reads the served APIs.
pub(super) async fn read(client: &Client) -> Result<ClusterApis, ReadError> {
    let read = async {
        let (core, groups, version, owned) = tokio::join!(
            client.list_core_api_versions_aggregated(),
            client.list_api_groups_aggregated(),
            client.apiserver_version(),
            owned(client),
        );
        Ok((core?, groups?, version?, owned))
    };
    let (core, groups, version, owned) = within(DEADLINE, read).await?;
    let served = ServedApis { owned: owned?, kubernetes: version.git_version, ..ServedApis::default() };
    let mut apis = ClusterApis { served, ..ClusterApis::default() };
    for list in [core, groups] {
        // Every cluster has API groups: an empty list means that the response has another form.
        if list.items.is_empty() {
            return Err(ReadError::NotAggregated);
        }
        apis.discover(list);
    }
    Ok(apis)
}

impl ClusterApis {
    fn discover(&mut self, list: APIGroupDiscoveryList) {
        for group in list.items {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            for version in group.versions {
                let number = version.version.unwrap_or_default();
                if version.freshness.as_deref() == Some("Stale") {
                    self.stale.insert(format!("{name}/{number}"));
                }
                let kinds = version.resources.into_iter().filter_map(|resource| resource.response_kind?.kind);
                self.served.gvks.extend(kinds.map(|kind| Gvk {
                    group: name.clone(),
                    version: number.clone(),
                    kind,
                }));
            }
        }
    }
}

/// The parts of a CRD that are read.
type Crd = Object<CrdFields, NotUsed>;

/// Returns the APIs that extensions define, by name of the extension. Read from CRDs, because discovery has no owners
/// and shows a new CRD only some time after it is established.
async fn owned(client: &Client) -> Result<BTreeMap<String, BTreeSet<Gvk>>, ReadError> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let crds: Api<Crd> = Api::all_with(client.clone(), &resource);
    let selector = format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION);
    let mut page = ListParams::default().labels(&selector).limit(LIST_PAGE);
    let mut all: Vec<Crd> = Vec::new();
    loop {
        let list = crds.list(&page).await?;
        all.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            None => break,
            Some(_) if all.len() >= MOST_CRDS => return Err(ReadError::TooMany),
            Some(token) => page = page.continue_token(&token),
        }
    }
    Ok(olm_request::owned(all.iter().map(|crd| (&crd.metadata, &crd.spec))))
}
