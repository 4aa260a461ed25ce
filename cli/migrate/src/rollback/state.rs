//! Next step of a return to classic OLM (docs/design/migration.md#rollback). Pure.
//!
//! Objects lose their revision before it is deleted, and get classic OLM as owner only once the ClusterServiceVersion
//! exists: neither side ever deletes them. The Subscription exists before it, because it has `spec.config`.

use olm_api::annotations;
use olm_cli_core::object_access::ObjectId;

use super::super::apply::state::{self as apply, ExtensionState};
use super::super::plan::model::{PackagePlan, named};

/// Observed state of a package.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Observed {
    /// State of the migration.
    pub(super) migration: apply::Observed,
    pub(super) extension: Option<ObjectId>,
    /// Installed version of the extension.
    pub(super) version: Option<String>,
    pub(super) is_paused: bool,
    /// Reason and message of the condition Progressing of an installed extension, unless it succeeded or the migration is
    /// incomplete.
    pub(super) rollout: Option<String>,
    /// Active revisions that are not paused.
    pub(super) unpaused: Vec<String>,
    pub(super) revisions: Vec<ObjectId>,
    /// Revisions or extension that are being deleted.
    pub(super) deleting: Vec<String>,
    /// Secrets with the content of revisions.
    pub(super) content: Vec<ObjectId>,
    /// Objects of the backup that the migration may have deleted, and that do not exist.
    pub(super) missing: Vec<ObjectId>,
    /// Objects of the backup that belong to a revision, or lack what the migration removed.
    pub(super) changed: Vec<ObjectId>,
    /// Objects that only the extension has, and access for users as the migration created it.
    pub(super) created: Vec<ObjectId>,
    /// Objects of the backup without their owner of classic OLM. Those that only labels attach are first.
    pub(super) unowned: Vec<ObjectId>,
    /// Secrets with certificates of the extension that are not in the backup.
    pub(super) certificates: Vec<ObjectId>,
    /// `true` if the ClusterServiceVersion has the finalizer of the migration.
    pub(super) has_finalizer: bool,
    /// `true` if the Subscription has installed exactly the ClusterServiceVersion of the plan, according to its status.
    pub(super) has_subscription_status: bool,
    /// `true` if classic OLM has the package again: the Subscription was about to follow its channel.
    pub(super) is_returned: bool,
}

impl Observed {
    /// Reports whether operator-controller still writes objects of the extension.
    pub(super) fn has_extension(&self) -> bool {
        self.extension.is_some() || !self.revisions.is_empty() || !self.deleting.is_empty()
    }
}

/// Next step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Cannot go on. Contains the reason and the next step.
    Refuse(String),
    /// Step of the migration that must not remain half done.
    Complete(apply::Step),
    Pause(ObjectId),
    AwaitPause(String),
    Recreate(Vec<ObjectId>),
    Release(Vec<ObjectId>),
    RemoveCreated(Vec<ObjectId>),
    DeleteExtension(ObjectId),
    DeleteRevisions(Vec<ObjectId>, Vec<ObjectId>),
    AwaitDeletion(String),
    /// Creates the Subscription, paused.
    CreateSubscription,
    SetSubscriptionStatus,
    CreateCsv,
    SetCsvStatus,
    ReleaseFinalizer(ObjectId),
    Attach(Vec<ObjectId>),
    RemoveCertificates(Vec<ObjectId>),
    /// Waits until classic OLM has installed the ClusterServiceVersion again.
    AwaitCsv(String),
    /// Lets the Subscription follow its channel again: the last step.
    ResumeSubscription,
    Done,
}

impl Step {
    /// Progress text.
    pub(super) fn text(&self, plan: &PackagePlan) -> String {
        let csv = format!("ClusterServiceVersion {}/{}", plan.namespace, plan.csv);
        let subscription = format!("Subscription {}/{}", plan.namespace, plan.subscription);
        match self {
            Self::Refuse(why) => why.clone(),
            Self::Complete(step) => step.text(plan),
            Self::Pause(extension) => format!("pause {extension}"),
            Self::AwaitPause(_) => "wait until the revisions are paused".to_owned(),
            Self::Recreate(objects) => format!("create {} of classic OLM", named(objects)),
            Self::Release(objects) => format!("release {} from the extension", named(objects)),
            Self::RemoveCreated(objects) => format!("remove {} that the migration created", named(objects)),
            Self::DeleteExtension(extension) => format!("delete {extension} without its objects"),
            Self::DeleteRevisions(revisions, _) => {
                format!(
                    "delete {} without their objects",
                    olm_cli_core::output::counted(revisions.len(), "revision")
                )
            }
            Self::AwaitDeletion(_) => "wait for the deletion of extension and revisions".to_owned(),
            Self::CreateCsv => format!("create {csv}"),
            Self::SetCsvStatus => format!("set the status of {csv}"),
            Self::ReleaseFinalizer(_) => format!("remove the finalizer of the migration from {csv}"),
            Self::Attach(objects) => format!("return {} to classic OLM", named(objects)),
            Self::RemoveCertificates(secrets) => {
                let secrets = olm_cli_core::output::counted(secrets.len(), "Secret");
                format!("remove {secrets} with certificates of the extension")
            }
            Self::CreateSubscription => format!("create {subscription}"),
            Self::SetSubscriptionStatus => format!("set the status of {subscription}"),
            Self::AwaitCsv(_) => format!("wait until classic OLM has installed {csv}"),
            Self::ResumeSubscription => format!("resume upgrades by {subscription}"),
            Self::Done => "done".to_owned(),
        }
    }

    /// State of what the step waits for, if it only waits.
    pub(super) fn awaited(&self) -> Option<&str> {
        match self {
            Self::Complete(step) => step.awaited(),
            Self::AwaitPause(state) | Self::AwaitDeletion(state) | Self::AwaitCsv(state) => Some(state),
            _ => None,
        }
    }
}

/// Chooses the next step.
pub(super) fn decide(plan: &PackagePlan, observed: &Observed) -> Step {
    let (subscription, csv) = (observed.migration.subscription.as_ref(), observed.migration.csv.as_ref());
    if observed.is_returned && subscription.is_some_and(|found| !found.is_paused) {
        return Step::Done;
    }
    if let Some(why) = refusal(plan, observed) {
        return Step::Refuse(why);
    }
    let is_deleting = |found: &&apply::ClassicObject| found.is_deleting;
    if let Some(found) = subscription.filter(is_deleting) {
        return Step::Complete(apply::Step::AwaitSubscriptionDeletion(found.deletion()));
    }
    if csv.is_some_and(|csv| csv.is_deleting)
        && let Some(step) = apply::csv_step(&observed.migration)
    {
        return Step::Complete(step);
    }
    if let Some(step) = away_from_extension(observed) {
        return step;
    }
    let is_paused = match subscription {
        None => return Step::CreateSubscription,
        // Another client created it. Classic OLM must not install anything before the ClusterServiceVersion exists.
        Some(found) if csv.is_none() && !found.is_paused => {
            return Step::Complete(apply::Step::PauseSubscription(found.id.clone()));
        }
        Some(found) => found.is_paused,
    };
    if is_paused && !observed.has_subscription_status {
        return Step::SetSubscriptionStatus;
    }
    let Some(csv) = csv else { return Step::CreateCsv };
    if csv.phase.is_empty() {
        return Step::SetCsvStatus;
    }
    if observed.has_finalizer {
        return Step::ReleaseFinalizer(csv.id.clone());
    }
    if !observed.unowned.is_empty() {
        return Step::Attach(observed.unowned.clone());
    }
    if !observed.certificates.is_empty() {
        return Step::RemoveCertificates(observed.certificates.clone());
    }
    match csv.phase.as_str() {
        "Succeeded" if is_paused => Step::ResumeSubscription,
        "Succeeded" => Step::Done,
        phase => Step::AwaitCsv(format!("phase {phase}")),
    }
}

/// Reason for which the package cannot return to classic OLM.
fn refusal(plan: &PackagePlan, observed: &Observed) -> Option<String> {
    let extension = observed.extension.as_ref()?;
    if observed.migration.extension == ExtensionState::Foreign {
        return Some(apply::foreign(plan, &observed.migration));
    }
    if let Some(version) = observed.version.as_ref().filter(|version| **version != plan.version) {
        return Some(format!(
            "{extension} has version {version}, but classic OLM had {}: return to it with `olm rollback {} --to {}`, \
             then run the command again",
            plan.version, extension.name, plan.version
        ));
    }
    let rollout = observed.rollout.as_ref().filter(|_| !observed.is_paused)?;
    Some(format!(
        "{extension} is rolling out: {rollout}. Wait for it, or stop it with `kubectl annotate clusterextension {} {}=true`, \
         then run the command again",
        extension.name,
        annotations::EXT_PAUSED
    ))
}

/// Next step while the extension or its revisions own anything.
fn away_from_extension(observed: &Observed) -> Option<Step> {
    let extension = observed.extension.as_ref();
    if let Some(extension) = extension.filter(|_| !observed.is_paused) {
        return Some(Step::Pause(extension.clone()));
    }
    if extension.is_some() && !observed.unpaused.is_empty() {
        return Some(Step::AwaitPause(format!("{} is not paused yet", observed.unpaused.join(", "))));
    }
    if !observed.missing.is_empty() {
        return Some(Step::Recreate(observed.missing.clone()));
    }
    // Once the ClusterServiceVersion exists, classic OLM may change the objects.
    if !observed.changed.is_empty() && observed.migration.csv.is_none() {
        return Some(Step::Release(observed.changed.clone()));
    }
    if !observed.created.is_empty() {
        return Some(Step::RemoveCreated(observed.created.clone()));
    }
    if !observed.deleting.is_empty() {
        return Some(Step::AwaitDeletion(observed.deleting.join(", ")));
    }
    if let Some(extension) = extension {
        return Some(Step::DeleteExtension(extension.clone()));
    }
    if !(observed.revisions.is_empty() && observed.content.is_empty()) {
        return Some(Step::DeleteRevisions(observed.revisions.clone(), observed.content.clone()));
    }
    None
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
