//! Which APIs the cluster serves, which of them belong to extensions, and its version: read from the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use kube::core::{ApiResource, NotUsed, Object};
use kube::{Api, Client};
use olm_api::labels;
use olm_extension::{DefinitionSpec, Served};
use olm_resolve::Gvk;
use olm_service::cluster::within;

/// Longest wait for all that is read.
const DEADLINE: Duration = Duration::from_secs(20);
/// Definitions in one answer: one may have a megabyte.
const PAGE: u32 = 50;
/// Definitions of extensions that are read at most.
const MOST_DEFINITIONS: usize = 10_000;

/// What the API server says it serves.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub served: Served,
    /// API groups and versions, `group/version`, whose server does not answer: what they serve is not known, or may
    /// have changed.
    pub stale: BTreeSet<String>,
}

/// Why it is not known what the cluster serves.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// A call failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// There is no end to the definitions.
    #[error(
        "more than {MOST_DEFINITIONS} CustomResourceDefinitions have the label {}={}",
        labels::OWNER_KIND,
        labels::OWNER_KIND_EXTENSION
    )]
    TooMany,
    /// The answer is a list of groups without their resources.
    #[error("the API server does not offer aggregated discovery, which is part of Kubernetes 1.26 and later")]
    NotAggregated,
}

/// Asks the API server.
pub(super) async fn read(client: &Client) -> Result<Told, ReadError> {
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
    let served = Served { owned: owned?, kubernetes: version.git_version, ..Served::default() };
    let mut told = Told { served, ..Told::default() };
    for list in [core, groups] {
        // Every cluster has API groups: none means that the answer has another form.
        if list.items.is_empty() {
            return Err(ReadError::NotAggregated);
        }
        told.discover(list);
    }
    Ok(told)
}

impl Told {
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

/// A CustomResourceDefinition, as far as it is read.
type Definition = Object<DefinitionSpec, NotUsed>;

/// The APIs that extensions define, by name of the extension. Definitions rather than discovery, which does not tell
/// owners and shows a new definition only a moment after it is established.
async fn owned(client: &Client) -> Result<BTreeMap<String, BTreeSet<Gvk>>, ReadError> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let definitions: Api<Definition> = Api::all_with(client.clone(), &resource);
    let selector = format!("{}={}", labels::OWNER_KIND, labels::OWNER_KIND_EXTENSION);
    let mut page = ListParams::default().labels(&selector).limit(PAGE);
    let mut all: Vec<Definition> = Vec::new();
    loop {
        let list = definitions.list(&page).await?;
        all.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            None => break,
            Some(_) if all.len() >= MOST_DEFINITIONS => return Err(ReadError::TooMany),
            Some(token) => page = page.continue_token(&token),
        }
    }
    Ok(olm_extension::owned(all.iter().map(|definition| (&definition.metadata, &definition.spec))))
}
