//! Whether custom resources exist of what an extension defines (spec 07 §4.14).

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterObjectSet, labels};
use olm_service::cluster::within_deadline;

use crate::failure::Failure;

/// Custom resources that would go with an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InUse {
    /// How many there are, of all kinds.
    count: u64,
    /// Group, version and kind of the first of the kinds, by name of the definition.
    kind: String,
    /// The first of that kind, as `<namespace>/<name>`, or only the name.
    first: String,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, kind, first } = self;
        write!(f, "cannot uninstall: {count} custom resources exist (first: {kind} {first})")
    }
}

/// The custom resources whose definitions these revisions of the extension own; `None` where there are none.
///
/// # Errors
/// The API server did not answer.
pub(super) async fn in_use(
    client: &Client,
    extension: &str,
    sets: &[ClusterObjectSet],
) -> Result<Option<InUse>, Failure> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let selector = ListParams::default().labels(&format!("{}={extension}", labels::OWNER_NAME));
    let listed = within_deadline(definitions.list(&selector)).await;
    let mut owned = listed.map_err(|error| Failure::api(&error).context("listing definitions"))?.items;
    let owners: Vec<&str> = sets.iter().filter_map(|set| set.metadata.uid.as_deref()).collect();
    owned.retain(|definition| {
        definition.owner_references().iter().any(|owner| owners.contains(&owner.uid.as_str()))
    });
    owned.sort_by_key(ResourceExt::name_any);
    let mut all: Option<InUse> = None;
    for definition in &owned {
        let Some(found) = of_definition(client, definition).await? else { continue };
        match &mut all {
            Some(all) => all.count += found.count,
            None => all = Some(found),
        }
    }
    Ok(all)
}

async fn of_definition(
    client: &Client,
    definition: &CustomResourceDefinition,
) -> Result<Option<InUse>, Failure> {
    let spec = &definition.spec;
    // One list shows all, whatever version they are stored in.
    let Some(version) = spec.versions.iter().find(|version| version.served) else { return Ok(None) };
    let resource = ApiResource {
        group: spec.group.clone(),
        version: version.name.clone(),
        api_version: format!("{}/{}", spec.group, version.name),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let page = match within_deadline(api.list_metadata(&ListParams::default().limit(1))).await {
        Ok(page) => page,
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(None),
        Err(error) => {
            let context = format!("listing existing objects of CRD {:?}", definition.name_any());
            return Err(Failure::api(&error).context(context));
        }
    };
    let Some(first) = page.items.first() else { return Ok(None) };
    let rest = page.metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok());
    let name = first.name_any();
    Ok(Some(InUse {
        count: 1 + rest.unwrap_or_default(),
        kind: format!("{}, Kind={}", resource.api_version, resource.kind),
        first: first.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}")),
    }))
}
