//! ExtensionPlans: plans that wait, as objects that can be approved (docs/design/approvals.md#plan-objects).
//!
//! [`content()`] describes a plan, [`upkeep`] decides which objects to write. The cache holds no lists of changes.

mod content;
mod upkeep;

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use olm_api::extension_plan::{PlanPhase, PlannedRevision as Content};
use olm_api::{ClusterExtension, ExtensionPlan, ExtensionPlanSpec, labels};
use olm_controller_core::install_error::{InstallError, api_request};
use olm_revision::generate::extension_owner;
use olm_runtime::listing;
use olm_runtime::watches::watch;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(super) use content::{PlanSource, content};
pub(super) use upkeep::CurrentPlan;
pub(super) use upkeep::PlanId;
use upkeep::{Step, steps};

/// Access to the ExtensionPlans.
pub(super) struct Plans {
    api: Api<ExtensionPlan>,
    store: Store<ExtensionPlan>,
    /// Taken by [`Plans::follow`].
    writer: Mutex<Option<Writer<ExtensionPlan>>>,
    listed: CancellationToken,
}

impl Plans {
    pub(super) fn new(client: Client) -> Self {
        let (store, writer) = reflector::store();
        Self {
            api: Api::all(client),
            store,
            writer: Mutex::new(Some(writer)),
            listed: CancellationToken::new(),
        }
    }

    /// Follows the ExtensionPlans until dropped. Calls `changed` with the owner of a plan that was approved, edited or
    /// deleted, and `listed` after each list.
    pub(super) async fn follow(&self, changed: impl Fn(&str), listed: impl Fn()) {
        let Some(mut writer) = self.writer.lock().take() else { return };
        let mut events = pin!(watch(self.api.clone(), listing::config()));
        while let Some(event) = events.next().await {
            let mut event = match event {
                Ok(event) => event,
                Err(error) => {
                    tracing::warn!(%error, "watch of ExtensionPlans failed");
                    continue;
                }
            };
            if let Event::Apply(plan) | Event::InitApply(plan) | Event::Delete(plan) = &mut event {
                shorten(plan);
            }
            let owner = match &event {
                // Our own status writes trigger no reconcile.
                Event::Apply(plan) if !self.has_generation(plan) => owner(plan),
                Event::Delete(plan) => owner(plan),
                _ => None,
            };
            writer.apply_watcher_event(&event);
            if matches!(event, Event::InitDone) {
                self.listed.cancel();
                listed();
            }
            owner.iter().for_each(|owner| changed(owner));
        }
    }

    fn has_generation(&self, plan: &ExtensionPlan) -> bool {
        let stored = self.store.get(&ObjectRef::from_obj(plan));
        stored.is_some_and(|stored| {
            stored.uid() == plan.uid() && stored.metadata.generation == plan.metadata.generation
        })
    }

    /// ExtensionPlan of the extension in the cache.
    pub(super) fn cached(&self, extension: &ClusterExtension, id: &PlanId) -> Option<Arc<ExtensionPlan>> {
        let found = self.store.get(&ObjectRef::new(&id.name(&extension.name_any())));
        found.filter(|plan| id.is_of(plan, extension))
    }

    /// Reports whether the plan is approved now.
    pub(super) async fn approves(
        &self,
        extension: &ClusterExtension,
        id: &PlanId,
    ) -> Result<bool, InstallError> {
        let name = id.name(&extension.name_any());
        let found = api_request(self.api.get_opt(&name), format!("reading ExtensionPlan {name}")).await?;
        Ok(found.is_some_and(|plan| id.is_of(&plan, extension) && plan.spec.approved))
    }

    /// Brings the ExtensionPlans of the extension in line with its current plan. Does nothing before the first list.
    pub(super) async fn record(
        &self,
        extension: &ClusterExtension,
        current: &CurrentPlan,
    ) -> Result<(), InstallError> {
        if !self.listed.is_cancelled() {
            return Ok(());
        }
        let name = current.id.name(&extension.name_any());
        let mut stored = self.store.state();
        stored.retain(|plan| plan.name_any() == name || plan.belongs_to(extension.metadata.uid.as_deref()));
        for step in steps(extension, &stored, current) {
            self.carry_out(extension, step, &current.phase).await?;
        }
        Ok(())
    }

    async fn carry_out(
        &self,
        extension: &ClusterExtension,
        step: Step,
        phase: &PlanPhase,
    ) -> Result<(), InstallError> {
        match step {
            Step::Delete { name, uid } => {
                let params =
                    DeleteParams::default().preconditions(Preconditions { uid, resource_version: None });
                let deleted = self.api.delete(&name, &params);
                api_request(deleted, format!("deleting ExtensionPlan {name}")).await?;
                tracing::info!(plan = name, "deleted ExtensionPlan");
            }
            Step::SetPhase { name, uid, phase } => self.set_phase(&name, uid.as_deref(), &phase).await?,
            Step::Create(content) => {
                let (params, plan) = (PostParams::default(), object(extension, *content));
                let created = self.api.create(&params, &plan);
                let plan =
                    api_request(created, format!("creating ExtensionPlan {}", plan.name_any())).await?;
                tracing::info!(plan = plan.name_any(), "created ExtensionPlan");
                self.set_phase(&plan.name_any(), plan.uid().as_deref(), phase).await?;
            }
        }
        Ok(())
    }

    async fn set_phase(&self, name: &str, uid: Option<&str>, phase: &PlanPhase) -> Result<(), InstallError> {
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "status": {"phase": phase}}));
        let params = PatchParams::default();
        let written = self.api.patch_status(name, &params, &patch);
        api_request(written, format!("writing the phase of ExtensionPlan {name}")).await?;
        tracing::info!(plan = name, %phase, "set phase of ExtensionPlan");
        Ok(())
    }
}

/// Removes the fields that no decision needs.
fn shorten(plan: &mut ExtensionPlan) {
    plan.metadata.managed_fields = None;
    let Content { objects, permissions_gained, crd_findings, summary, .. } = &mut plan.spec.plan;
    objects.clear();
    permissions_gained.clear();
    crd_findings.clear();
    summary.clear();
}

/// Name of the extension that owns the plan.
fn owner(plan: &ExtensionPlan) -> Option<String> {
    let owner = plan.controller().filter(|owner| owner.kind == labels::OWNER_KIND_EXTENSION)?;
    Some(owner.name.clone())
}

/// New ExtensionPlan with this content.
fn object(extension: &ClusterExtension, plan: Content) -> ExtensionPlan {
    let name = extension.name_any();
    let id = PlanId { revision: plan.revision, digest: plan.digest.clone() };
    let owner = extension_owner(&name, extension.metadata.uid.as_deref().unwrap_or_default());
    let metadata = ObjectMeta {
        name: Some(id.name(&name)),
        labels: Some([(labels::OWNER_NAME.to_owned(), name)].into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    ExtensionPlan { metadata, spec: ExtensionPlanSpec { approved: false, plan }, status: None }
}
