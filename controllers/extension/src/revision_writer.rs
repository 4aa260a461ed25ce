//! Writes the newest revision of an extension (docs/design/apply.md#keep-patch-or-create,
//! docs/design/apply.md#packing-into-secrets). Idempotent: an earlier attempt may have ended after any step.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use olm_api::limits::LIST_PAGE;
use olm_api::{ClusterObjectSet, labels, names};
use olm_controller_core::content::content_secrets;
use olm_controller_core::install_error::{InstallError, api_request};
use olm_controller_core::membership::{belongs_to, extension_stays};
use olm_revision::content::{ContentPhase, resolve, secrets};
use olm_revision::generate::{
    Draft, GenerateError, MAX_LABEL_VALUE, NumberedRevision, RevisionDecision, decide, newest, outdated,
    secret_owner,
};
use olm_runtime::cluster::{list_all, within_deadline};
use serde_json::json;

/// Maximum attempts to patch a revision after a conflict (409).
const ATTEMPTS: usize = 5;

/// Access to revisions and their Secrets.
pub(crate) struct RevisionWriter {
    client: Client,
    revisions: Api<ClusterObjectSet>,
    secrets: Api<Secret>,
    system_namespace: String,
}

/// Result of a plan.
#[derive(Clone, Debug)]
pub(crate) struct AppliedRevision {
    /// `true` if the revision was created now.
    pub created: bool,
    /// Newest revision.
    pub set: ClusterObjectSet,
}

/// Decision and the revisions that it was made from.
pub(crate) struct RevisionPlan {
    decision: RevisionDecision,
    existing: Vec<ClusterObjectSet>,
    /// Content of the newest revision, if it was read.
    content: Option<Vec<ContentPhase>>,
}

impl RevisionPlan {
    /// Revisions that exist. Only the newest one if the plan keeps it.
    pub(crate) fn existing(&self) -> &[ClusterObjectSet] {
        &self.existing
    }

    /// Content of the newest revision, if the plan changes it and it can be read.
    pub(crate) fn content(&self) -> Option<&[ContentPhase]> {
        self.content.as_deref()
    }

    /// Reports whether the plan creates a revision.
    pub(crate) fn makes_revision(&self) -> bool {
        matches!(self.decision, RevisionDecision::New { .. })
    }

    /// Number of the newest revision after the plan is carried out.
    pub(crate) fn number(&self) -> i64 {
        match &self.decision {
            RevisionDecision::New { number } => *number,
            _ => self.newest().map_or(0, ClusterObjectSet::number),
        }
    }

    /// Newest revision before the plan is carried out.
    pub(crate) fn newest(&self) -> Option<&ClusterObjectSet> {
        newest(&self.existing)
    }
}

impl RevisionWriter {
    /// `system_namespace` is the namespace of the Secrets.
    pub(crate) fn new(client: Client, system_namespace: &str) -> Self {
        Self {
            revisions: Api::all(client.clone()),
            secrets: Api::namespaced(client.clone(), system_namespace),
            client,
            system_namespace: system_namespace.to_owned(),
        }
    }

    /// All revisions of the extension, read from the API server. An extension whose name cannot be a label value has
    /// none.
    pub(crate) async fn list(&self, extension: &str) -> Result<Vec<ClusterObjectSet>, InstallError> {
        if extension.len() > MAX_LABEL_VALUE {
            return Ok(Vec::new());
        }
        let selector = ListParams::default().labels(&format!("{}={extension}", labels::OWNER_NAME));
        let list = async |page| api_request(self.revisions.list(&page), "listing revisions").await;
        let mut all = list_all(selector.limit(LIST_PAGE), list).await?;
        all.retain(|revision| belongs_to(revision, extension));
        Ok(all)
    }

    /// Content of the revision.
    ///
    /// # Errors
    /// A Secret is missing or mutable, or cannot be read.
    pub(crate) async fn content(
        &self,
        revision: &ClusterObjectSet,
    ) -> Result<Vec<ContentPhase>, InstallError> {
        let Some(spec) = &revision.spec else { return Err(InstallError::retry("it has no spec")) };
        let found = content_secrets(&self.client, Some(spec), &self.system_namespace).await?;
        tokio::task::block_in_place(|| resolve(spec, &self.system_namespace, &found)).map_err(|error| {
            InstallError::retry(error).context(format!("content of {}", revision.name_any()))
        })
    }

    /// Creates the draft as successor of all `existing` revisions of the extension.
    pub(crate) async fn create_next(
        &self,
        extension: &str,
        draft: &Draft,
        existing: &[ClusterObjectSet],
    ) -> Result<ClusterObjectSet, InstallError> {
        self.create(extension, draft, newest(existing).map_or(0, ClusterObjectSet::number) + 1, existing)
            .await
    }

    /// Plans how the draft becomes the newest revision. `known` is the newest one in the cache. If it has the same
    /// content, the API server is not asked.
    pub(crate) async fn plan(
        &self,
        extension: &str,
        draft: &Draft,
        known: Option<&ClusterObjectSet>,
    ) -> Result<RevisionPlan, InstallError> {
        if let Some(known) = known {
            let existing = vec![known.clone()];
            let decision =
                tokio::task::block_in_place(|| decide(draft, &existing, None, &self.system_namespace));
            if let decision @ RevisionDecision::Keep = decision.map_err(invalid)? {
                return Ok(RevisionPlan { decision, existing, content: None });
            }
        }
        let existing = self.list(extension).await?;
        let spec = newest(&existing).and_then(|revision| revision.spec.as_ref());
        let found = content_secrets(&self.client, spec, &self.system_namespace).await?;
        let (decision, content) = tokio::task::block_in_place(|| {
            // Incomplete content cannot be compared with the draft.
            let content = spec.and_then(|spec| resolve(spec, &self.system_namespace, &found).ok());
            (decide(draft, &existing, content.as_deref(), &self.system_namespace), content)
        });
        let decision = decision.map_err(invalid)?;
        Ok(RevisionPlan { decision, existing, content })
    }

    /// Carries out the plan: keeps, patches or creates the newest revision.
    pub(crate) async fn carry_out(
        &self,
        extension: &str,
        draft: &Draft,
        plan: RevisionPlan,
    ) -> Result<AppliedRevision, InstallError> {
        let RevisionPlan { decision, existing, .. } = plan;
        match (decision, newest(&existing)) {
            (RevisionDecision::Keep, Some(current)) => {
                Ok(AppliedRevision { created: false, set: current.clone() })
            }
            (RevisionDecision::Patch(revision), Some(current)) => {
                let patched = self.patch(current, *revision).await;
                let context = || format!("patching {} Revision", current.name_any());
                let revision = patched.map_err(|error| error.context(context()))?;
                Ok(AppliedRevision { created: false, set: revision })
            }
            (RevisionDecision::New { number }, _) => {
                let revision = self.create(extension, draft, number, &existing).await?;
                Ok(AppliedRevision { created: true, set: revision })
            }
            (RevisionDecision::Keep | RevisionDecision::Patch(_), None) => {
                Err(InstallError::retry("there is no revision"))
            }
        }
    }

    /// Applies the metadata of the revision again, including its owner. Fails for an extension that is gone or
    /// being deleted: if it is deleted with orphan propagation, a revision that names it as owner again would still
    /// be deleted with it (docs/design/apply.md#recreated-extensions).
    async fn patch(
        &self,
        current: &ClusterObjectSet,
        mut desired: ClusterObjectSet,
    ) -> Result<ClusterObjectSet, InstallError> {
        let mut attempt = 1;
        loop {
            let found = within_deadline(self.revisions.get_opt(&current.name_any())).await;
            let found = found
                .map_err(|error| InstallError::api(&error))?
                .filter(|revision| revision.uid() == current.uid());
            let Some(found) = found else { return Err(InstallError::retry("it no longer exists")) };
            // Read after the revision: an orphaning from now on changes its resourceVersion.
            self.require_extension(&desired).await?;
            desired.metadata.resource_version = found.metadata.resource_version;
            match within_deadline(self.server_side_apply(&desired)).await {
                Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => attempt += 1,
                applied => return applied.map_err(|error| InstallError::api(&error)),
            }
        }
    }

    /// Fails if the extension of this revision is gone or being deleted.
    async fn require_extension(&self, revision: &ClusterObjectSet) -> Result<(), InstallError> {
        for owner in revision.owner_references() {
            if !extension_stays(&self.client, owner).await? {
                return Err(InstallError::retry("its ClusterExtension is deleted or being deleted"));
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        extension: &str,
        draft: &Draft,
        number: i64,
        existing: &[ClusterObjectSet],
    ) -> Result<ClusterObjectSet, InstallError> {
        let numbered =
            tokio::task::block_in_place(|| draft.number(number, &self.system_namespace)).map_err(invalid)?;
        // The objects of a revision that is deleted with its extension must not move to a new one.
        if newest(existing).is_some_and(|newest| newest.metadata.deletion_timestamp.is_some()) {
            let stays = self.require_extension(&numbered.set).await;
            stays.map_err(|error| error.context("creating new Revision"))?;
        }
        for old in outdated(existing) {
            let preconditions = Preconditions { uid: old.uid(), resource_version: old.resource_version() };
            let params = DeleteParams::default().preconditions(preconditions);
            match within_deadline(self.revisions.delete(&old.name_any(), &params)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => {
                    let context = "garbage collecting old revisions: deleting archived revision";
                    return Err(InstallError::api(&error).context(context));
                }
                Ok(_) => {}
            }
        }
        let revision = self.write(&numbered).await?;
        tracing::info!(extension, revision = revision.name_any(), "created revision");
        Ok(revision)
    }

    /// Writes a numbered revision: its Secrets, the ClusterObjectSet, then the owner references of the Secrets.
    pub(crate) async fn write(&self, numbered: &NumberedRevision) -> Result<ClusterObjectSet, InstallError> {
        self.refuse_foreign(&numbered.set).await?;
        let mut secrets = Vec::new();
        for secret in &numbered.secrets {
            secrets.push(self.put(secret).await?);
        }
        let revision = api_request(self.server_side_apply(&numbered.set), "creating new Revision").await?;
        for secret in &secrets {
            // Replace the owners: an old one may be a deleted revision of the same name.
            let unowned = ObjectMeta { owner_references: None, ..secret.metadata.clone() };
            self.add_owner(&secret.name_any(), &unowned, &revision)
                .await
                .map_err(|error| error.context("patching ownerReferences on ref Secrets"))?;
        }
        Ok(revision)
    }

    /// Refuses to overwrite a ClusterObjectSet of another owner (docs/design/apply.md#writing-a-revision). Our own
    /// may exist: from an attempt that ended early, or without its label.
    async fn refuse_foreign(&self, desired: &ClusterObjectSet) -> Result<(), InstallError> {
        let name = desired.name_any();
        let found = api_request(self.revisions.get_opt(&name), "creating new Revision").await?;
        match found.and_then(|found| foreign(&found, desired)) {
            Some(why) => Err(InstallError::retry(format!(
                "creating new Revision: ClusterObjectSet {name:?} already exists and does not belong to this \
                 extension: {why}"
            ))),
            None => Ok(()),
        }
    }

    /// Creates the Secret. An existing one with the same content, from an attempt that ended early, is reused. One that a
    /// webhook changed is deleted again.
    async fn put(&self, secret: &Secret) -> Result<Secret, InstallError> {
        let name = secret.name_any();
        let context = format!("creating ref Secret {name:?}");
        let is_same = |found: &Secret| {
            found.data == secret.data
                && found.immutable == Some(true)
                && found.metadata.deletion_timestamp.is_none()
        };
        match within_deadline(self.secrets.create(&PostParams::default(), secret)).await {
            Ok(created) if is_same(&created) => return Ok(created),
            Ok(created) => {
                let preconditions = Preconditions { uid: created.uid(), resource_version: None };
                let params = DeleteParams::default().preconditions(preconditions);
                api_request(self.secrets.delete(&name, &params), &context).await?;
                return Err(InstallError::retry("an admission webhook has changed it").context(context));
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(InstallError::api(&error).context(context)),
        }
        let found = api_request(self.secrets.get_opt(&name), &context).await?;
        found.filter(is_same).ok_or_else(|| {
            InstallError::retry(format!(
                "{context}: a Secret of this name exists and is being deleted, mutable, or of different content"
            ))
        })
    }

    async fn server_side_apply(&self, revision: &ClusterObjectSet) -> Result<ClusterObjectSet, kube::Error> {
        let params = PatchParams::apply(names::EXTENSION_CONTROLLER_MANAGER).force();
        self.revisions.patch(&revision.name_any(), &params, &Patch::Apply(revision)).await
    }

    /// Verifies that every Secret of an active revision exists and has the revision as owner. `draft` yields the
    /// source of the revision and is called only if a Secret is missing.
    pub(crate) async fn verify_content(
        &self,
        revision: &ClusterObjectSet,
        draft: impl AsyncFnOnce() -> Result<Draft, InstallError>,
    ) -> Result<(), InstallError> {
        let mut missing = Vec::new();
        let keys = revision.spec.iter().flat_map(|spec| secrets(spec, &self.system_namespace));
        for key in keys.filter(|key| key.namespace == self.system_namespace) {
            let found = self.secrets.get_metadata_opt(&key.name);
            match api_request(found, format!("getting Secret {key}")).await? {
                Some(secret) => {
                    let added = self.add_owner(&key.name, &secret.metadata, revision).await;
                    added.map_err(|error| error.context("ensuring ownerReferences on ref Secrets"))?;
                }
                None => missing.push(key.name),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let draft = draft().await?;
        for name in &missing {
            self.restore(&draft, revision, name).await?;
        }
        Ok(())
    }

    async fn restore(
        &self,
        draft: &Draft,
        revision: &ClusterObjectSet,
        name: &str,
    ) -> Result<(), InstallError> {
        let number = revision.number();
        let numbered =
            tokio::task::block_in_place(|| draft.number(number, &self.system_namespace)).map_err(invalid)?;
        let Some(mut secret) = numbered.secrets.into_iter().find(|secret| secret.name_any() == name) else {
            return Err(InstallError::retry(format!("ref Secret {name:?} is missing and cannot be rebuilt")));
        };
        secret.metadata.owner_references = secret_owner(revision).map(|owner| vec![owner]);
        tracing::info!(revision = revision.name_any(), secret = name, "recreating missing ref Secret");
        self.put(&secret).await.map(drop)
    }

    /// Adds the revision as owner of the Secret, unless it already is. Fails if the Secret changed since it was
    /// read.
    async fn add_owner(
        &self,
        name: &str,
        secret: &ObjectMeta,
        revision: &ClusterObjectSet,
    ) -> Result<(), InstallError> {
        let Some(owner) = secret_owner(revision) else {
            return Ok(());
        };
        let owners = secret.owner_references.as_deref().unwrap_or_default();
        if owners.iter().any(|other| other.uid == owner.uid) {
            return Ok(());
        }
        let mut all = owners.to_vec();
        all.push(owner);
        let (uid, version) = (&secret.uid, &secret.resource_version);
        let metadata = json!({"uid": uid, "resourceVersion": version, "ownerReferences": all});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let context = format!("patching ownerReference on Secret {}/{name}", self.system_namespace);
        api_request(self.secrets.patch(name, &PatchParams::default(), &patch), context).await.map(drop)
    }
}

/// The bundle, or the name of the extension, yields no valid revision. A retry cannot succeed.
pub(crate) fn invalid(error: GenerateError) -> InstallError {
    InstallError::blocked(error)
}

/// Describes the owner of a foreign ClusterObjectSet of this name. `None` if the extension owns it, or if its
/// label names the extension and it has no other controller.
fn foreign(found: &ClusterObjectSet, desired: &ClusterObjectSet) -> Option<String> {
    let label =
        |revision: &ClusterObjectSet| revision.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default();
    let (owner_name, extension) = (label(found), label(desired));
    let mut ours = desired.owner_references().iter();
    let is_owned = ours.any(|ours| found.owner_references().iter().any(|owner| owner.uid == ours.uid));
    if is_owned || owner_name == extension && belongs_to(found, &extension) {
        return None;
    }
    let owners = found.owner_references().iter().filter(|owner| owner.controller == Some(true));
    let owners: Vec<String> = owners.map(|owner| format!("{} {:?}", owner.kind, owner.name)).collect();
    Some(match owners.is_empty() {
        true => format!("its label {} is {owner_name:?}", labels::OWNER_NAME),
        false => format!("it is controlled by {}", owners.join(", ")),
    })
}
