//! Rules of an extension beyond the reference, from flags and feature gates of the server and annotations of the
//! extension (docs/design/additions.md#annotations, docs/design/additions.md#dependency-modes,
//! docs/design/additions.md#best-effort-resolution).
//!
//! An annotation with an unknown value has its safe effect ([`OnUnknown`]), and is listed for the status.

use std::collections::BTreeMap;
use std::str::FromStr;

use olm_api::{ClusterExtension, annotations};
use olm_resolve::{DEPENDENCY_PROPERTIES, DependencyMode, Indexing, UnknownValue, UpgradeScope, named};

use crate::approval::{self, ApprovalRules};
use crate::safe_values::{OnUnknown, is_known};
use crate::windows::UpgradeWindows;

/// Flags and feature gates of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Flag `--dependency-mode`.
    pub dependencies: DependencyMode,
    /// Flag `--upgrade-scope`, for extensions without the annotation. `None` means no limit.
    pub upgrade_scope: Option<UpgradeScope>,
    /// Feature gate `BestEffortResolution`.
    pub best_effort: bool,
    /// Feature gate `ClusterConstraints`.
    pub cluster_constraints: bool,
    /// Feature gate `BundleReleaseSupport` of the reference.
    pub releases: bool,
    /// Feature gate `UpdateNotifications`.
    pub update_notifications: bool,
    /// Feature gate `OperatorConditionCompat`.
    pub operator_conditions: bool,
}

/// Handling of upgrades with CRD changes that may break existing custom resources
/// (docs/design/additions.md#crd-checks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrdCheck {
    /// Blocks the upgrade, as in the reference.
    Strict,
    /// Blocks the upgrade if custom resources exist that do not match the new schema.
    Live,
    /// Continues the upgrade with a warning.
    Warn,
}

impl FromStr for CrdCheck {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        named(text, &[("Strict", Self::Strict), ("Live", Self::Live), ("Warn", Self::Warn)])
    }
}

/// Handling of CRDs and their custom resources at uninstallation (docs/design/additions.md#uninstall-policy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UninstallPolicy {
    /// Deletes them, as in the reference.
    Delete,
    /// Retains them.
    KeepCrds,
    /// Blocks the deletion of all objects while custom resources exist.
    BlockIfInUse,
}

impl UninstallPolicy {
    /// Policy of an annotation with this value, of which an unknown one has its safe effect.
    pub fn of(text: &str) -> Self {
        text.parse().unwrap_or(Self::BlockIfInUse)
    }

    /// Value of the annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::KeepCrds => "KeepCRDs",
            Self::BlockIfInUse => "BlockIfInUse",
        }
    }
}

impl FromStr for UninstallPolicy {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        named(
            text,
            &[Self::Delete, Self::KeepCrds, Self::BlockIfInUse].map(|policy| (policy.as_str(), policy)),
        )
    }
}

/// Allowed values of the annotation `adopt`.
const ADOPTION_DIGEST: &str = "the digest of the objects to adopt, sha256: and 64 hexadecimal digits";
/// Allowed values of the annotation `approved`.
const PLAN_DIGEST: &str = "the digest of a plan, sha256: and 64 hexadecimal digits";

/// Rules of one extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionRules {
    /// Settings of the server, with the extension's own dependency mode.
    pub settings: Settings,
    /// Types of requirements that are ignored.
    pub ignored_requirements: Vec<String>,
    /// `true` if the extension may be upgraded or deleted although others require it.
    pub ignore_dependents: bool,
    /// Name of the upgrade group. It has an effect in mode [`DependencyMode::Check`] only.
    pub upgrade_group: Option<String>,
    /// Largest version step of one upgrade.
    pub upgrade_scope: Option<UpgradeScope>,
    /// `true` if versions that their channel skips are excluded.
    pub exclude_skipped: bool,
    /// CRD check of the extension, if annotated.
    pub crd_check: Option<CrdCheck>,
    /// `true` if nothing is applied or upgraded.
    pub paused: bool,
    /// Uninstall policy of the extension, if annotated.
    pub uninstall_policy: Option<UninstallPolicy>,
    /// `true` if objects whose immutable fields differ are deleted and created again.
    pub replaces_immutable: bool,
    /// Approvals and upgrade windows.
    pub approval: ApprovalRules,
    /// `true` if a rollout that exceeds its progress deadline is rolled back.
    pub rollback: bool,
    /// Value of the annotation that requests another attempt of refused content.
    pub retry_requested_at: Option<String>,
    /// Digest of the objects that a new revision adopts. A malformed one is the digest of no list.
    pub adopt: Option<String>,
    /// `true` if the revision contains roles for the users of its APIs.
    pub aggregate_api_roles: bool,
    /// Annotations with unknown values, then those with unknown keys, each in the order of their keys.
    pub invalid: Vec<InvalidAnnotation>,
}

/// Annotation with an invalid value, or with an unknown key of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key} {effect}: {fault}")]
pub struct InvalidAnnotation {
    key: String,
    effect: OnUnknown,
    fault: String,
}

impl ExtensionRules {
    /// Reads the annotations of an extension.
    pub fn of(annotations: Option<&BTreeMap<String, String>>, settings: Settings) -> Self {
        let none = BTreeMap::new();
        let mut read = Reader { annotations: annotations.unwrap_or(&none), invalid: Vec::new() };
        let mut rules = Self { settings, ..Self::default() };
        // In the order of the keys, which is the order of `invalid`.
        let malformed = read.annotations.get(annotations::EXT_ADOPT).cloned();
        let digest = |text: &str| approval::digest(text, ADOPTION_DIGEST).map(Some);
        rules.adopt = read.holding(annotations::EXT_ADOPT, digest, malformed);
        rules.aggregate_api_roles = read.switch(annotations::EXT_AGGREGATE_API_ROLES);
        rules.approval.mode = read.choice(annotations::EXT_APPROVAL).unwrap_or_default();
        rules.approval.permission_increase = read.switch(annotations::EXT_APPROVE_PERMISSION_INCREASE);
        let digest = |text: &str| approval::digest(text, PLAN_DIGEST);
        rules.approval.approved = read.read(annotations::EXT_APPROVED, digest);
        rules.crd_check = read.choice(annotations::EXT_CRD_CHECK);
        let dependencies = read.choice(annotations::EXT_DEPENDENCY_MODE);
        rules.settings.dependencies = dependencies.unwrap_or(settings.dependencies);
        rules.exclude_skipped = read.switch(annotations::EXT_EXCLUDE_SKIPPED);
        rules.ignored_requirements = read.types(annotations::EXT_IGNORE_DEPENDENCIES);
        rules.ignore_dependents = read.switch(annotations::EXT_IGNORE_DEPENDENTS);
        rules.approval.ignore_operator_condition = read.switch(annotations::EXT_IGNORE_OPERATOR_CONDITION);
        rules.rollback = read.only(annotations::EXT_ON_FAILURE, "Rollback");
        rules.paused = read.switch(annotations::EXT_PAUSED);
        rules.replaces_immutable = read.only(annotations::EXT_REPLACE_IMMUTABLE, "Allow");
        rules.retry_requested_at = read.annotations.get(annotations::EXT_RETRY_REQUESTED_AT).cloned();
        rules.uninstall_policy = read.choice(annotations::EXT_UNINSTALL_POLICY);
        rules.upgrade_group = read.read(annotations::EXT_UPGRADE_GROUP, group_name);
        rules.upgrade_scope = read.choice(annotations::EXT_UPGRADE_SCOPE).or(settings.upgrade_scope);
        let closed = UpgradeWindows::closed();
        rules.approval.windows = read.holding(annotations::EXT_UPGRADE_WINDOW, str::parse, closed);
        read.refuse_unknown_keys();
        rules.invalid = read.invalid;
        rules
    }

    /// `true` unless requirements of this property type are ignored.
    pub fn counts(&self, property_type: &str) -> bool {
        !self.ignored_requirements.iter().any(|ignored| ignored == property_type)
    }

    /// `true` if the providers of `extension`, which has these rules, must be kept. An extension that is being
    /// deleted requires nothing, so that two that require each other can both be deleted.
    pub fn protect(&self, extension: &ClusterExtension) -> bool {
        let stays = extension.metadata.deletion_timestamp.is_none();
        stays && self.settings.dependencies == DependencyMode::Check
    }

    /// `true` if dependencies are evaluated instead of rejected as in the reference.
    pub fn judges_dependencies(&self) -> bool {
        self.settings.dependencies != DependencyMode::Reject
    }

    /// Same rules, but no unavailable catalog is skipped `while_awaited`: content that is being fetched is not
    /// unavailable.
    pub fn awaiting_content(&self, while_awaited: bool) -> Self {
        let best_effort = self.settings.best_effort && !while_awaited;
        Self { settings: Settings { best_effort, ..self.settings }, ..self.clone() }
    }

    /// `true` if the plan of a new revision can wait.
    pub fn can_hold(&self) -> bool {
        self.approval.can_hold() || self.settings.operator_conditions
    }

    /// `true` if an active rule can block a newer version.
    pub fn can_block_upgrades(&self) -> bool {
        self.upgrade_scope.is_some()
            || self.exclude_skipped
            || self.crd_check.is_some()
            || self.can_hold()
            || self.rollback
            || self.settings.dependencies == DependencyMode::Check
            || self.settings.cluster_constraints
    }

    /// `true` if condition `UpgradeAvailable` can exist (docs/design/additions.md#update-notifications).
    pub fn reports_upgrades(&self) -> bool {
        self.settings.update_notifications || self.can_block_upgrades()
    }

    /// `true` if the choice depends on the state of the cluster.
    pub fn needs_cluster_state(&self) -> bool {
        self.judges_dependencies() || self.settings.cluster_constraints
    }

    /// Parts of a package that the index must keep for these rules.
    pub fn indexing(&self) -> Indexing {
        Indexing { release_support: self.settings.releases, properties: self.needs_cluster_state() }
    }
}

/// Name of an upgrade group, which has the syntax of a non-empty label value.
///
/// # Errors
/// The text is no such name.
fn group_name(text: &str) -> Result<String, UnknownValue> {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let chars = || text.chars();
    if text.len() <= 63 && is_end(chars().next()) && is_end(chars().last()) && chars().all(is_allowed) {
        return Ok(text.to_owned());
    }
    Err(UnknownValue { value: text.to_owned(), allowed: vec!["names with the syntax of a label value"] })
}

/// Reader of annotations that collects invalid ones.
struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    invalid: Vec<InvalidAnnotation>,
}

impl Reader<'_> {
    fn choice<T: FromStr<Err = UnknownValue>>(&mut self, key: &'static str) -> Option<T> {
        self.read(key, str::parse)
    }

    fn switch(&mut self, key: &'static str) -> bool {
        let switch = |text: &str| named(text, &[("true", true), ("false", false)]);
        self.read(key, switch).unwrap_or_default()
    }

    /// `true` if the annotation has its only value.
    fn only(&mut self, key: &'static str, value: &'static str) -> bool {
        self.read(key, |text| named(text, &[(value, true)])).unwrap_or_default()
    }

    /// Value of an annotation that holds upgrades. `strict` if it is unknown.
    fn holding<T: Default>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, UnknownValue>,
        strict: T,
    ) -> T {
        let before = self.invalid.len();
        let read = self.read(key, parse);
        if self.invalid.len() > before { strict } else { read.unwrap_or_default() }
    }

    /// Value of an annotation, or the one that an unknown value counts as.
    fn read<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Result<T, UnknownValue>) -> Option<T> {
        let UnknownValue { value, allowed } = match parse(self.annotations.get(key)?) {
            Ok(read) => return Some(read),
            Err(unknown) => unknown,
        };
        match self.refuse(key, &value, &allowed.join(", ")) {
            OnUnknown::CountsAs(safe) => parse(safe).ok(),
            _ => None,
        }
    }

    fn types(&mut self, key: &'static str) -> Vec<String> {
        let Some(value) = self.annotations.get(key) else { return Vec::new() };
        let types: Vec<&str> = value.split(',').map(str::trim).collect();
        if types.iter().all(|type_| DEPENDENCY_PROPERTIES.contains(type_)) {
            return types.into_iter().map(str::to_owned).collect();
        }
        let allowed = format!("lists, separated by commas, of {}", DEPENDENCY_PROPERTIES.join(", "));
        self.refuse(key, value, &allowed);
        Vec::new()
    }

    fn refuse(&mut self, key: &'static str, value: &str, allowed: &str) -> OnUnknown {
        let (effect, fault) = (OnUnknown::of(key), format!("unknown value {value:?}, allowed: {allowed}"));
        self.invalid.push(InvalidAnnotation { key: key.to_owned(), effect, fault });
        effect
    }

    /// Lists the annotations whose key is a misspelled one of ours.
    fn refuse_unknown_keys(&mut self) {
        let is_unknown = |key: &&String| key.starts_with(annotations::EXT_PREFIX) && !is_known(key);
        let unknown = self.annotations.keys().filter(is_unknown).map(|key| InvalidAnnotation {
            key: key.clone(),
            effect: OnUnknown::NoEffect,
            fault: "unknown key".to_owned(),
        });
        self.invalid.extend(unknown);
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
