//! The verdict on CRD changes, from static findings and existing custom resources
//! (docs/design/apply.md#crd-upgrade-safety, docs/design/additions.md#crd-checks). Pure.

use olm_api::conditions::truncate;
use olm_crd_safety::{CrdFinding, error_text};
use olm_request::CrdCheck;

use super::CrdVerdict;

/// Number of violations that a message names per custom resource, and the limit of each in bytes. The rest is
/// dropped.
const VIOLATIONS: usize = 3;
const VIOLATION_BYTES: usize = 300;

/// One changed CRD.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExaminedCrd {
    /// Name of the CRD.
    pub name: String,
    /// Findings of the comparison of the CRDs.
    pub findings: Vec<CrdFinding>,
    /// Result of checking the custom resources, if they were checked.
    pub existing: Option<ResourceCheck>,
}

/// Result of checking the custom resources of a changed CRD.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResourceCheck {
    /// Checked completely, or until some violate the new CRD.
    Checked(CheckedResources),
    /// Not checked, or only partly and without violations. Holds the reason.
    Unknown(String),
}

/// Result of the custom resources that were checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CheckedResources {
    /// First violating custom resources, formatted by [`harmed`].
    pub harmed: Vec<String>,
    /// Number of violating custom resources.
    pub count: usize,
    /// `true` if there may be more.
    pub at_least: bool,
    /// Text of the findings that custom resources cannot refute.
    pub unjudged: Option<String>,
}

/// Returns the verdict on all CRDs of a bundle. Its text fits into a condition message.
pub(super) fn verdict(examined: &[ExaminedCrd], mode: CrdCheck) -> CrdVerdict {
    let (mut held, mut accepted) = (Vec::new(), Vec::new());
    for one in examined {
        match one.verdict(mode) {
            CrdVerdict::Safe => {}
            CrdVerdict::Accepted(text) => accepted.push(text),
            CrdVerdict::Held(text) => held.push(text),
        }
    }
    match (held.is_empty(), accepted.is_empty()) {
        (false, _) => CrdVerdict::Held(truncate(&held.join("\n"))),
        (true, false) => CrdVerdict::Accepted(truncate(&accepted.join("\n"))),
        (true, true) => CrdVerdict::Safe,
    }
}

impl ExaminedCrd {
    /// Returns `true` if the change is refused regardless of custom resources.
    pub(super) fn is_refused(&self) -> bool {
        self.findings.iter().any(CrdFinding::is_absolute)
    }

    fn verdict(&self, mode: CrdCheck) -> CrdVerdict {
        let Self { name, findings, existing } = self;
        let text = |findings: &[CrdFinding]| error_text(name, findings);
        let accepted = || match findings.is_empty() {
            true => CrdVerdict::Safe,
            false => CrdVerdict::Accepted(text(findings)),
        };
        if mode != CrdCheck::Strict && self.is_refused() {
            let denied: Vec<CrdFinding> = findings.iter().filter(|one| one.is_absolute()).cloned().collect();
            return CrdVerdict::Held(text(&denied));
        }
        match (mode, existing) {
            (CrdCheck::Warn, _) => accepted(),
            (CrdCheck::Live, Some(ResourceCheck::Checked(seen))) if seen.count > 0 => {
                CrdVerdict::Held(seen.text(name))
            }
            (CrdCheck::Live, Some(ResourceCheck::Checked(seen))) => {
                seen.unjudged.clone().map_or_else(accepted, CrdVerdict::Held)
            }
            (CrdCheck::Strict | CrdCheck::Live, _) if findings.is_empty() => CrdVerdict::Safe,
            (CrdCheck::Live, Some(ResourceCheck::Unknown(why))) => {
                CrdVerdict::Held(format!("{}\nexisting objects were not checked: {why}", text(findings)))
            }
            (CrdCheck::Strict | CrdCheck::Live, _) => CrdVerdict::Held(text(findings)),
        }
    }
}

impl CheckedResources {
    fn text(&self, crd: &str) -> String {
        let Self { harmed, count, at_least, .. } = self;
        let least = if *at_least { "at least " } else { "" };
        let objects = if *count == 1 { "object does" } else { "objects do" };
        let rest = count.saturating_sub(harmed.len());
        let rest = if rest > 0 { format!("; and {rest} more") } else { String::new() };
        format!(
            "validating upgrade for CRD {crd:?}: {least}{count} existing {objects} not fit: {}{rest}",
            harmed.join("; ")
        )
    }
}

/// Formats a custom resource that violates the new CRD. `name` is `<namespace>/<name>`, or only the name.
pub(super) fn harmed(name: &str, violations: &[String]) -> String {
    let named: Vec<&str> = violations
        .iter()
        .take(VIOLATIONS)
        .map(|one| &one[..one.floor_char_boundary(VIOLATION_BYTES)])
        .collect();
    let rest = violations.len().saturating_sub(VIOLATIONS);
    let rest = if rest > 0 { format!(", and {rest} more") } else { String::new() };
    format!("{name} ({}{rest})", named.join(", "))
}

#[cfg(test)]
mod tests {
    use olm_crd_safety::{Impact, Section};

    use super::*;

    fn finding(check: &'static str, text: &str) -> CrdFinding {
        let (section, version, property) = match check {
            "scope" | "storedVersionRemoval" => (Section::Crd, None, None),
            _ => (Section::Same, Some("v1".to_owned()), Some("^.spec".to_owned())),
        };
        let impact = Impact::StoredObjects;
        CrdFinding { section, version, property, check, text: text.to_owned(), impact }
    }

    fn required() -> CrdFinding {
        finding("required", "new required fields: [a]")
    }

    fn gone() -> CrdFinding {
        finding("storedVersionRemoval", "stored versions removed : [v1alpha1]")
    }

    fn examined(name: &str, findings: &[CrdFinding], existing: Option<ResourceCheck>) -> ExaminedCrd {
        ExaminedCrd { name: name.to_owned(), findings: findings.to_vec(), existing }
    }

    fn held(text: &str) -> CrdVerdict {
        CrdVerdict::Held(text.to_owned())
    }

    const REQUIRED: &str =
        "validating upgrade for CRD \"a.x\": v1: ^.spec: required: new required fields: [a]";
    const GONE: &str =
        "validating upgrade for CRD \"a.x\": storedVersionRemoval: stored versions removed : [v1alpha1]";

    // docs/design/apply.md#crd-upgrade-safety
    #[test]
    fn strict_mode_holds_every_finding() {
        let strict = |all: &[ExaminedCrd]| verdict(all, CrdCheck::Strict);
        assert_eq!(strict(&[]), CrdVerdict::Safe);
        assert_eq!(strict(&[examined("a.x", &[], None)]), CrdVerdict::Safe);
        assert_eq!(strict(&[examined("a.x", &[required()], None)]), held(REQUIRED));
        let both = examined("a.x", &[gone(), required()], None);
        let both_lines = format!("{GONE}\nv1: ^.spec: required: new required fields: [a]");
        assert_eq!(strict(std::slice::from_ref(&both)), held(&both_lines));
        let all = [both, examined("b.x", &[], None), examined("c.x", &[gone()], None)];
        let third = GONE.replace("a.x", "c.x");
        assert_eq!(strict(&all), held(&format!("{both_lines}\n{third}")));
    }

    // docs/design/additions.md#crd-checks; case additions-a47
    #[test]
    fn warn_mode_holds_only_absolute_findings() {
        let warn = |all: &[ExaminedCrd]| verdict(all, CrdCheck::Warn);
        assert_eq!(warn(&[examined("a.x", &[], None)]), CrdVerdict::Safe);
        assert_eq!(warn(&[examined("a.x", &[required()], None)]), CrdVerdict::Accepted(REQUIRED.to_owned()));
        assert_eq!(warn(&[examined("a.x", &[gone(), required()], None)]), held(GONE));
        let scope = finding("scope", "scope changed");
        let text = "validating upgrade for CRD \"b.x\": scope: scope changed";
        assert_eq!(
            warn(&[examined("a.x", &[required()], None), examined("b.x", &[scope], None)]),
            held(text)
        );
    }

    // docs/design/additions.md#crd-checks; cases additions-a46, additions-a47
    #[test]
    fn live_mode_holds_changes_that_existing_objects_violate() {
        let live = |findings: &[CrdFinding], existing: ResourceCheck| {
            verdict(&[examined("a.x", findings, Some(existing))], CrdCheck::Live)
        };
        let fit = || ResourceCheck::Checked(CheckedResources::default());
        assert_eq!(live(&[], fit()), CrdVerdict::Safe);
        assert_eq!(live(&[required()], fit()), CrdVerdict::Accepted(REQUIRED.to_owned()));
        assert_eq!(live(&[gone()], fit()), held(GONE));
        assert_eq!(verdict(&[examined("a.x", &[gone(), required()], None)], CrdCheck::Live), held(GONE));

        let harmed = |names: &[&str], violations: &[&str]| -> Vec<String> {
            let violations: Vec<String> = violations.iter().map(|&one| one.to_owned()).collect();
            names.iter().map(|name| super::harmed(name, &violations)).collect()
        };
        let one = CheckedResources {
            harmed: harmed(&["ns/w"], &["v1: spec: no"]),
            count: 1,
            ..CheckedResources::default()
        };
        let text = "validating upgrade for CRD \"a.x\": 1 existing object does not fit: ns/w (v1: spec: no)";
        // With and without a finding.
        assert_eq!(live(&[], ResourceCheck::Checked(one.clone())), held(text));
        assert_eq!(live(&[required()], ResourceCheck::Checked(one)), held(text));
        let more = harmed(&["a", "b"], &["1", "2", "3", "4", "5"]);
        let many = CheckedResources { harmed: more, count: 7, at_least: true, ..CheckedResources::default() };
        let text = "validating upgrade for CRD \"a.x\": at least 7 existing objects do not fit: \
                    a (1, 2, 3, and 2 more); b (1, 2, 3, and 2 more); and 5 more";
        assert_eq!(live(&[required()], ResourceCheck::Checked(many)), held(text));

        let default = finding("default", "default added");
        let text = "validating upgrade for CRD \"a.x\": v1: ^.spec: default: default added";
        let unjudged = CheckedResources { unjudged: Some(text.to_owned()), ..CheckedResources::default() };
        assert_eq!(live(&[default, required()], ResourceCheck::Checked(unjudged)), held(text));

        let unknown = || ResourceCheck::Unknown("late".to_owned());
        assert_eq!(live(&[], unknown()), CrdVerdict::Safe);
        assert_eq!(
            live(&[required()], unknown()),
            held(&format!("{REQUIRED}\nexisting objects were not checked: late"))
        );
    }

    #[test]
    fn long_texts_are_truncated() {
        assert_eq!(harmed("w", &["\u{20ac}".repeat(200)]), format!("w ({})", "\u{20ac}".repeat(100)));
        let many = vec![required(); 1000];
        for mode in [CrdCheck::Warn, CrdCheck::Strict] {
            let verdict = verdict(&[examined("a.x", &many, None)], mode);
            let (CrdVerdict::Accepted(text) | CrdVerdict::Held(text)) = verdict else { panic!() };
            assert_eq!(text.len(), olm_api::conditions::MAX_MESSAGE_BYTES);
        }
    }
}
