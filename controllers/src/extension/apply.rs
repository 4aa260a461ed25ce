//! Makes the wanted content the newest revision of an extension (spec 05 §§4.4–4.6). Idempotent: every step may
//! have been done by an attempt that ended before the next.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterObjectSet, labels, names};
use olm_revision::content::{ContentPhase, resolve, secrets};
use olm_revision::generate::{Decision, Draft, GenerateError, decide, newest, outdated, secret_owner};
use olm_service::cluster::within_deadline;
use serde_json::json;

use crate::failure::Failure;

/// Where revisions are written.
pub(crate) struct Revisions {
    client: Client,
    sets: Api<ClusterObjectSet>,
    secrets: Api<Secret>,
    system_namespace: String,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// A revision was made.
    pub created: bool,
    /// UID and generation of the revision in force.
    pub newest: (Option<String>, Option<i64>),
}

/// What is to be done, and what it was decided from.
pub(crate) struct Plan {
    decision: Decision,
    existing: Vec<ClusterObjectSet>,
}

impl Plan {
    /// Whether there will be another revision.
    pub(crate) fn makes_revision(&self) -> bool {
        matches!(self.decision, Decision::New { .. })
    }
}

impl Revisions {
    /// Revisions of a cluster, with their Secrets in `system_namespace`.
    pub(crate) fn new(client: Client, system_namespace: &str) -> Self {
        Self {
            sets: Api::all(client.clone()),
            secrets: Api::namespaced(client.clone(), system_namespace),
            client,
            system_namespace: system_namespace.to_owned(),
        }
    }

    /// All revisions of the extension, live.
    pub(crate) async fn list(&self, extension: &str) -> Result<Vec<ClusterObjectSet>, Failure> {
        let selector = ListParams::default().labels(&format!("{}={extension}", labels::OWNER_NAME));
        let list = within_deadline(self.sets.list(&selector)).await;
        Ok(list.map_err(|error| Failure::api(&error).context("listing revisions"))?.items)
    }

    /// What is to be done so that the draft becomes the newest revision.
    pub(crate) async fn plan(&self, extension: &str, draft: &Draft) -> Result<Plan, Failure> {
        let existing = self.list(extension).await?;
        let content = self.content(newest(&existing)).await?;
        let decision = tokio::task::block_in_place(|| {
            decide(draft, &existing, content.as_deref(), &self.system_namespace)
        });
        Ok(Plan { decision: decision.map_err(invalid)?, existing })
    }

    /// Makes the draft the newest revision, unless it is.
    pub(crate) async fn carry_out(
        &self,
        extension: &str,
        draft: &Draft,
        plan: Plan,
    ) -> Result<Applied, Failure> {
        let Plan { decision, existing } = plan;
        let (current, created) = match (decision, newest(&existing)) {
            (Decision::Keep, Some(current)) => (current.clone(), false),
            (Decision::Patch(set), _) => {
                let name = set.name_any();
                let patched = self.server_side_apply(&set).await;
                (patched.map_err(|e| e.context(format!("patching {name} Revision")))?, false)
            }
            (Decision::New { number }, _) => (self.create(extension, draft, number, &existing).await?, true),
            // Kept is only what exists.
            (Decision::Keep, None) => return Err(Failure::retry("no revision to keep")),
        };
        if !created {
            self.ensure_secrets(draft, &current).await?;
        }
        Ok(Applied { created, newest: (current.uid(), current.metadata.generation) })
    }

    /// Content of the revision; `None` where it is lost. A read that fails is no answer: content that is merely out of
    /// reach must not be taken for different.
    async fn content(&self, set: Option<&ClusterObjectSet>) -> Result<Option<Vec<ContentPhase>>, Failure> {
        let Some(spec) = set.and_then(|set| set.spec.as_ref()) else { return Ok(None) };
        let mut found = BTreeMap::new();
        for key in secrets(spec, &self.system_namespace) {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
            let read = within_deadline(api.get_opt(&key.name)).await;
            let read = read.map_err(|error| Failure::api(&error).context(format!("getting Secret {key}")))?;
            if let Some(secret) = read {
                found.insert(key, secret);
            }
        }
        Ok(resolve(spec, &self.system_namespace, &found).ok())
    }

    async fn create(
        &self,
        extension: &str,
        draft: &Draft,
        number: i64,
        existing: &[ClusterObjectSet],
    ) -> Result<ClusterObjectSet, Failure> {
        let revision =
            tokio::task::block_in_place(|| draft.number(number, &self.system_namespace)).map_err(invalid)?;
        for old in outdated(existing) {
            let deleted = within_deadline(self.sets.delete(&old.name_any(), &DeleteParams::default())).await;
            ignore(deleted, |status| status.is_not_found()).map_err(|error| {
                Failure::api(&error).context("garbage collecting old revisions: deleting archived revision")
            })?;
        }
        for secret in &revision.secrets {
            let created = within_deadline(self.secrets.create(&PostParams::default(), secret)).await;
            ignore(created, |status| status.is_already_exists()).map_err(|error| {
                Failure::api(&error).context(format!("creating ref Secret {:?}", secret.name_any()))
            })?;
        }
        let set =
            self.server_side_apply(&revision.set).await.map_err(|e| e.context("creating new Revision"))?;
        tracing::info!(extension, revision = set.name_any(), "new revision");
        for secret in &revision.secrets {
            self.own(&secret.name_any(), secret.owner_references(), &set)
                .await
                .map_err(|error| error.context("patching ownerReferences on ref Secrets"))?;
        }
        Ok(set)
    }

    async fn server_side_apply(&self, set: &ClusterObjectSet) -> Result<ClusterObjectSet, Failure> {
        let params = PatchParams::apply(names::EXTENSION_CONTROLLER_MANAGER).force();
        let applied = within_deadline(self.sets.patch(&set.name_any(), &params, &Patch::Apply(set))).await;
        applied.map_err(|error| Failure::api(&error))
    }

    /// Sees that every Secret of the revision exists and goes with it; one that is gone is made again from the draft,
    /// whose names are content hashes (spec 05 §18.25).
    async fn ensure_secrets(&self, draft: &Draft, set: &ClusterObjectSet) -> Result<(), Failure> {
        let Some(spec) = &set.spec else { return Ok(()) };
        let referenced: BTreeSet<String> = secrets(spec, &self.system_namespace)
            .into_iter()
            .filter(|key| key.namespace == self.system_namespace)
            .map(|key| key.name)
            .collect();
        let context = |error: Failure| error.context("ensuring ownerReferences on ref Secrets");
        for name in referenced {
            let found = within_deadline(self.secrets.get_opt(&name)).await;
            match found.map_err(|error| context(Failure::api(&error)))? {
                Some(secret) => self.own(&name, secret.owner_references(), set).await.map_err(context)?,
                None => self.restore(draft, set, &name).await?,
            }
        }
        Ok(())
    }

    async fn restore(&self, draft: &Draft, set: &ClusterObjectSet, name: &str) -> Result<(), Failure> {
        let number = olm_revision::generate::number_of(set);
        let revision =
            tokio::task::block_in_place(|| draft.number(number, &self.system_namespace)).map_err(invalid)?;
        let Some(mut secret) = revision.secrets.into_iter().find(|secret| secret.name_any() == name) else {
            return Err(Failure::retry(format!("ref Secret {name:?} is missing and cannot be rebuilt")));
        };
        secret.metadata.owner_references = secret_owner(set).map(|owner| vec![owner]);
        tracing::info!(revision = set.name_any(), secret = name, "missing ref Secret is made again");
        let created = within_deadline(self.secrets.create(&PostParams::default(), &secret)).await;
        ignore(created, |status| status.is_already_exists())
            .map_err(|error| Failure::api(&error).context(format!("creating ref Secret {name:?}")))
    }

    /// Adds the revision as owner of the Secret, unless it is.
    async fn own(
        &self,
        name: &str,
        owners: &[OwnerReference],
        set: &ClusterObjectSet,
    ) -> Result<(), Failure> {
        let Some(owner) = secret_owner(set) else {
            return Ok(());
        };
        if owners.iter().any(|other| other.uid == owner.uid) {
            return Ok(());
        }
        let mut all = owners.to_vec();
        all.push(owner);
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": all}}));
        let patched = within_deadline(self.secrets.patch(name, &PatchParams::default(), &patch)).await;
        let context = format!("patching ownerReference on Secret {}/{name}", self.system_namespace);
        patched.map(drop).map_err(|error| Failure::api(&error).context(context))
    }
}

/// The bundle, or the extension's name, does not make a revision; another one is needed.
pub(crate) fn invalid(error: GenerateError) -> Failure {
    Failure::blocked(error)
}

/// Success, or an answer that means the same.
fn ignore<T>(
    result: Result<T, kube::Error>,
    fine: impl Fn(&kube::core::Status) -> bool,
) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if fine(&status) => Ok(()),
        Err(error) => Err(error),
    }
}
