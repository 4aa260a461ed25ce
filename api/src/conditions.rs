//! Condition types, reasons, and functions that set or remove a condition (docs/design/api.md#conditions,
//! docs/design/apply.md#names-and-limits).
//!
//! Pure: the time is a parameter. Conditions of the reference are never removed. Conditions of this implementation
//! are removed when their rule is no longer active.

use crate::text::visible;
use crate::{Condition, Time};
use jiff::Timestamp;

/// Condition types.
pub mod types {
    /// All kinds: the current activity of the controller, or the reason why it cannot proceed.
    pub const PROGRESSING: &str = "Progressing";
    /// Catalog: content is served.
    pub const SERVING: &str = "Serving";
    /// Catalog: the image template is resolved (docs/design/catalogd.md#image-templates). Only present while the
    /// catalog has one.
    pub const IMAGE_TEMPLATE_RESOLVED: &str = "ImageTemplateResolved";
    /// Extension: a bundle is installed.
    pub const INSTALLED: &str = "Installed";
    /// Revision, mirrored to the extension: all objects pass their probes.
    pub const AVAILABLE: &str = "Available";
    /// Revision: it rolled out completely at least once.
    pub const SUCCEEDED: &str = "Succeeded";
    /// Extension: package, channel or bundle is deprecated.
    pub const DEPRECATED: &str = "Deprecated";
    /// Extension: the package is deprecated.
    pub const PACKAGE_DEPRECATED: &str = "PackageDeprecated";
    /// Extension: a channel is deprecated.
    pub const CHANNEL_DEPRECATED: &str = "ChannelDeprecated";
    /// Extension: the installed bundle is deprecated.
    pub const BUNDLE_DEPRECATED: &str = "BundleDeprecated";
    /// Extension: a newer version exists (docs/design/additions.md#held-upgrades). Only present if a rule of this
    /// implementation can hold it back, or with gate `UpdateNotifications`.
    pub const UPGRADE_AVAILABLE: &str = "UpgradeAvailable";
    /// Extension: the dependencies of the bundle are satisfied (docs/design/additions.md#dependency-modes). Only
    /// present if dependencies are checked.
    pub const DEPENDENCIES_SATISFIED: &str = "DependenciesSatisfied";
    /// Extension: nothing is applied or upgraded (docs/design/additions.md#pause). Only present while the
    /// annotation [`EXT_PAUSED`](crate::annotations::EXT_PAUSED) is `true`.
    pub const PAUSED: &str = "Paused";
    /// Extension: the signature policy accepts the image of the bundle. Catalog: likewise for its image. Only present
    /// if the policy has a requirement for it.
    pub const SIGNATURE_VERIFIED: &str = "SignatureVerified";
    /// All kinds: the current generation is installed, served or rolled out, and works
    /// (docs/design/additions.md#status-summary). This and the next two exist only with gate `StatusSummary`.
    pub const READY: &str = "Ready";
    /// All kinds: the controller works on the current generation. Absent otherwise.
    pub const RECONCILING: &str = "Reconciling";
    /// All kinds: the current generation makes no progress without a change. Absent otherwise.
    pub const STALLED: &str = "Stalled";
    /// Cluster upgrade status: the platform may be upgraded (docs/design/operations.md#clusterupgradestatus). In an
    /// OperatorCondition: the operator may be replaced.
    pub const UPGRADEABLE: &str = "Upgradeable";
}

/// Condition reasons.
pub mod reasons {
    /// The last attempt succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The last attempt failed, or the state is unknown.
    pub const FAILED: &str = "Failed";
    /// Nothing is installed yet.
    pub const ABSENT: &str = "Absent";
    /// The last attempt failed and is retried.
    pub const RETRYING: &str = "Retrying";
    /// No progress is possible without a change by an administrator.
    pub const BLOCKED: &str = "Blocked";
    /// The configuration of the extension is invalid for the bundle.
    pub const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
    /// A revision is being rolled out.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// A revision did not roll out in time.
    pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
    /// Deprecated.
    pub const DEPRECATED: &str = "Deprecated";
    /// Not deprecated.
    pub const NOT_DEPRECATED: &str = "NotDeprecated";
    /// No catalog data about deprecation.
    pub const DEPRECATION_STATUS_UNKNOWN: &str = "DeprecationStatusUnknown";
    /// All objects pass their probes.
    pub const PROBES_SUCCEEDED: &str = "ProbesSucceeded";
    /// Some object does not pass its probe.
    pub const PROBE_FAILURE: &str = "ProbeFailure";
    /// An error prevents evaluation of the probes.
    pub const RECONCILING: &str = "Reconciling";
    /// The revision is archived.
    pub const ARCHIVED: &str = "Archived";
    /// Catalog content is served.
    pub const AVAILABLE: &str = "Available";
    /// Catalog content is not served.
    pub const UNAVAILABLE: &str = "Unavailable";
    /// Catalog content is not served because availabilityMode is Unavailable.
    pub const USER_SPECIFIED_UNAVAILABLE: &str = "UserSpecifiedUnavailable";

    /// The extension is paused by annotation.
    pub const PAUSED: &str = "Paused";
    /// No newer version is held back.
    pub const UP_TO_DATE: &str = "UpToDate";
    /// No catalog has the package.
    pub const PACKAGE_NOT_FOUND: &str = "PackageNotFound";
    /// The newer version is outside of the version range.
    pub const OUTSIDE_VERSION_RANGE: &str = "OutsideVersionRange";
    /// The newer version exceeds the upgrade scope.
    pub const OUTSIDE_SCOPE: &str = "OutsideScope";
    /// The newer version has an unsatisfied dependency, or another extension depends on the installed version.
    pub const DEPENDENCY_CONFLICT: &str = "DependencyConflict";
    /// The channel skips the newer version.
    pub const SKIPPED: &str = "Skipped";
    /// The newer version is incompatible with this cluster.
    pub const CLUSTER_CONSTRAINT: &str = "ClusterConstraint";
    /// The newer version may break existing custom resources.
    pub const CRD_CHECK_FAILED: &str = "CRDCheckFailed";
    /// The newer version, or the changed configuration, requires an approval.
    pub const APPROVAL_REQUIRED: &str = "ApprovalRequired";
    /// Another member of the upgrade group is not ready.
    pub const UPGRADE_GROUP: &str = "UpgradeGroup";
    /// No upgrade window is open.
    pub const OUTSIDE_WINDOW: &str = "OutsideWindow";
    /// The OperatorCondition of the operator prevents an upgrade.
    pub const OPERATOR_NOT_UPGRADEABLE: &str = "OperatorNotUpgradeable";
    /// The newer version, or the changed configuration, was rolled back.
    pub const ROLLED_BACK: &str = "RolledBack";
    /// All dependencies of the bundle are satisfied.
    pub const ALL_SATISFIED: &str = "AllSatisfied";
    /// A dependency of the bundle is missing or cannot be evaluated.
    pub const UNSATISFIED: &str = "Unsatisfied";
    /// The bundle has no dependencies.
    pub const NO_DEPENDENCIES: &str = "NoDependencies";

    /// The image template resolves to a reference.
    pub const ALL_TEMPLATES_RESOLVED: &str = "AllTemplatesResolved";
    /// The image template has improper syntax, or the version of the cluster is not known.
    pub const UNABLE_TO_RESOLVE: &str = "UnableToResolve";

    /// The signature policy requires signatures of the image and accepts them.
    pub const VERIFIED: &str = "Verified";
    /// The signature policy rejects the image.
    pub const REJECTED: &str = "Rejected";
    /// The policy or the signatures cannot be read.
    pub const VERIFICATION_FAILED: &str = "VerificationFailed";

    /// Cluster upgrade status, before the first evaluation (docs/design/operations.md#verdict).
    pub const INITIALIZING: &str = "Initializing";
    /// Cluster upgrade status: an extension does not support the next version.
    pub const INCOMPATIBLE_OPERATORS_INSTALLED: &str = "IncompatibleOperatorsInstalled";
    /// Cluster upgrade status: the constraint of an extension cannot be read.
    pub const FAILURE_GETTING_EXTENSION_METADATA: &str = "FailureGettingExtensionMetadata";
    /// Cluster upgrade status: constraints exist, but the platform version is unknown.
    pub const PLATFORM_VERSION_UNKNOWN: &str = "PlatformVersionUnknown";
    /// Cluster upgrade status: nothing blocks the upgrade.
    pub const AS_EXPECTED: &str = "AsExpected";
}

/// Prefix of the message of `Progressing` while the bundle image of an extension is pulled.
pub const PULLING: &str = "pulling ";

/// Parts of messages of `Progressing` that `olm doctor` recognizes.
pub mod messages {
    /// Prefix of a failed installation of the chosen bundle.
    pub const RESOLVED_BUNDLE: &str = "error for resolved bundle";
    /// Service account that lacks permissions.
    pub const REQUIRES_PERMISSIONS: &str = "requires the following permissions";
    /// Prefix of a deletion that custom resources block.
    pub const IN_USE: &str = "cannot uninstall: ";
    /// Prefix of a deletion that other extensions block.
    pub const UNINSTALL_WAITS: &str = "uninstall waits: ";
    /// Prefix of a catalog whose image cannot be pulled.
    pub const CATALOG_IMAGE: &str = "source catalog content";
    /// Prefix of a catalog whose content cannot be served.
    pub const CATALOG_CONTENT: &str = "error storing fbc";
}
/// Maximum length of a condition message in bytes. The API server counts characters, of which there are never more.
pub const MAX_MESSAGE_BYTES: usize = 32768;
/// Suffix of a truncated message.
pub const TRUNCATED_SUFFIX: &str = "\n\n... [message truncated]";

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The statement of the condition type is true.
    True,
    /// The statement is false.
    False,
    /// The statement cannot be evaluated.
    Unknown,
}

impl Status {
    /// Returns the value on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// Sets the condition `type_`, appending it if there is none of that type (docs/design/api.md#condition-updates).
///
/// `lastTransitionTime` becomes `now`, in whole seconds as on the wire, if `status` changes, and is kept otherwise.
/// `observed_generation` is always stored. `message` is made [`visible`], and truncated by [`truncate`] above
/// [`MAX_MESSAGE_BYTES`]. Conditions of other types are not changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: Status,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
    now: Timestamp,
) {
    let mut next = Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message: truncate(&visible(message)),
        observed_generation,
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(current) => {
            if current.status == next.status {
                next.last_transition_time = current.last_transition_time.clone();
            }
            *current = next;
        }
        None => conditions.push(next),
    }
}

/// Removes the condition `type_`.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

/// Finds the condition of this type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Reports whether the condition of this type exists with status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Truncates `message` to [`MAX_MESSAGE_BYTES`], including [`TRUNCATED_SUFFIX`].
///
/// Never splits a character.
pub fn truncate(message: &str) -> String {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message.to_owned();
    }
    let kept = message.floor_char_boundary(MAX_MESSAGE_BYTES - TRUNCATED_SUFFIX.len());
    format!("{}{TRUNCATED_SUFFIX}", &message[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::new(second, 700_000_000).unwrap()
    }

    fn time(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn set_appends_a_new_type_in_whole_seconds() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Serving", Status::True, "Available", "served", Some(3), at(10));
        let expected = Condition {
            type_: "Serving".into(),
            status: "True".into(),
            reason: "Available".into(),
            message: "served".into(),
            observed_generation: Some(3),
            last_transition_time: time(10),
        };
        assert_eq!(conditions, [expected]);
    }

    #[test]
    fn set_keeps_transition_time_for_unchanged_status() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Progressing", Status::True, "Retrying", "no route", Some(1), at(10));
        set(&mut conditions, "Progressing", Status::True, "Succeeded", "done", Some(2), at(20));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].last_transition_time, time(10));
        assert_eq!(conditions[0].reason, "Succeeded");
        assert_eq!(conditions[0].message, "done");
        assert_eq!(conditions[0].observed_generation, Some(2));

        set(&mut conditions, "Progressing", Status::False, "Blocked", "stop", Some(2), at(30));
        assert_eq!(conditions[0].last_transition_time, time(30));
    }

    #[test]
    fn set_escapes_hidden_characters_of_the_message() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Serving", Status::False, "Blocked", "a\u{9b}2J\u{202e}b\nc", None, at(1));
        assert_eq!(conditions[0].message, "a\\u{9b}2J\\u{202e}b\nc");
    }

    #[test]
    fn set_and_remove_keep_conditions_of_other_types() {
        let mut conditions = Vec::new();
        set(&mut conditions, "example.org/Foreign", Status::Unknown, "Foreign", "", None, at(1));
        let foreign = conditions.clone();
        set(&mut conditions, "Serving", Status::False, "Unavailable", "", Some(1), at(2));
        assert_eq!(conditions[..1], foreign);
        assert_eq!(find(&conditions, "Serving").map(|found| found.status.as_str()), Some("False"));
        remove(&mut conditions, "Serving");
        assert_eq!(conditions, foreign);
        assert!(!is_true(&conditions, "Serving"));
        assert!(!is_true(&conditions, "Installed"));
    }

    // Case api-30
    #[test]
    fn messages_above_the_limit_are_truncated() {
        assert_eq!(truncate(&"x".repeat(MAX_MESSAGE_BYTES)), "x".repeat(MAX_MESSAGE_BYTES));

        let mut conditions = Vec::new();
        set(&mut conditions, "Progressing", Status::True, "Retrying", &"x".repeat(40_000), Some(1), at(1));
        assert_eq!(conditions[0].message, format!("{}\n\n... [message truncated]", "x".repeat(32_743)));
        assert_eq!(conditions[0].message.len(), 32_768);
    }

    #[test]
    fn truncate_never_splits_a_character() {
        // 32743 is not a multiple of three: the character at the limit is dropped as a whole.
        let cut = truncate(&"\u{20ac}".repeat(20_000));
        assert_eq!(cut, format!("{}{TRUNCATED_SUFFIX}", "\u{20ac}".repeat(10_914)));
    }
}
