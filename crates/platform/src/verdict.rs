//! The verdict: whether the platform may move to its next version (docs/design/operations.md#verdict,
//! docs/design/additions.md#ignored-constraints).

use std::collections::BTreeSet;

use olm_api::cluster_upgrade_status::{
    Acknowledgement, ExtensionVerdict, OperatorConditionMirror, PlatformType, VerdictResult,
};
use olm_api::conditions::{Status, reasons};
use olm_version::quote;

use crate::message::{entries_and_errors, list, shown};
use crate::platform::Platform;
use crate::property::{Declaration, PlatformConstraint};
use crate::revision::ConstrainedRevision;

/// Limits in bytes of the value and the message shown for one extension.
const MAX_VALUE_BYTES: usize = 256;
const MAX_TEXT_BYTES: usize = 1024;

/// Combined result of all installed extensions for the platform's next version.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// `True` if the platform may move to the next version.
    pub status: Status,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Message of at most 32 KiB.
    pub message: String,
    /// Platform that was evaluated. `None` before the first evaluation.
    pub platform: Option<Platform>,
    /// Number of blocking extensions.
    pub blocking: usize,
    /// Extensions with a constraint or an error, sorted by name, bundle and constraint, without duplicates.
    pub extensions: Vec<ExtensionVerdict>,
}

impl Verdict {
    /// Returns the verdict for the time before the revisions are known.
    pub fn initializing() -> Self {
        Self {
            status: Status::Unknown,
            reason: reasons::INITIALIZING,
            message: "Waiting for the first evaluation of installed extensions".to_owned(),
            platform: None,
            blocking: 0,
            extensions: Vec::new(),
        }
    }

    /// Adds what the operators of these revisions report about being upgraded, by extension and bundle. It does not
    /// change the verdict. An extension without a constraint gets a row.
    pub fn with_operator_conditions<'a>(
        mut self,
        revisions: impl IntoIterator<Item = &'a ConstrainedRevision>,
        report: impl Fn(&str, &str) -> Option<OperatorConditionMirror>,
    ) -> Self {
        for revision in revisions {
            let found = report(&revision.extension, &revision.bundle);
            let Some(found) = found.filter(|_| self.platform.is_some()) else { continue };
            let new = row(revision, None, VerdictResult::NotApplicable, None);
            let is_same = |row: &ExtensionVerdict| (&row.name, &row.bundle) == (&new.name, &new.bundle);
            if !self.extensions.iter().any(is_same) {
                self.extensions.push(new.clone());
            }
            for row in self.extensions.iter_mut().filter(|row| is_same(row)) {
                row.operator_condition = Some(found.clone());
            }
        }
        self.extensions.sort_by_key(sort_key);
        self
    }
}

fn sort_key(row: &ExtensionVerdict) -> impl Ord + use<> {
    (row.name.clone(), row.bundle.clone(), row.constraint.clone(), row.value.clone(), row.version.clone())
}

/// Evaluates the revisions, in any order. Every active revision counts: during a rollout, the old bundle of an
/// extension still runs. An acknowledged bundle does not block (docs/design/operations.md#acknowledgements).
pub fn evaluate<'a>(
    platform: &Platform,
    acknowledgements: &[Acknowledgement],
    revisions: impl IntoIterator<Item = &'a ConstrainedRevision>,
) -> Verdict {
    let next = platform.next.map(|next| next.to_string());
    let is_acknowledged = |revision: &ConstrainedRevision| {
        acknowledgements.iter().any(|one| {
            (&one.extension, &one.bundle) == (&revision.extension, &revision.bundle)
                && Some(&one.platform_version) == next.as_ref()
        })
    };
    let mut findings = Findings::default();
    for revision in revisions {
        let mut found = Findings::default();
        found.add(platform, revision);
        findings.merge(if is_acknowledged(revision) { found.acknowledged() } else { found });
    }
    let (status, reason, message) = findings.conclusion(platform);
    let mut extensions = findings.rows;
    extensions.sort_by_key(sort_key);
    // Several revisions may have the same bundle.
    extensions.dedup();
    Verdict {
        status,
        reason,
        message,
        platform: Some(platform.clone()),
        blocking: findings.blocking.len(),
        extensions,
    }
}

/// Findings so far. Sets, so that the result does not depend on the order of revisions.
#[derive(Default)]
struct Findings {
    /// Names of blocking extensions.
    blocking: BTreeSet<String>,
    /// Message entries of the blocking bundles.
    entries: BTreeSet<String>,
    /// Extension and error text.
    errors: BTreeSet<(String, String)>,
    /// Names of extensions whose constraint cannot be compared because the version is not known.
    undecided: BTreeSet<String>,
    /// Message entries of constraints that do not apply to this platform.
    ignored: BTreeSet<String>,
    rows: Vec<ExtensionVerdict>,
}

impl Findings {
    /// Keeps only the rows and the ignored constraints. Nothing else matters of an acknowledged bundle.
    fn acknowledged(mut self) -> Self {
        for row in &mut self.rows {
            if !matches!(row.result, VerdictResult::Compatible | VerdictResult::NotApplicable) {
                row.result = VerdictResult::Acknowledged;
            }
        }
        Self { rows: self.rows, ignored: self.ignored, ..Self::default() }
    }

    fn merge(&mut self, other: Self) {
        self.blocking.extend(other.blocking);
        self.entries.extend(other.entries);
        self.errors.extend(other.errors);
        self.undecided.extend(other.undecided);
        self.ignored.extend(other.ignored);
        self.rows.extend(other.rows);
    }

    fn add(&mut self, platform: &Platform, revision: &ConstrainedRevision) {
        let declared = match &revision.declared {
            Ok(declared) => declared,
            Err(error) => {
                let error = format!(
                    "could not convert olm.properties: failed to unmarshal properties annotation: {error}"
                );
                self.rows.push(row(revision, None, VerdictResult::Invalid, Some(&error)));
                let (extension, bundle) = (&revision.extension, &revision.bundle);
                let text =
                    format!("error with cluster extension {extension}: error in bundle {bundle}: {error}");
                self.errors.insert((extension.clone(), text));
                return;
            }
        };
        for declaration in declared {
            let (result, why) = self.judge(platform, revision, declaration);
            self.rows.push(row(revision, Some(declaration), result, why.as_deref()));
        }
    }

    fn judge(
        &mut self,
        platform: &Platform,
        revision: &ConstrainedRevision,
        declaration: &Declaration,
    ) -> (VerdictResult, Option<String>) {
        let (extension, bundle) = (&revision.extension, &revision.bundle);
        let entry = || format!("bundle {} for ClusterExtension {}", quote(bundle), quote(extension));
        let constraint = declaration.constraint;
        let ignored = |findings: &mut Self| {
            findings.ignored.insert(entry());
            (VerdictResult::NotApplicable, Some(format!("says nothing about {}", platform.type_)))
        };
        if !platform.evaluates(constraint) {
            return ignored(self);
        }
        let highest = match &declaration.value {
            Ok(highest) => *highest,
            Err(errors) => {
                let errors = errors.join("\n");
                let text = format!(
                    "error(s) with cluster extension {extension}: error in bundle {bundle}: {errors}"
                );
                self.errors.insert((extension.clone(), text));
                return (VerdictResult::Invalid, Some(errors));
            }
        };
        let Some(limit) = platform.limit(constraint, highest) else {
            return ignored(self);
        };
        let Some(next) = platform.next_of(constraint) else {
            self.undecided.insert(extension.clone());
            return (VerdictResult::Unknown, Some("the cluster version is not known".to_owned()));
        };
        let is_supported = match (constraint, &platform.type_) {
            (PlatformConstraint::OpenShift, PlatformType::OpenShift) => limit.supports_openshift(next),
            _ => limit >= next,
        };
        if is_supported {
            return (VerdictResult::Compatible, None);
        }
        self.entries.insert(entry());
        self.blocking.insert(extension.clone());
        let read = if limit == highest { String::new() } else { format!(" with Kubernetes {limit}") };
        let why = format!("supports at most {highest}{read}, the next version is {next}");
        (VerdictResult::Blocking, Some(why))
    }

    /// Returns status, reason and message of the first case that holds.
    fn conclusion(&self, platform: &Platform) -> (Status, &'static str, String) {
        let errors: Vec<String> = self.errors.iter().map(|(_, text)| text.clone()).collect();
        let all = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
        if !self.entries.is_empty() {
            let next = platform.next.or(platform.next_kubernetes).map(|next| next.to_string());
            let head = format!(
                "Found ClusterExtensions that require upgrades prior to upgrading cluster to version {}: ",
                next.unwrap_or_default()
            );
            let message = entries_and_errors(&head, &all(&self.entries), &errors);
            return (Status::False, reasons::INCOMPATIBLE_OPERATORS_INSTALLED, message);
        }
        if !errors.is_empty() {
            return (Status::False, reasons::FAILURE_GETTING_EXTENSION_METADATA, list("", &errors, "\n"));
        }
        if !self.undecided.is_empty() {
            let count = match self.undecided.len() {
                1 => "1 installed extension declares".to_owned(),
                count => format!("{count} installed extensions declare"),
            };
            let head = format!("Cannot determine the cluster version; {count} a maximum version: ");
            let message = list(&head, &all(&self.undecided), ", ");
            return (Status::Unknown, reasons::PLATFORM_VERSION_UNKNOWN, message);
        }
        let message = if self.ignored.is_empty() {
            "All is well".to_owned()
        } else {
            let head = format!(
                "All is well; {} was not evaluated because the platform is not {}: ",
                PlatformConstraint::OpenShift.property(),
                PlatformType::OpenShift
            );
            list(&head, &all(&self.ignored), ",")
        };
        (Status::True, reasons::AS_EXPECTED, message)
    }
}

/// Returns `true` if the bundle blocks the next version, or would without an acknowledgement.
pub(crate) fn is_blocker(row: &ExtensionVerdict) -> bool {
    matches!(row.result, VerdictResult::Blocking | VerdictResult::Invalid | VerdictResult::Acknowledged)
}

fn row(
    revision: &ConstrainedRevision,
    declaration: Option<&Declaration>,
    result: VerdictResult,
    message: Option<&str>,
) -> ExtensionVerdict {
    let constraint = declaration.map_or("", |declaration| declaration.constraint.property());
    let value = declaration.map_or("", |declaration| shown(&declaration.written, MAX_VALUE_BYTES));
    ExtensionVerdict {
        name: revision.extension.clone(),
        bundle: shown(&revision.bundle, MAX_TEXT_BYTES).to_owned(),
        version: shown(&revision.version, MAX_VALUE_BYTES).to_owned(),
        constraint: constraint.to_owned(),
        value: value.to_owned(),
        result,
        upgrade_to: None,
        message: message.map(|text| shown(text, MAX_TEXT_BYTES).to_owned()),
        operator_condition: None,
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
