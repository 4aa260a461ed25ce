//! Installs the target: renders its bundle, runs the install checks, and writes the newest revision.

use std::time::Duration;

use kube::{Api, Client, ResourceExt};
use olm_api::conditions::PULLING;
use olm_api::{ClusterExtension, annotations};
use olm_controller_core::RevisionCache;
use olm_controller_core::content::target_namespaces;
use olm_controller_core::install_error::{InstallError, api_request};
use olm_oci::CanonicalRef;
use olm_request::CrdCheck;
use olm_revision::content::{self, content_digest};
use olm_revision::generate::{BundleIdentity, Draft, Extension, newest};
use olm_runtime::background::Pending;
use olm_runtime::reconcile::{RESYNC, ReconcileError};
use olm_webhook_certificates::WebhookCertificates;
use serde_json::Value;
use tokio::task::block_in_place;

use super::group::UpgradeGroups;
use super::held::{HeldPlan, NewRevision, ProposedPlan};
use super::installation::{Attempt, CreatedRevision, InstallResult, Installation, Target};
use super::memory::{Memories, RevisionFingerprint, RevisionRecord};
use super::observed::ObservedExtension;
use super::plan_keeper::PlanKeeper;
use super::plans::PlanId;
use super::revisions::{Revision, RevisionInputs};
use super::{choice, rollback};
use crate::bundles::{Bundles, RenderRequest, Rendered, SignatureVerdict, UnusableBundle};
use crate::features::Features;
use crate::preflight::{CrdVerdict, Preflight, crd_check, reject_failed_checks};
use crate::revision_writer::{AppliedRevision, RevisionPlan, RevisionWriter, invalid};

/// Time after which the status reports a pull.
const PULL_REPORT_DELAY: Duration = Duration::from_secs(5);

/// Makes bundles the newest revisions of their extensions.
pub(super) struct Installer<'a> {
    pub client: &'a Client,
    /// Namespace of the Secrets that hold revision content.
    pub system_namespace: &'a str,
    pub features: Features,
    pub extensions: &'a Api<ClusterExtension>,
    pub bundles: &'a Bundles,
    pub preflight: &'a Preflight,
    pub certificates: &'a WebhookCertificates,
    pub writer: &'a RevisionWriter,
    pub cache: &'a RevisionCache,
    pub plans: &'a PlanKeeper,
    pub groups: UpgradeGroups<'a>,
    pub memories: &'a Memories,
}

impl Installer<'_> {
    /// Makes the target the newest revision, unless it already is.
    ///
    /// # Errors
    /// The bundle is being pulled, and the status remains unchanged.
    pub(super) async fn install(
        &self,
        observed: &ObservedExtension<'_>,
        target: Target<'_>,
    ) -> Result<Installation, ReconcileError> {
        let (name, inputs) = (&observed.name, &target.inputs);
        let is_known = || Installation::unchanged(self.known_verdict(name, inputs));
        Ok(match self.rendered_and_judged(name, inputs).await {
            Ok((rendered, verdict)) => {
                let made = self.make_newest(observed, target, rendered, &verdict).await;
                Installation { verdict: Some(verdict), ..made.unwrap_or_else(|ended| *ended) }
            }
            Err(UnusableBundle::Unavailable(failure)) if self.needs_no_content(observed, inputs) => {
                tracing::warn!(extension = name, error = failure.message, "bundle content is not available");
                Installation { verdict: Installation::failed(failure).verdict, ..is_known() }
            }
            Err(UnusableBundle::Faulty(failure) | UnusableBundle::Unavailable(failure)) => {
                Installation::failed(failure)
            }
            Err(UnusableBundle::Pulling(_)) if self.needs_no_content(observed, inputs) => is_known(),
            Err(UnusableBundle::Pulling(pending)) => {
                let message = pulling(&inputs.bundle, observed, pending)?;
                Installation::new(InstallResult::Pulling(message), CrdVerdict::Safe)
            }
        })
    }

    async fn rendered(&self, name: &str, inputs: &RevisionInputs) -> Result<Rendered, UnusableBundle> {
        check_name(name).map_err(UnusableBundle::Faulty)?;
        let request = RenderRequest {
            system_namespace: self.system_namespace.to_owned(),
            namespace: inputs.namespace.clone(),
            config: inputs.config.clone(),
            features: self.features,
            operator_condition: inputs.operator_condition,
            aggregate_api_roles: inputs.aggregate_api_roles,
            namespaces: inputs.namespaces.clone(),
        };
        self.bundles.rendered(name, &inputs.bundle.image, request).await
    }

    /// Renders the bundle and judges its image by the signature policy.
    async fn rendered_and_judged(
        &self,
        name: &str,
        inputs: &RevisionInputs,
    ) -> Result<(Rendered, SignatureVerdict), UnusableBundle> {
        let rendered = self.rendered(name, inputs).await?;
        let verdict = match &rendered.image {
            Some(image) => self.bundles.judge(name, image).await.map_err(UnusableBundle::Pulling)?,
            None => SignatureVerdict::failed(InstallError::retry("image of the rendered bundle is unknown")),
        };
        Ok((rendered, verdict))
    }

    /// Verdict of the current signature policy about the image of the newest revision. `None` if it is not known
    /// yet.
    pub(super) async fn judge_newest(&self, name: &str) -> Option<SignatureVerdict> {
        let image = self.memories.with(name, |memory| memory.newest.as_ref()?.image.clone())?;
        self.bundles.judge(name, &image).await.ok()
    }

    /// Makes the rendered bundle the newest revision, unless it already is. The signature policy must accept a new
    /// revision, and no rule of the extension may hold it.
    async fn make_newest(
        &self,
        observed: &ObservedExtension<'_>,
        target: Target<'_>,
        rendered: Rendered,
        verdict: &SignatureVerdict,
    ) -> Attempt<Installation> {
        let (name, rules) = (&observed.name, &observed.rules);
        let (failed_checks, image) = (rendered.failed_checks.clone(), rendered.image.clone());
        let (warnings, digest) = (rendered.warnings.clone(), rendered.plan.clone());
        let draft = draft(name, &target.inputs, rendered)?
            .annotated(
                annotations::EXT_UNINSTALL_POLICY,
                rules.uninstall_policy.map(|policy| policy.as_str()),
            )
            .annotated(annotations::EXT_REPLACE_IMMUTABLE, rules.replaces_immutable.then_some("Allow"));
        let plan = self.writer.plan(name, &draft, newest(&self.cache.of_extension(name))).await?;
        let before = plan.newest().map(Revision::of);
        if plan.makes_revision() && rollback::refuses(before.as_ref(), rules, &content_digest(draft.phases()))
        {
            return Ok(Installation::new(InstallResult::RolledBack, CrdVerdict::Safe));
        }
        let id = PlanId { revision: plan.number(), digest: digest.clone() };
        let mut proposed = (plan.makes_revision() && rules.can_hold())
            .then(|| self.proposed(observed, &target, &plan, &draft, image.as_ref(), &digest));
        if let Some(proposed) = &mut proposed
            && let Some(held) = self.plans.hold(observed, proposed).await?
        {
            return Ok(Installation::new(InstallResult::Held(Box::new(held)), CrdVerdict::Safe));
        }
        let checked = self.checked(observed, &target.inputs, &draft, &plan, verdict, &failed_checks);
        let crds = checked.await?;
        if plan.makes_revision() {
            self.hold_last(observed, &target, proposed.as_mut(), &crds).await?;
        }
        let (draft, adopted) = self.adopting(observed, &target.inputs, draft, &plan).await?;
        let written = self.writer.carry_out(name, &draft, plan).await;
        let AppliedRevision { created, set: revision } =
            written.map_err(|failure| self.unfinished(name, failure))?;
        let newest = RevisionFingerprint::of(&revision);
        let (inputs, targets) = (target.inputs, target_namespaces(content::objects(draft.phases())));
        let record = RevisionRecord { inputs, newest, crds: crds.clone(), image, plan: id };
        self.memories.with(name, |memory| (memory.newest, memory.targets) = (Some(record), Some(targets)));
        if !created {
            // No event follows an edit that changes nothing of the failed revision.
            let requeue = rules.rollback && rollback::has_failed(&Revision::of(&revision));
            return Ok(Installation { requeue, ..Installation::unchanged(crds) });
        }
        self.preflight.forget(name);
        let warnings: Vec<String> = warnings.into_iter().chain(draft.warning).collect();
        warnings.iter().for_each(|warning| tracing::warn!(extension = name, warning, "bundle warning"));
        // Without an override, the blocker would have held the plan.
        let overridden = proposed.and_then(|plan| plan.change.blocker);
        let made = CreatedRevision { set: revision, before, warnings, overridden, adopted };
        Ok(Installation::new(InstallResult::Created(Box::new(made)), crds))
    }

    /// Result of a failed write of a revision. The next pass reads its content again.
    fn unfinished(&self, name: &str, failure: InstallError) -> Box<Installation> {
        self.memories.content_lost(name);
        Box::new(Installation { unfinished: true, ..Installation::failed(failure) })
    }

    /// Ends the attempt if what is true right before the revision is created holds its plan, or if another member of the
    /// upgrade group is not ready.
    async fn hold_last(
        &self,
        observed: &ObservedExtension<'_>,
        target: &Target<'_>,
        proposed: Option<&mut ProposedPlan>,
        crds: &CrdVerdict,
    ) -> Attempt<()> {
        if let Some(proposed) = proposed
            && let Some(held) = self.held_now(observed, proposed).await?
        {
            let held = InstallResult::Held(Box::new(held));
            return Err(Box::new(Installation::new(held, CrdVerdict::Safe)));
        }
        match self.groups.awaited_member(&observed.name, &target.inputs.bundle, target.together) {
            Some(cause) => {
                let awaits = Installation::new(InstallResult::AwaitsGroup(cause), crds.clone());
                Err(Box::new(Installation { requeue: true, ..awaits }))
            }
            None => Ok(()),
        }
    }

    /// Runs the install checks of the plan, if it changes anything, and returns the verdict of the CRD check.
    async fn checked(
        &self,
        observed: &ObservedExtension<'_>,
        inputs: &RevisionInputs,
        draft: &Draft,
        plan: &RevisionPlan,
        verdict: &SignatureVerdict,
        failed_checks: &[String],
    ) -> Attempt<CrdVerdict> {
        if plan.makes_revision() {
            verdict.accepted()?;
            reject_failed_checks(failed_checks)?;
        }
        let is_handed_on = plan.newest().is_some_and(|newest| {
            newest.annotations().get(annotations::EXT_SERVICE_ACCOUNT) != inputs.account.as_ref()
        });
        if (plan.makes_revision() || is_handed_on)
            && let Some(missing) = self.missing_rights(&observed.name, inputs, draft).await?
        {
            return Err(Installation::failed_for_now(missing));
        }
        if plan.makes_revision() {
            return self.before_revision(observed, inputs, draft).await;
        }
        Ok(self.known_verdict(&observed.name, inputs))
    }

    /// The plan as held by the current annotations of the extension, its ExtensionPlan and the OperatorCondition of
    /// the operator that it replaces: an approval may have been revoked since they were observed.
    async fn held_now(
        &self,
        observed: &ObservedExtension<'_>,
        plan: &mut ProposedPlan,
    ) -> Result<Option<HeldPlan>, InstallError> {
        let live = api_request(self.extensions.get_opt(&observed.name), "reading the approval").await?;
        let same = |live: &ClusterExtension| live.metadata.uid == observed.extension.metadata.uid;
        let live = live.filter(same).ok_or_else(|| InstallError::retry("the extension has been deleted"))?;
        self.plans.hold_live(&live, &self.features.rules(&live).approval, plan).await
    }

    /// Plan of the revision that is to be created, with the image and the digest of the rendered bundle.
    fn proposed(
        &self,
        observed: &ObservedExtension<'_>,
        target: &Target<'_>,
        plan: &RevisionPlan,
        draft: &Draft,
        image: Option<&CanonicalRef>,
        digest: &str,
    ) -> ProposedPlan {
        let image = image.map(|image| image.digest().to_string()).unwrap_or_default();
        let new = NewRevision {
            extension: &observed.name,
            number: plan.number(),
            existing: plan.existing(),
            content: plan.content(),
            target: &target.inputs.bundle,
            catalog: target.catalog,
            image: &image,
            digest,
            phases: draft.phases(),
            namespace: &target.inputs.namespace,
        };
        block_in_place(|| ProposedPlan::of(&new, |id| self.plans.lacks(observed.extension, id)))
    }

    /// Rights that the account lacks which applies the objects of the draft, or what policies deny, as a failure.
    async fn missing_rights(
        &self,
        name: &str,
        inputs: &RevisionInputs,
        draft: &Draft,
    ) -> Result<Option<InstallError>, InstallError> {
        let objects: Vec<Value> = content::objects(draft.phases()).cloned().collect();
        let missing = self.preflight.missing_rights(name, inputs.account.as_deref(), &objects).await?;
        Ok(missing.map(InstallError::retry))
    }

    /// Verifies that every Secret of every active revision exists and has its owner, and recreates missing ones. If
    /// the extension was edited since, a missing Secret cannot be rebuilt.
    ///
    /// # Errors
    /// A Secret is missing. Those of the other revisions were recreated.
    pub(super) async fn verify_content(&self, observed: &ObservedExtension<'_>) -> Result<(), InstallError> {
        let mut verified = Ok(());
        for revision in observed.revisions.iter().filter(|revision| revision.is_active()) {
            let values = Revision::of(revision);
            let inputs = observed.inputs(&choice::of_revision(&values, &observed.rules));
            let inputs = RevisionInputs { namespaces: values.namespaces, ..inputs };
            let draft = async || {
                let rendered = self.rendered(&observed.name, &inputs).await;
                let rendered = rendered.map_err(|unusable| match unusable {
                    UnusableBundle::Faulty(failure) | UnusableBundle::Unavailable(failure) => failure,
                    UnusableBundle::Pulling(_) => {
                        InstallError::retry(format!("pulling {}", inputs.bundle.image))
                    }
                });
                draft(&observed.name, &inputs, rendered?)
            };
            if let Err(failure) = self.writer.verify_content(revision, draft).await {
                verified = Err(failure.context(format!("content of revision {}", revision.name_any())));
            }
        }
        verified
    }

    /// Prepares a new revision: checks watched namespaces, APIServices and CRDs, and creates the certificate Secrets
    /// that its pods mount.
    async fn before_revision(
        &self,
        observed: &ObservedExtension<'_>,
        inputs: &RevisionInputs,
        draft: &Draft,
    ) -> Attempt<CrdVerdict> {
        let (extension, name) = (observed.extension, &observed.name);
        let check = crd_check(extension, observed.rules.crd_check);
        let missing = self.preflight.missing_namespaces(&inputs.watched()).await?;
        if !missing.is_empty() {
            let text = format!("namespaces to watch do not exist: {}", missing.join(", "));
            return Err(Installation::failed_for_now(InstallError::retry(text)));
        }
        let objects: Vec<&Value> = content::objects(draft.phases()).collect();
        let adopts = observed.adopts();
        let foreign = self.preflight.foreign_api_services(name, &objects, adopts).await?;
        if !foreign.is_empty() {
            return Err(Installation::failed_for_now(InstallError::retry(foreign.join("; "))));
        }
        let crds = match check {
            Some(check) => self.preflight.check_crds(name, &objects, check).await?,
            None => CrdVerdict::Safe,
        };
        if let CrdVerdict::Held(text) = &crds {
            // Custom resources may be fixed at any time.
            let requeue = check == Some(CrdCheck::Live);
            let failed = Installation::failed(InstallError::retry(text));
            return Err(Box::new(Installation { crds, requeue, ..failed }));
        }
        let injections = olm_bundle::injections(&objects);
        self.certificates.ensure(extension, &injections).await?;
        Ok(crds)
    }

    /// Reports whether the bundle is installed or rolling out, with unchanged settings. Its revision does not need the
    /// bundle content.
    fn needs_no_content(&self, observed: &ObservedExtension<'_>, inputs: &RevisionInputs) -> bool {
        let wanted = &inputs.bundle;
        let is_installed = observed.states.installed.as_ref().is_some_and(|installed| {
            installed.bundle.name == wanted.name && installed.bundle.version == wanted.version
        });
        (is_installed || observed.is_newest(wanted))
            && !self.memories.with(&observed.name, |memory| observed.inputs_changed(inputs, memory))
    }

    /// CRD verdict of the newest revision, if it was made from these inputs.
    fn known_verdict(&self, name: &str, inputs: &RevisionInputs) -> CrdVerdict {
        self.memories.with(name, |memory| {
            let same = memory.newest.as_ref().filter(|made| made.inputs == *inputs);
            same.map(|made| made.crds.clone()).unwrap_or_default()
        })
    }
}

/// Message that reports the pull of a new target. An error means that the status remains unchanged.
fn pulling(
    target: &BundleIdentity,
    observed: &ObservedExtension<'_>,
    Pending(since): Pending,
) -> Result<String, ReconcileError> {
    let ObservedExtension { rules, states, .. } = observed;
    let is_restored =
        || states.newest_active().is_some_and(|newest| rollback::refusal(newest, rules).is_some());
    let is_upgrade = states.newest_active().is_some();
    let may_wait = rules.approval.can_hold() || rules.can_hold() && is_upgrade || is_restored();
    match PULL_REPORT_DELAY.saturating_sub(since.elapsed()) {
        // A plan that may wait, or be refused, is not progress.
        _ if observed.is_newest(target) || observed.is_retrying() || may_wait => {
            Err(ReconcileError::pending(RESYNC))
        }
        Duration::ZERO => Ok(format!("{PULLING}{}", target.image)),
        left => Err(ReconcileError::pending(left)),
    }
}

/// Draft of a revision.
fn draft(name: &str, inputs: &RevisionInputs, rendered: Rendered) -> Result<Draft, InstallError> {
    let Rendered { objects, properties, max_openshift_version, .. } = rendered;
    let owner = Extension {
        name: name.to_owned(),
        uid: inputs.uid.clone().unwrap_or_default(),
        progress_deadline_minutes: inputs.deadline,
    };
    let identity = BundleIdentity { properties, max_openshift_version, ..inputs.bundle.clone() };
    let draft = block_in_place(|| Draft::new(owner, &identity, olm_bundle::distinct(objects)));
    let draft = draft.map_err(invalid)?.watching(inputs.namespaces.as_deref());
    Ok(draft.annotated(annotations::EXT_SERVICE_ACCOUNT, inputs.account.as_deref()))
}

/// Limits the length of the extension name: names of revisions are label values.
fn check_name(name: &str) -> Result<(), InstallError> {
    const LONGEST: usize = 61;
    if name.len() <= LONGEST {
        return Ok(());
    }
    Err(InstallError::blocked(format!(
        "metadata.name is too long: {} characters, at most {LONGEST} are allowed because revisions are named after it",
        name.len()
    )))
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
