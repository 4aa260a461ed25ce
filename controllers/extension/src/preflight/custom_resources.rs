//! Checks the custom resources of a CRD: page by page, within a budget, until some violate the new CRD.

use kube::api::{ListParams, ObjectList};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use olm_api::conditions::truncate;
use olm_api::limits::LIST_PAGE;
use olm_controller_core::install_error::InstallError;
use olm_crd_safety::{CrdFinding, LiveCheck, error_text};
use olm_runtime::cluster::within_deadline;
use olm_runtime::listing::turn;
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout_at};

use super::crd_verdict::{CheckedResources, ResourceCheck, harmed};

/// Number of violating custom resources that a message names.
const NAMED: usize = 5;

/// Checks the custom resources of the CRD `live`, in all versions that `check` needs.
///
/// # Errors
/// The API server did not answer within the time that was left.
pub(super) async fn check_resources(
    client: &Client,
    live: &Value,
    check: &LiveCheck,
    findings: &[CrdFinding],
    deadline: Instant,
) -> Result<ResourceCheck, InstallError> {
    let mut seen = CheckedResources::default();
    let mut exists = false;
    let versions: Vec<&str> = check.versions().collect();
    if versions.is_empty() {
        return Ok(ResourceCheck::Unknown("none of their versions is served".to_owned()));
    }
    for (number, version) in versions.iter().enumerate() {
        let mut pages = Pages::new(client, live, version);
        while !pages.ended {
            let Ok(_turn) = timeout_at(deadline, turn()).await else {
                return Ok(late());
            };
            let Ok(page) = timeout_at(deadline, pages.next()).await else {
                return Ok(late());
            };
            let page = page?;
            exists |= !page.is_empty();
            block_in_place(|| page.iter().for_each(|object| seen.check_object(check, version, object)));
            if seen.count > 0 {
                seen.at_least = !pages.ended || number + 1 < versions.len();
                return Ok(ResourceCheck::Checked(seen));
            }
        }
    }
    let unjudged: Vec<CrdFinding> =
        findings.iter().filter(|finding| exists && !check.judges(finding)).cloned().collect();
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    seen.unjudged = (!unjudged.is_empty()).then(|| truncate(&error_text(name, &unjudged)));
    Ok(ResourceCheck::Checked(seen))
}

fn late() -> ResourceCheck {
    ResourceCheck::Unknown("there was not enough time to check all of them".to_owned())
}

impl CheckedResources {
    fn check_object(&mut self, check: &LiveCheck, version: &str, object: &DynamicObject) {
        // Infallible: the object was decoded from JSON.
        let Ok(value) = serde_json::to_value(object) else { return };
        let violations = check.violations(version, &value);
        if violations.is_empty() {
            return;
        }
        self.count += 1;
        if self.harmed.len() < NAMED {
            let name = match object.namespace() {
                Some(namespace) => format!("{namespace}/{}", object.name_any()),
                None => object.name_any(),
            };
            self.harmed.push(harmed(&name, &violations));
        }
    }
}

/// Paged list of all custom resources of a CRD in one version.
struct Pages {
    api: Api<DynamicObject>,
    crd: String,
    params: ListParams,
    ended: bool,
}

impl Pages {
    fn new(client: &Client, live: &Value, version: &str) -> Self {
        let text =
            |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let group = text("/spec/group");
        let resource = ApiResource {
            api_version: format!("{group}/{version}"),
            group,
            version: version.to_owned(),
            kind: text("/spec/names/kind"),
            plural: text("/spec/names/plural"),
        };
        Self {
            api: Api::all_with(client.clone(), &resource),
            crd: text("/metadata/name"),
            params: ListParams::default().limit(LIST_PAGE),
            ended: false,
        }
    }

    async fn next(&mut self) -> Result<Vec<DynamicObject>, InstallError> {
        match within_deadline(self.api.list(&self.params)).await {
            Ok(ObjectList { metadata, items, .. }) => {
                self.params.continue_token = metadata.continue_.filter(|token| !token.is_empty());
                self.ended = self.params.continue_token.is_none();
                Ok(items)
            }
            // The version is not served, so there are none.
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.ended = true;
                Ok(Vec::new())
            }
            // The continue token has expired: start again.
            Err(kube::Error::Api(status)) if status.code == 410 && self.params.continue_token.is_some() => {
                self.params.continue_token = None;
                Ok(Vec::new())
            }
            Err(error) => {
                let context = format!("listing existing objects of CRD {:?}", self.crd);
                Err(InstallError::api(&error).context(context))
            }
        }
    }
}
