//! Requests about the Secrets and the objects that carry a CA bundle.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use olm_api::labels;
use olm_api::limits::LIST_PAGE;
use olm_api::names::WEBHOOK_CERTIFICATES_MANAGER;
use olm_bundle::{Injection, InjectionKind};
use olm_controller_core::install_error::{InstallError, api_request};
use olm_revision::fields::transfer_patch;
use olm_revision::object::ObjectKey;
use olm_runtime::cluster::{list_all, within_deadline};
use olm_runtime::listing::{OurMeta, turn};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::injection;
use super::needs::RequiredCertificates;
use super::secrets::Owner;
use super::{FAILED, Provider};

/// Resource of the objects into which a CA bundle is injected.
pub fn resource(kind: InjectionKind) -> ApiResource {
    match kind {
        InjectionKind::Validating => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        InjectionKind::Mutating => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        InjectionKind::Crd => ApiResource::erase::<CustomResourceDefinition>(&()),
        InjectionKind::ApiService => ApiResource::erase::<APIService>(&()),
    }
}

/// Result of an injection.
pub(super) enum Injected {
    Unchanged,
    Written,
    /// Another client changes the bundle again and again. Time until the next injection.
    Delayed(Duration),
}

impl Provider {
    /// Injects the bundle into an object if it exists and lacks the bundle. If it carried the bundle before,
    /// `was_carried`, another client has changed it (docs/design/apply.md#contention).
    pub(super) async fn inject(
        &self,
        owner: &Owner,
        injection: &Injection,
        bundle: &[u8],
        was_carried: bool,
    ) -> Result<Injected, InstallError> {
        let api = self.objects(injection.kind);
        let Some(live) = get_live(&api, injection).await? else { return Ok(Injected::Unchanged) };
        let Some(patch) = injection::injected(&live, injection, &owner.name, bundle) else {
            return Ok(Injected::Unchanged);
        };
        let delayed = self.contentions.delayed(&ObjectKey::of(&patch), None, Instant::now());
        if let Some(contention) = delayed.filter(|_| was_carried) {
            return Ok(Injected::Delayed(contention.delay));
        }
        let params = PatchParams::apply(WEBHOOK_CERTIFICATES_MANAGER).force();
        let (kind, name) = (injection.kind.as_str(), &injection.name);
        let context = format!("CA bundle of {kind} {name:?}");
        api_request(api.patch(name, &params, &Patch::Apply(&patch)), context).await?;
        tracing::info!(extension = owner.name, kind, name, "injected CA bundle");
        if was_carried {
            self.report_change(owner, &patch, &injection::changed(&live, &patch));
        }
        Ok(Injected::Written)
    }

    /// Counts a change of the bundle by another client, and reports when further injections are delayed.
    fn report_change(&self, owner: &Owner, patch: &Value, changed: &BTreeMap<String, Vec<String>>) {
        let key = ObjectKey::of(patch);
        let contention = self.contentions.record(&key, changed, Instant::now());
        if contention.begins() {
            let (changes, delay) = (contention.summary(), contention.delay.as_secs());
            let note = format!(
                "CA bundle of {} {:?}: {changes}; next injection after {delay} s. If the operator makes its own \
                 certificates, disable that in the operator",
                key.gvk.kind, key.name
            );
            self.events.warning(owner.about.clone(), FAILED, note);
        }
    }

    /// Transfers our fields of an object to the engine.
    pub(super) async fn release(&self, owner: &Owner, injection: &Injection) -> Result<(), InstallError> {
        let api = self.objects(injection.kind);
        let Some(live) = get_live(&api, injection).await? else { return Ok(()) };
        let is_of_extension = live["metadata"]["labels"][labels::OWNER_NAME] == owner.name.as_str();
        let patch = transfer_patch(&live, WEBHOOK_CERTIFICATES_MANAGER);
        let Some(patch) = patch.filter(|_| is_of_extension) else { return Ok(()) };
        let (kind, name) = (injection.kind.as_str(), &injection.name);
        let context = format!("fields of {kind} {name:?}");
        api_request(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)), context).await?;
        tracing::info!(extension = owner.name, kind, name, "transferred ownership of CA bundle");
        Ok(())
    }

    pub(super) fn objects(&self, kind: InjectionKind) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(kind))
    }

    /// Returns the identities of our Secrets of the extension.
    pub(super) async fn existing(&self, owner: &Owner) -> Result<Vec<OurMeta<Secret>>, InstallError> {
        let all: Api<OurMeta<Secret>> = Api::all(self.client.clone());
        let (ours, name) = (labels::EXT_WEBHOOK_CERTIFICATE, labels::OWNER_NAME);
        let selector = ListParams::default().labels(&format!("{ours},{name}={}", owner.name));
        let list = async |page| {
            let _turn = turn().await;
            let mut page = api_request(all.list(&page), "listing webhook certificates").await?;
            page.items.retain(|secret| owner.may_remove(secret));
            page.items.iter_mut().for_each(|secret| reduce(&mut secret.metadata));
            Ok::<_, InstallError>(page)
        };
        list_all(selector.limit(LIST_PAGE), list).await
    }

    /// Removes a Secret that is not needed. A Secret into which another provider issues only loses our metadata.
    pub(super) async fn remove_unneeded(
        &self,
        secret: &OurMeta<Secret>,
        required: &RequiredCertificates,
    ) -> Result<(), InstallError> {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let key = (namespace.clone(), name.clone());
        if required.secrets().contains(&key) {
            return Ok(());
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let version = secret.resource_version();
        let done = if required.issued_by_others.contains(&key) {
            let ours = [labels::EXT_WEBHOOK_CERTIFICATE, labels::OWNER_KIND, labels::OWNER_NAME];
            let unmarked: serde_json::Map<_, _> =
                ours.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
            let metadata = json!({"resourceVersion": version, "labels": unmarked, "ownerReferences": null});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            within_deadline(api.patch(&name, &PatchParams::default(), &patch)).await.map(drop)
        } else {
            let exactly = Preconditions { uid: secret.uid(), resource_version: version };
            let params = DeleteParams::default().preconditions(exactly);
            within_deadline(api.delete(&name, &params)).await.map(drop)
        };
        match done {
            Ok(()) => tracing::info!(namespace, name, "removed unneeded webhook certificate"),
            // Deleted, or changed since. The change triggers another pass.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            Err(error) => {
                return Err(InstallError::api(&error).context(format!("removing Secret {namespace}/{name}")));
            }
        }
        Ok(())
    }
}

/// Keeps only the identity: any user of a namespace may create many Secrets with large metadata.
fn reduce(metadata: &mut ObjectMeta) {
    let ObjectMeta { name, namespace, uid, resource_version, .. } = std::mem::take(metadata);
    *metadata = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
}

/// Reads the live object. `None` if it does not exist.
async fn get_live(api: &Api<DynamicObject>, injection: &Injection) -> Result<Option<Value>, InstallError> {
    let context = format!("getting {} {:?}", injection.kind.as_str(), injection.name);
    let live = api_request(api.get_opt(&injection.name), context).await?;
    live.map(serde_json::to_value).transpose().map_err(InstallError::retry)
}

/// Creates the Secret, or replaces it with its resourceVersion as precondition. Returns `false` on a conflict (409).
pub(super) async fn write(secrets: &Api<Secret>, secret: &Secret) -> Result<bool, InstallError> {
    let (name, params) = (secret.name_any(), PostParams::default());
    let (verb, written) = match secret.resource_version() {
        None => ("creating", within_deadline(secrets.create(&params, secret)).await),
        Some(_) => ("replacing", within_deadline(secrets.replace(&name, &params, secret)).await),
    };
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => {
            let namespace = secret.namespace().unwrap_or_default();
            Err(InstallError::api(&error).context(format!("{verb} Secret {namespace}/{name}")))
        }
    }
}
