//! Installs the target: renders its bundle, runs the install checks, and writes the newest revision.

use std::time::Duration;

use futures::FutureExt;
use kube::ResourceExt;
use olm_api::conditions::PULLING;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_bundle::rights::Rights;
use olm_oci::CanonicalRef;
use olm_request::CrdCheck;
use olm_revision::content::{self, content_digest};
use olm_revision::generate::{BundleIdentity, Draft, Extension, newest};
use olm_runtime::background::Pending;
use olm_runtime::reconcile::{RESYNC, ReconcileError};
use serde_json::Value;
use tokio::task::block_in_place;

use super::decide::{Observed, RevisionInputs};
use super::group::Together;
use super::held::{HeldPlan, NewRevision, Plan};
use super::memory::{self, RevisionFingerprint};
use super::namespaces::target_namespaces;
use super::plans::PlanId;
use super::revisions::Revision;
use super::rollback::{self, RollbackOutcome};
use super::{Context, choice};
use crate::bundles::{RenderRequest, Rendered, SignatureVerdict, UnusableBundle};
use crate::install_error::{ErrorClass, InstallError, api_request};
use crate::preflight::{CrdVerdict, crd_check, reject_failed_checks};
use crate::revision_writer::{AppliedRevision, RevisionPlan, invalid};

/// Time after which the status reports a pull.
const PULL_REPORT_DELAY: Duration = Duration::from_secs(5);

/// Outcome of an installation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Installation {
    /// `Ok` if the bundle is active, else the cause.
    pub applied: Result<(), InstallError>,
    /// New revision, if one was created.
    pub made: Option<CreatedRevision>,
    /// Verdict of the CRD check. `Safe` if the check did not run.
    pub definitions: CrdVerdict,
    /// Verdict of the signature policy about the image, if it was judged.
    pub verdict: Option<SignatureVerdict>,
    /// Warnings to publish with a new revision.
    pub warnings: Vec<String>,
    /// `true` if the missing objects may appear at any time.
    pub requeue: bool,
    /// `true` if writing the Secrets of the newest revision failed midway. The next attempt reuses those that
    /// exist.
    pub unfinished: bool,
    /// Plan that waits instead of a new revision.
    pub held: Option<HeldPlan>,
    /// Blocker that an annotation overrode for the new revision.
    pub overridden: Option<String>,
    /// Reason for which a rollback prevents a new revision, or is prevented.
    pub rollback: Option<RollbackOutcome>,
    /// Objects that the new revision adopts.
    pub adopted: Vec<String>,
    /// Reason for which the new revision waits for another member of the upgrade group.
    pub awaited: Option<String>,
}

/// Newly created revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CreatedRevision {
    pub set: ClusterObjectSet,
    /// Newest revision before this one.
    pub before: Option<Revision>,
}

impl Installation {
    fn failed(failure: InstallError) -> Self {
        let verdict = (failure.class == ErrorClass::Rejected).then(|| Err(failure.clone()));
        Self { applied: Err(failure), verdict, ..Self::unchanged(CrdVerdict::Safe) }
    }

    pub(super) fn unchanged(definitions: CrdVerdict) -> Self {
        Self {
            applied: Ok(()),
            made: None,
            definitions,
            verdict: None,
            warnings: Vec::new(),
            requeue: false,
            unfinished: false,
            held: None,
            overridden: None,
            rollback: None,
            adopted: Vec::new(),
            awaited: None,
        }
    }

    fn held(plan: HeldPlan) -> Self {
        Self { held: Some(plan), ..Self::unchanged(CrdVerdict::Safe) }
    }

    fn refused() -> Self {
        Self { rollback: Some(RollbackOutcome::Refused), ..Self::unchanged(CrdVerdict::Safe) }
    }

    pub(super) fn not_restored(why: String, requeue: bool) -> Self {
        let rollback = Some(RollbackOutcome::NotRestored(why));
        Self { rollback, requeue, ..Self::unchanged(CrdVerdict::Safe) }
    }
}

impl Context {
    /// Makes the target, a bundle of this catalog, the newest revision, unless it already is.
    ///
    /// # Errors
    /// The bundle is being pulled, and the status remains unchanged.
    pub(super) async fn install(
        &self,
        observed: &Observed<'_>,
        inputs: RevisionInputs,
        catalog: Option<&str>,
        together: &Together,
    ) -> Result<Installation, ReconcileError> {
        let name = &observed.name;
        Ok(match self.rendered_and_judged(name, &inputs).await {
            Ok((rendered, verdict)) => {
                let made = self.make_newest(observed, (inputs, together), rendered, (&verdict, catalog));
                let installation = made.boxed().await.unwrap_or_else(Installation::failed);
                Installation { verdict: Some(verdict), ..installation }
            }
            Err(UnusableBundle::Unavailable(failure)) if self.needs_no_content(observed, &inputs) => {
                tracing::warn!(extension = name, error = failure.message, "bundle content is not available");
                let definitions = self.known_verdict(name, &inputs);
                Installation { applied: Ok(()), definitions, ..Installation::failed(failure) }
            }
            Err(UnusableBundle::Faulty(failure) | UnusableBundle::Unavailable(failure)) => {
                Installation::failed(failure)
            }
            Err(UnusableBundle::Pulling(_)) if self.needs_no_content(observed, &inputs) => {
                Installation::unchanged(self.known_verdict(name, &inputs))
            }
            Err(UnusableBundle::Pulling(pending)) => {
                Installation::failed(pulling(&inputs.bundle, observed, pending)?)
            }
        })
    }

    async fn rendered(&self, name: &str, inputs: &RevisionInputs) -> Result<Rendered, UnusableBundle> {
        check_name(name).map_err(UnusableBundle::Faulty)?;
        let request = RenderRequest {
            system_namespace: self.parts.system_namespace.clone(),
            namespace: inputs.namespace.clone(),
            config: inputs.config.clone(),
            features: self.parts.features,
            operator_condition: inputs.operator_condition,
            aggregate_api_roles: inputs.aggregate_api_roles,
            namespaces: inputs.namespaces.clone(),
        };
        self.parts.bundles.rendered(name, &inputs.bundle.image, request).boxed().await
    }

    /// Renders the bundle and judges its image by the signature policy.
    async fn rendered_and_judged(
        &self,
        name: &str,
        inputs: &RevisionInputs,
    ) -> Result<(Rendered, SignatureVerdict), UnusableBundle> {
        let rendered = self.rendered(name, inputs).await?;
        let verdict = match &rendered.image {
            Some(image) => {
                self.parts.bundles.judge(name, image).boxed().await.map_err(UnusableBundle::Pulling)?
            }
            None => Err(InstallError::retry("image of the rendered bundle is unknown")),
        };
        Ok((rendered, verdict))
    }

    /// Verdict of the current signature policy about the image of the newest revision. `None` if it is not known
    /// yet.
    pub(super) async fn judge_newest(&self, name: &str) -> Option<SignatureVerdict> {
        let image = self.memories.with(name, |memory| memory.newest.as_ref()?.image.clone())?;
        self.parts.bundles.judge(name, &image).boxed().await.ok()
    }

    /// Makes the rendered bundle the newest revision, unless it already is. The signature policy must accept a new
    /// revision, and no rule of the extension may hold it.
    async fn make_newest(
        &self,
        observed: &Observed<'_>,
        (inputs, together): (RevisionInputs, &Together),
        rendered: Rendered,
        (verdict, catalog): (&SignatureVerdict, Option<&str>),
    ) -> Result<Installation, InstallError> {
        let name = observed.name.clone();
        let (failed_checks, image) = (rendered.failed_checks.clone(), rendered.image.clone());
        let (mut warnings, digest) = (rendered.warnings.clone(), rendered.plan.clone());
        let policy = observed.rules.uninstall_policy.map(|policy| policy.as_str());
        let replaces = observed.rules.replaces_immutable.then_some("Allow");
        let draft = draft(&name, &inputs, rendered)?
            .annotated(annotations::EXT_UNINSTALL_POLICY, policy)
            .annotated(annotations::EXT_REPLACE_IMMUTABLE, replaces);
        let plan = self.revisions.plan(&name, &draft, newest(&self.revisions_of(&name))).boxed().await?;
        let before = plan.newest().map(Revision::of);
        if plan.makes_revision()
            && rollback::refuses(before.as_ref(), &observed.rules, &content_digest(draft.phases()))
        {
            return Ok(Installation::refused());
        }
        let id = PlanId { revision: plan.number(), digest: digest.clone() };
        let mut governed = (plan.makes_revision() && observed.rules.can_hold())
            .then(|| self.planned(observed, &plan, (&inputs, catalog), (image.as_ref(), &draft, &digest)));
        if let Some(governed) = &mut governed
            && let Some(held) = self.hold(observed, governed).boxed().await?
        {
            return Ok(Installation::held(held));
        }
        let checked =
            self.checked(observed, &inputs, &draft, &plan, (verdict, &failed_checks)).boxed().await?;
        let others = (&plan, &inputs.bundle, together);
        let mut installation = self.cleared(observed, checked, governed.as_mut(), others).boxed().await?;
        if installation.applied.is_err() || installation.held.is_some() || installation.awaited.is_some() {
            return Ok(installation);
        }
        let (draft, adopted) = self.adopting(observed, &inputs, draft, &plan).boxed().await?;
        let AppliedRevision { created, set } =
            match self.revisions.carry_out(&name, &draft, plan).boxed().await {
                Ok(applied) => applied,
                Err(failure) => return Ok(self.unfinished(&name, failure)),
            };
        let (newest, definitions) = (RevisionFingerprint::of(&set), installation.definitions.clone());
        if created {
            self.preflight.forget(&name);
            warnings.extend(draft.warning.clone());
            warnings.iter().for_each(|warning| tracing::warn!(extension = name, warning, "bundle warning"));
            installation.warnings = warnings;
            installation.adopted = adopted;
            // Without an override, the blocker would have held the plan.
            installation.overridden = governed.and_then(|plan| plan.change.blocker);
            installation.made = Some(CreatedRevision { set, before });
        } else if observed.rules.rollback && rollback::has_failed(&Revision::of(&set)) {
            // No event follows an edit that changes nothing of the failed revision.
            installation.requeue = true;
        }
        let made = memory::RevisionRecord { inputs, newest, crds: definitions, image, plan: id };
        let targets = target_namespaces(content::objects(draft.phases()));
        self.memories.with(&name, |memory| (memory.newest, memory.targets) = (Some(made), Some(targets)));
        Ok(installation)
    }

    /// Result of a failed write of a revision. The next pass reads its content again.
    fn unfinished(&self, name: &str, failure: InstallError) -> Installation {
        self.memories.content_lost(name);
        Installation { unfinished: true, ..Installation::failed(failure) }
    }

    /// The checked plan, or the plan as held by what is true right before its revision is created, or as awaiting
    /// another member of the upgrade group.
    async fn cleared(
        &self,
        observed: &Observed<'_>,
        checked: Installation,
        governed: Option<&mut Plan>,
        (plan, target, together): (&RevisionPlan, &BundleIdentity, &Together),
    ) -> Result<Installation, InstallError> {
        if !plan.makes_revision() || checked.applied.is_err() {
            return Ok(checked);
        }
        if let Some(governed) = governed
            && let Some(held) = self.held_now(observed, governed).await?
        {
            return Ok(Installation::held(held));
        }
        let awaited = self.awaited_member(&observed.name, target, together);
        let requeue = checked.requeue || awaited.is_some();
        Ok(Installation { awaited, requeue, ..checked })
    }

    /// Runs the install checks of the plan, if it changes anything.
    async fn checked(
        &self,
        observed: &Observed<'_>,
        inputs: &RevisionInputs,
        draft: &Draft,
        plan: &RevisionPlan,
        (verdict, failed_checks): (&SignatureVerdict, &[String]),
    ) -> Result<Installation, InstallError> {
        if plan.makes_revision() {
            verdict.as_ref().map_err(InstallError::clone)?;
            reject_failed_checks(failed_checks)?;
        }
        let is_handed_on = plan.newest().is_some_and(|newest| {
            newest.annotations().get(annotations::EXT_SERVICE_ACCOUNT) != inputs.account.as_ref()
        });
        if (plan.makes_revision() || is_handed_on)
            && let Some(missing) = self.missing_rights(&observed.name, inputs, draft).boxed().await?
        {
            return Ok(Installation { requeue: true, ..Installation::failed(missing) });
        }
        if plan.makes_revision() {
            return self.before_revision(observed, inputs, draft).boxed().await;
        }
        Ok(Installation::unchanged(self.known_verdict(&observed.name, inputs)))
    }

    /// The plan as held by the current annotations of the extension, its ExtensionPlan and the OperatorCondition of
    /// the operator that it replaces: an approval may have been revoked since they were observed.
    async fn held_now(
        &self,
        observed: &Observed<'_>,
        plan: &mut Plan,
    ) -> Result<Option<HeldPlan>, InstallError> {
        let live = api_request(self.extensions.get_opt(&observed.name), "reading the approval").await?;
        let same = |live: &ClusterExtension| live.metadata.uid == observed.extension.metadata.uid;
        let live = live.filter(same).ok_or_else(|| InstallError::retry("the extension has been deleted"))?;
        self.hold_live(&live, plan).await
    }

    /// Reads the report of the operator that the plan replaces.
    pub(super) async fn read_blocker(&self, extension: &str, plan: &mut Plan) -> Result<(), InstallError> {
        plan.change.blocker = match (&self.parts.operator_conditions, &plan.operator_condition) {
            (Some(conditions), Some((namespace, name))) if plan.change.is_upgrade() => {
                conditions.blocker(extension, (namespace, name)).await?
            }
            _ => None,
        };
        Ok(())
    }

    /// Plan of the revision that is to be created: its inputs and catalog, and the image, draft and digest of the
    /// rendered bundle.
    fn planned(
        &self,
        observed: &Observed<'_>,
        plan: &RevisionPlan,
        (inputs, catalog): (&RevisionInputs, Option<&str>),
        (image, draft, digest): (Option<&CanonicalRef>, &Draft, &str),
    ) -> Plan {
        let image = image.map(|image| image.digest().to_string()).unwrap_or_default();
        let new = NewRevision {
            extension: &observed.name,
            number: plan.number(),
            existing: plan.existing(),
            content: plan.content(),
            target: &inputs.bundle,
            catalog,
            image: &image,
            digest,
            phases: draft.phases(),
            namespace: &inputs.namespace,
        };
        block_in_place(|| Plan::of(&new, |id| self.lacks_plan(observed.extension, id)))
    }

    /// Rights that the account lacks which applies the objects of the draft, as a failure.
    async fn missing_rights(
        &self,
        name: &str,
        inputs: &RevisionInputs,
        draft: &Draft,
    ) -> Result<Option<InstallError>, InstallError> {
        let objects: Vec<Value> = content::objects(draft.phases()).cloned().collect();
        let rights = block_in_place(|| Rights::of(&objects));
        let missing = self.preflight.missing_rights(name, inputs.account.as_deref(), &rights).await?;
        Ok(missing.map(InstallError::retry))
    }

    /// Verifies that every Secret of every active revision exists and has its owner, and recreates missing ones. If
    /// the extension was edited since, a missing Secret cannot be rebuilt.
    ///
    /// # Errors
    /// A Secret is missing. Those of the other revisions were recreated.
    pub(super) async fn verify_content(&self, observed: &Observed<'_>) -> Result<(), InstallError> {
        let mut verified = Ok(());
        for set in observed.sets.iter().filter(|set| set.is_active()) {
            let revision = Revision::of(set);
            let inputs = observed.inputs(&choice::of_revision(&revision, &observed.rules));
            let inputs = RevisionInputs { namespaces: revision.namespaces, ..inputs };
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
            if let Err(failure) = self.revisions.verify_content(set, draft).boxed().await {
                verified = Err(failure.context(format!("content of revision {}", set.name_any())));
            }
        }
        verified
    }

    /// Prepares a new revision: checks watched namespaces, APIServices and CRDs, and creates the certificate Secrets
    /// that its pods mount.
    async fn before_revision(
        &self,
        observed: &Observed<'_>,
        inputs: &RevisionInputs,
        draft: &Draft,
    ) -> Result<Installation, InstallError> {
        let (extension, name) = (observed.extension, &observed.name);
        let check = crd_check(extension, observed.rules.crd_check);
        let missing = self.preflight.missing_namespaces(&inputs.watched()).await?;
        if !missing.is_empty() {
            let text = format!("namespaces to watch do not exist: {}", missing.join(", "));
            return Ok(Installation { requeue: true, ..Installation::failed(InstallError::retry(text)) });
        }
        let objects: Vec<&Value> = content::objects(draft.phases()).collect();
        let adopts = observed.adopts();
        let foreign = self.preflight.foreign_api_services(name, &objects, adopts).boxed().await?;
        if !foreign.is_empty() {
            let failed = Installation::failed(InstallError::retry(foreign.join("; ")));
            return Ok(Installation { requeue: true, ..failed });
        }
        let definitions = match check {
            Some(check) => self.preflight.definitions(name, &objects, check).boxed().await?,
            None => CrdVerdict::Safe,
        };
        if let CrdVerdict::Held(text) = &definitions {
            // Custom resources may be fixed at any time.
            let requeue = check == Some(CrdCheck::Live);
            let failed = Installation::failed(InstallError::retry(text));
            return Ok(Installation { definitions, requeue, ..failed });
        }
        let injections = olm_bundle::injections(&objects);
        self.parts.certificates.ensure(extension, &injections).boxed().await?;
        Ok(Installation::unchanged(definitions))
    }

    /// Reports whether the bundle is installed or rolling out, with unchanged settings. Its revision does not need the
    /// bundle content.
    fn needs_no_content(&self, observed: &Observed<'_>, inputs: &RevisionInputs) -> bool {
        let wanted = &inputs.bundle;
        let is_installed = observed.states.installed.as_ref().is_some_and(|installed| {
            installed.bundle.name == wanted.name && installed.bundle.version == wanted.version
        });
        (is_installed || observed.is_newest(wanted))
            && !self.memories.with(&observed.name, |memory| observed.is_edited(inputs, memory))
    }

    /// CRD verdict of the newest revision, if it was made from these inputs.
    fn known_verdict(&self, name: &str, inputs: &RevisionInputs) -> CrdVerdict {
        self.memories.with(name, |memory| {
            let same = memory.newest.as_ref().filter(|made| made.inputs == *inputs);
            same.map(|made| made.crds.clone()).unwrap_or_default()
        })
    }
}

/// Failure that reports the pull of a new target. An error means that the status remains unchanged.
fn pulling(
    target: &BundleIdentity,
    observed: &Observed<'_>,
    Pending(since): Pending,
) -> Result<InstallError, ReconcileError> {
    let Observed { rules, states, .. } = observed;
    let is_restored = || states.newest().is_some_and(|newest| rollback::refusal(newest, rules).is_some());
    let is_upgrade = states.newest().is_some();
    let may_wait = rules.approval.can_hold() || rules.can_hold() && is_upgrade || is_restored();
    match PULL_REPORT_DELAY.saturating_sub(since.elapsed()) {
        // A plan that may wait, or be refused, is no progress.
        _ if observed.is_newest(target) || observed.is_retrying() || may_wait => {
            Err(ReconcileError::pending(RESYNC))
        }
        Duration::ZERO => Ok(InstallError::new(ErrorClass::Pulling, format!("{PULLING}{}", target.image))),
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
