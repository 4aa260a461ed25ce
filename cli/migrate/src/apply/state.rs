//! Next step of a migration (docs/design/migration.md#apply). Pure: nothing but the observed state decides, so that a
//! run that was killed at any call continues where it ended.

use olm_api::annotations;
use olm_cli_core::object_access::ObjectId;
use serde_json::Value;

use super::super::backup;
use super::super::plan::model::{PackagePlan, named};

/// State of the ClusterCatalogs of the plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CatalogState {
    pub(crate) missing: Vec<Value>,
    /// Those that are not served yet, with the message of their condition.
    pub(crate) unserved: Vec<String>,
}

/// State of an object of classic OLM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassicObject {
    pub(crate) id: ObjectId,
    /// Phase of the ClusterServiceVersion.
    pub(crate) phase: String,
    pub(crate) is_deleting: bool,
    /// `true` if it is being deleted, has the finalizer of the migration, and no owner references to it are left.
    pub(crate) is_held: bool,
    /// `true` if the ClusterServiceVersion has conversion webhooks.
    pub(crate) has_conversion: bool,
    /// `true` if the Subscription names no CatalogSource that exists: classic OLM upgrades nothing.
    pub(crate) is_paused: bool,
    /// Finalizers that neither Kubernetes nor the migration sets.
    pub(crate) finalizers: Vec<String>,
}

impl ClassicObject {
    /// State of an object that is being deleted, with what it waits for.
    pub(crate) fn deletion(&self) -> String {
        match self.finalizers.as_slice() {
            [] => "being deleted".to_owned(),
            all => format!("{} waits for the controllers of its finalizers: {}", self.id, all.join(", ")),
        }
    }
}

/// State of the ClusterExtension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExtensionState {
    Absent,
    /// Not the extension that the migration created.
    Foreign,
    /// Paused by a rollback that did not end.
    Paused(ObjectId),
    /// Not installed yet, with the message of its condition.
    Installing(String),
    /// Not installed, and no retry will help. `digest` is that of the objects to adopt.
    Blocked {
        digest: String,
        message: String,
    },
    /// Installed, pinned to the version.
    Pinned,
    /// Installed, and the pin and the digest are removed.
    Opened,
}

/// Observed state of the migration of one package.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observed {
    /// `true` if the backup is complete.
    pub(crate) has_backup: bool,
    /// Namespace of the backup.
    pub(crate) home: String,
    pub(crate) catalogs: CatalogState,
    pub(crate) subscription: Option<ClassicObject>,
    /// InstallPlans of the Subscription that classic OLM executes.
    pub(crate) running: Vec<String>,
    /// Unapproved InstallPlans of an upgrade.
    pub(crate) waiting: Vec<ObjectId>,
    /// Sign of an upgrade by classic OLM.
    pub(crate) upgrade: Option<String>,
    pub(crate) csv: Option<ClassicObject>,
    /// UIDs of the Subscription and of the ClusterServiceVersion in the backup.
    pub(crate) known: Vec<String>,
    /// Packages that must be migrated before.
    pub(crate) dependents: Vec<String>,
    /// Objects that classic OLM owns. The OperatorCondition only without the ClusterServiceVersion: before, classic OLM puts
    /// its owner back.
    pub(crate) attached: Vec<ObjectId>,
    /// Objects that do not exist any more, or not as classic OLM left them.
    pub(crate) lost: Vec<ObjectId>,
    /// RBAC objects for users that do not exist with the content of the plan.
    pub(crate) grants: Vec<Value>,
    pub(crate) extension: ExtensionState,
    /// Digest of the objects to adopt, with their present UIDs.
    pub(crate) digest: String,
    /// Webhook configurations of the extension without a CA.
    pub(crate) unready_webhooks: Vec<String>,
    /// Objects of classic OLM that are to be removed.
    pub(crate) leftovers: Vec<ObjectId>,
}

/// Next step of a migration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// The migration cannot go on. Contains the reason and the next step.
    Refuse(String),
    CreateCatalogs(Vec<Value>),
    AwaitCatalogs(String),
    BackUp,
    /// Deletes the backup of a migration that has changed nothing. Contains the reason.
    DropBackup(String),
    /// Makes the Subscription name a CatalogSource that does not exist: classic OLM resolves nothing, and upgrades nothing.
    PauseSubscription(ObjectId),
    /// Deletes the Subscription, but not the objects that it owns.
    DeleteSubscription(ObjectId),
    AwaitSubscriptionDeletion(String),
    /// Deletes unapproved InstallPlans of an upgrade. Classic OLM makes new ones for other Subscriptions.
    ClearInstallPlans(Vec<ObjectId>),
    /// Deletes the ClusterServiceVersion, which stays with a finalizer of the migration. Classic OLM does nothing about a
    /// ClusterServiceVersion that is being deleted without its own finalizer.
    HoldCsv(ObjectId),
    /// Removes the conversion webhooks from the held ClusterServiceVersion: classic OLM resets the CRDs of those that it
    /// saw last.
    KeepConversion(ObjectId),
    /// Removes the owner references and labels of classic OLM from the objects.
    Detach(Vec<ObjectId>),
    /// Removes the finalizer of the migration.
    ReleaseCsv(ObjectId),
    AwaitCsvDeletion(String),
    /// Creates objects again that classic OLM deleted.
    Restore(Vec<ObjectId>),
    CreateGrants(Vec<Value>),
    CreateExtension,
    /// Pins the version of the paused extension again, and resumes it.
    Resume(ObjectId),
    AwaitInstallation(String),
    AwaitWebhooks(String),
    Remove(Vec<ObjectId>),
    Open,
    Done,
}

impl Step {
    /// Progress text.
    pub(crate) fn text(&self, plan: &PackagePlan) -> String {
        let extension = plan.extension["metadata"]["name"].as_str().unwrap_or_default();
        match self {
            Self::Refuse(why) => why.clone(),
            Self::CreateCatalogs(catalogs) => {
                let names: Vec<&str> =
                    catalogs.iter().filter_map(|catalog| catalog["metadata"]["name"].as_str()).collect();
                format!("create ClusterCatalog {}", names.join(", "))
            }
            Self::AwaitCatalogs(_) => "wait for the ClusterCatalog".to_owned(),
            Self::BackUp => "write the backup".to_owned(),
            Self::DropBackup(_) => "delete the backup".to_owned(),
            Self::PauseSubscription(id) => format!("stop upgrades by {id}"),
            Self::DeleteSubscription(id) => format!("delete {id}"),
            Self::AwaitSubscriptionDeletion(_) => {
                format!("wait for the deletion of Subscription {}/{}", plan.namespace, plan.subscription)
            }
            Self::ClearInstallPlans(plans) => format!("delete unapproved {}", named(plans)),
            Self::HoldCsv(csv) => format!("delete {csv}, held by a finalizer"),
            Self::KeepConversion(csv) => format!("remove the conversion webhooks from {csv}"),
            Self::Detach(objects) => format!("detach {} from classic OLM", named(objects)),
            Self::ReleaseCsv(csv) => format!("release {csv}"),
            Self::AwaitCsvDeletion(_) => {
                format!("wait for the deletion of ClusterServiceVersion {}", plan.csv)
            }
            Self::Restore(objects) => format!("restore {} that classic OLM deleted", named(objects)),
            Self::CreateGrants(_) => "create RBAC for users".to_owned(),
            Self::CreateExtension => {
                format!("create ClusterExtension {extension}, which adopts {}", named(&plan.adopted))
            }
            Self::Resume(extension) => format!("resume {extension}, pinned to version {}", plan.version),
            Self::AwaitInstallation(_) => format!("wait for the installation of {extension}"),
            Self::AwaitWebhooks(_) => "wait for the certificates of webhooks".to_owned(),
            Self::Remove(objects) => format!("remove {} of classic OLM", named(objects)),
            Self::Open if plan.is_pinned() => format!("remove the digest from {extension}"),
            Self::Open => format!("open the version pin of {extension}"),
            Self::Done => "done".to_owned(),
        }
    }

    /// Reports whether the step only waits, and the state of what it waits for.
    pub(crate) fn awaited(&self) -> Option<&str> {
        match self {
            Self::AwaitCatalogs(state)
            | Self::AwaitInstallation(state)
            | Self::AwaitWebhooks(state)
            | Self::AwaitSubscriptionDeletion(state)
            | Self::AwaitCsvDeletion(state) => Some(state),
            _ => None,
        }
    }
}

/// Chooses the next step.
pub(crate) fn decide(plan: &PackagePlan, observed: &Observed) -> Step {
    match observed.has_backup {
        false => before_backup(plan, observed),
        true => after_backup(plan, observed),
    }
}

fn before_backup(plan: &PackagePlan, observed: &Observed) -> Step {
    let (package, csv) = (&plan.package, &plan.csv);
    if observed.subscription.as_ref().is_none_or(|found| found.is_deleting) {
        return Step::Refuse(format!("Subscription {}/{} does not exist", plan.namespace, plan.subscription));
    }
    let Some(installed) = observed.csv.as_ref().filter(|found| !found.is_deleting) else {
        return Step::Refuse(format!("ClusterServiceVersion {}/{csv} does not exist", plan.namespace));
    };
    if installed.phase != "Succeeded" {
        return Step::Refuse(format!("{}: phase {}, expected Succeeded", installed.id, installed.phase));
    }
    if let Some(running) = running(observed) {
        return Step::Refuse(running);
    }
    if let Some(upgrade) = &observed.upgrade {
        return Step::Refuse(format!("{upgrade}: wait for the upgrade, and run `olm migrate plan` again"));
    }
    if !observed.dependents.is_empty() {
        let first = observed.dependents.join(" ");
        return Step::Refuse(format!(
            "{package} is required by {}: migrate them before, with `olm migrate apply {first} {}`",
            observed.dependents.join(", "),
            plan.id()
        ));
    }
    if observed.extension != ExtensionState::Absent {
        let extension = plan.extension["metadata"]["name"].as_str().unwrap_or_default();
        return Step::Refuse(format!("ClusterExtension {extension} exists already: delete or rename it"));
    }
    if let Some(lost) = observed.lost.first() {
        return Step::Refuse(format!(
            "{lost} was created, deleted or replaced since the plan: run `olm migrate plan` again"
        ));
    }
    if !observed.catalogs.missing.is_empty() {
        return Step::CreateCatalogs(observed.catalogs.missing.clone());
    }
    if !observed.catalogs.unserved.is_empty() {
        return Step::AwaitCatalogs(observed.catalogs.unserved.join("; "));
    }
    Step::BackUp
}

/// Reason for which an InstallPlan prevents the migration.
fn running(observed: &Observed) -> Option<String> {
    let first = observed.running.first()?;
    Some(format!("classic OLM executes InstallPlan {first}: wait until it is complete, then plan again"))
}

/// Reason for which the present Subscription or ClusterServiceVersion prevents the next step. A ClusterServiceVersion that
/// was created again is deleted like the first one.
fn changed_by_classic(plan: &PackagePlan, observed: &Observed) -> Option<Step> {
    let is_known = |found: &&ClassicObject| observed.known.contains(&found.id.uid);
    let subscription = observed.subscription.as_ref();
    // A rollback that did not end created the paused one.
    if let Some(found) = subscription.filter(|found| !is_known(found) && !found.is_paused) {
        return Some(Step::Refuse(format!(
            "{} was created again after its deletion: remove it from its source, such as a GitOps repository, delete it \
             with `kubectl delete`, and run the command again",
            found.id
        )));
    }
    let Some(upgrade) = &observed.upgrade else { return lost_csv(plan, observed) };
    let is_unchanged = observed.csv.as_ref().is_none_or(|csv| !csv.is_deleting);
    Some(match subscription.filter(|found| is_known(found) && !found.is_deleting && is_unchanged) {
        Some(_) => Step::DropBackup(format!("classic OLM has upgraded the package: {upgrade}")),
        None => Step::Refuse(format!(
            "classic OLM has upgraded the package: {upgrade}: return with `olm migrate rollback {}/{}`, wait for the \
             upgrade, and plan again",
            plan.namespace, plan.package
        )),
    })
}

/// Refusal if the ClusterServiceVersion does not exist, and its Subscription does: another client removed it. Only the backup
/// still has it.
fn lost_csv(plan: &PackagePlan, observed: &Observed) -> Option<Step> {
    let found = observed.subscription.as_ref().filter(|found| !found.is_deleting)?;
    (observed.csv.is_none() && observed.known.contains(&found.id.uid)).then(|| {
        Step::Refuse(format!(
            "ClusterServiceVersion {}/{} does not exist any more, and its Deployments may be deleted, too: `olm migrate rollback {}` creates them again from \
             the backup",
            plan.namespace,
            plan.csv,
            plan.id()
        ))
    })
}

fn after_backup(plan: &PackagePlan, observed: &Observed) -> Step {
    if let Some(step) = changed_by_classic(plan, observed) {
        return step;
    }
    if observed.extension == ExtensionState::Foreign {
        return Step::Refuse(foreign(plan, observed));
    }
    if let Some(step) = away_from_classic(observed) {
        return step;
    }
    if !observed.attached.is_empty() {
        return Step::Detach(observed.attached.clone());
    }
    if !observed.lost.is_empty() {
        return Step::Restore(observed.lost.clone());
    }
    if !observed.grants.is_empty() {
        return Step::CreateGrants(observed.grants.clone());
    }
    match &observed.extension {
        ExtensionState::Absent => return Step::CreateExtension,
        ExtensionState::Paused(id) => return Step::Resume(id.clone()),
        ExtensionState::Blocked { digest, .. } if *digest != observed.digest => return Step::CreateExtension,
        ExtensionState::Blocked { message, .. } => {
            let extension = plan.extension["metadata"]["name"].as_str().unwrap_or_default();
            return Step::Refuse(format!("ClusterExtension {extension}: Blocked: {message}"));
        }
        ExtensionState::Installing(state) => return Step::AwaitInstallation(state.clone()),
        ExtensionState::Foreign | ExtensionState::Pinned | ExtensionState::Opened => {}
    }
    if !observed.unready_webhooks.is_empty() {
        return Step::AwaitWebhooks(observed.unready_webhooks.join(", "));
    }
    if !observed.leftovers.is_empty() {
        return Step::Remove(observed.leftovers.clone());
    }
    if observed.extension == ExtensionState::Pinned { Step::Open } else { Step::Done }
}

/// Reason for which the present extension prevents the next step.
pub(crate) fn foreign(plan: &PackagePlan, observed: &Observed) -> String {
    let extension = plan.extension["metadata"]["name"].as_str().unwrap_or_default();
    let secret = format!("Secret {}/{}", observed.home, backup::name(&plan.namespace, &plan.package, 1));
    let present: Vec<String> = [&observed.subscription, &observed.csv]
        .into_iter()
        .flatten()
        .map(|found| found.id.to_string())
        .collect();
    // Without backup, nothing releases a held ClusterServiceVersion.
    let keep = match present.is_empty() {
        true => format!("To keep it, delete the backup: {secret}"),
        false => format!("The backup, {secret}, is still needed for {}", present.join(" and ")),
    };
    format!(
        "ClusterExtension {extension} is not that of the migration: another client created it, or it has another package or \
         namespace. To continue, delete it, and run the command again. Its CRDs and their custom resources are deleted, \
         too, unless you use `olm uninstall {extension} --keep-crds`, or set annotation {}=KeepCRDs before. {keep}",
        annotations::EXT_UNINSTALL_POLICY
    )
}

/// Next step while classic OLM has objects of the package. The deletion of the ClusterServiceVersion begins before that of
/// the Subscription: without `spec.config`, classic OLM would write the Deployments again.
fn away_from_classic(observed: &Observed) -> Option<Step> {
    let subscription = observed.subscription.as_ref();
    let installed = observed.csv.as_ref().filter(|csv| !csv.is_deleting);
    if let Some(found) = subscription.filter(|found| !found.is_deleting && installed.is_some()) {
        match running(observed) {
            Some(running) => return Some(Step::Refuse(running)),
            None if !found.is_paused => return Some(Step::PauseSubscription(found.id.clone())),
            None => {}
        }
    }
    if let Some(csv) = installed {
        return Some(Step::HoldCsv(csv.id.clone()));
    }
    match subscription {
        Some(found) if !found.is_deleting => return Some(Step::DeleteSubscription(found.id.clone())),
        Some(found) => return Some(Step::AwaitSubscriptionDeletion(found.deletion())),
        None => {}
    }
    if !observed.waiting.is_empty() {
        return Some(Step::ClearInstallPlans(observed.waiting.clone()));
    }
    csv_step(observed)
}

/// Next step while the ClusterServiceVersion is being deleted.
pub(crate) fn csv_step(observed: &Observed) -> Option<Step> {
    let csv = observed.csv.as_ref()?;
    Some(match csv {
        csv if csv.is_held && csv.has_conversion => Step::KeepConversion(csv.id.clone()),
        _ if !observed.attached.is_empty() => Step::Detach(observed.attached.clone()),
        csv if csv.is_held => Step::ReleaseCsv(csv.id.clone()),
        csv => Step::AwaitCsvDeletion(csv.deletion()),
    })
}

impl Observed {
    /// State after `step` without disturbance, for a dry run.
    pub(crate) fn after(mut self, step: &Step) -> Self {
        match step {
            Step::CreateCatalogs(_) => self.catalogs.missing.clear(),
            Step::AwaitCatalogs(_) => self.catalogs.unserved.clear(),
            Step::BackUp => {
                self.has_backup = true;
                let objects = [&self.subscription, &self.csv];
                self.known = objects.into_iter().flatten().map(|object| object.id.uid.clone()).collect();
            }
            Step::PauseSubscription(_) => {
                if let Some(subscription) = &mut self.subscription {
                    subscription.is_paused = true;
                }
            }
            Step::DeleteSubscription(_) | Step::AwaitSubscriptionDeletion(_) => self.subscription = None,
            Step::ClearInstallPlans(_) => self.waiting.clear(),
            Step::HoldCsv(_) => self.change_csv(|csv| (csv.is_deleting, csv.is_held) = (true, true)),
            Step::KeepConversion(_) => self.change_csv(|csv| csv.has_conversion = false),
            Step::Detach(_) => self.attached.clear(),
            Step::ReleaseCsv(_) | Step::AwaitCsvDeletion(_) => self.csv = None,
            Step::Restore(_) => self.lost.clear(),
            Step::CreateGrants(_) => self.grants.clear(),
            Step::CreateExtension | Step::Resume(_) => {
                self.extension = ExtensionState::Installing(String::new());
            }
            Step::AwaitInstallation(_) => self.extension = ExtensionState::Pinned,
            Step::AwaitWebhooks(_) => self.unready_webhooks.clear(),
            Step::Remove(_) => self.leftovers.clear(),
            Step::Open => self.extension = ExtensionState::Opened,
            Step::DropBackup(_) => self.has_backup = false,
            Step::Refuse(_) | Step::Done => {}
        }
        self
    }

    fn change_csv(&mut self, change: impl FnOnce(&mut ClassicObject)) {
        if let Some(csv) = &mut self.csv {
            change(csv);
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
