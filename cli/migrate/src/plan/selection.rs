//! Packages of a plan: choice, refusal and order. Pure.

use std::collections::BTreeSet;

use olm_cli_core::error::CliError;
use olm_cli_core::names::nearest;
use olm_version::quote;

use super::PackageReport;
use crate::rule::{self, Class, Rule};

/// Findings that the plan answers, if the user accepts it.
pub(crate) const ACCEPTABLE: [&str; 4] =
    [rule::REQUIRES.id, rule::USERS.id, rule::ACCOUNT.id, rule::USES_CLASSIC.id];

/// Reports of the packages `names`, each as `PACKAGE` or `NAMESPACE/PACKAGE`. All without names.
///
/// # Errors
/// A name is unknown, or that of packages in several namespaces.
pub(crate) fn select<'a>(
    reports: &'a [PackageReport],
    names: &[String],
) -> Result<Vec<&'a PackageReport>, CliError> {
    if names.is_empty() {
        return Ok(reports.iter().collect());
    }
    let mut selected = Vec::new();
    for name in names {
        let is_named = |report: &&PackageReport| report.package == *name || report.id() == *name;
        let found: Vec<&PackageReport> = reports.iter().filter(is_named).collect();
        match found.as_slice() {
            [] => return Err(unknown(reports, name)),
            [one] => selected.push(*one),
            several => {
                let ids: Vec<String> = several.iter().map(|report| report.id()).collect();
                return Err(CliError::usage(format!(
                    "package {} is installed several times: name one of {}",
                    quote(name),
                    ids.join(", ")
                )));
            }
        }
    }
    let mut seen = BTreeSet::new();
    selected.retain(|report| seen.insert(report.id()));
    Ok(selected)
}

fn unknown(reports: &[PackageReport], name: &str) -> CliError {
    let known = reports.iter().map(|report| report.package.as_str());
    let hint = match nearest(name, known) {
        Some(near) => format!("did you mean {near}?"),
        None => "`olm migrate scan` lists the packages".to_owned(),
    };
    CliError::no_candidate(format!("classic OLM has not installed package {}: {hint}", quote(name)))
}

/// Packages with dependents before those that they require, in the given order where it is free. Packages that require each
/// other keep their order. `relation` returns the `namespace/package` of one, and of those that come before it.
pub(crate) fn ordered<T>(
    mut rest: Vec<T>,
    relation: impl for<'t> Fn(&'t T) -> (String, &'t [String]),
) -> Vec<T> {
    let mut ordered = Vec::new();
    while !rest.is_empty() {
        let ids: Vec<String> = rest.iter().map(|one| relation(one).0).collect();
        let waits = |one: &T| {
            let (own, after) = relation(one);
            after.iter().any(|id| *id != own && ids.contains(id))
        };
        let next = rest.iter().position(|one| !waits(one)).unwrap_or(0);
        ordered.push(rest.remove(next));
    }
    ordered
}

/// Findings for which the package cannot be planned, each with the next step. `None` if it can. `planned` are the
/// packages that migrate before, as `namespace/package`.
pub(crate) fn refusal(
    report: &PackageReport,
    planned: &[String],
    accepted: &[String],
) -> Option<Vec<String>> {
    let is_settled = |rule: &Rule| {
        accepted.iter().any(|id| id == rule.id)
            || (rule == rule::REQUIRED && report.after.iter().all(|id| planned.contains(id)))
    };
    let open = report
        .findings
        .iter()
        .filter(|finding| finding.rule.class > Class::ReadyWithSetting && !is_settled(finding.rule));
    let reasons: Vec<String> = open
        .map(|finding| {
            let rule = finding.rule;
            let accept = if ACCEPTABLE.contains(&rule.id) {
                format!(", or accept the plan with --accept {}", rule.id)
            } else {
                String::new()
            };
            format!("{}: {}. {}{accept}", rule.id, finding.message, rule.advice)
        })
        .collect();
    (!reasons.is_empty()).then_some(reasons)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Finding;

    fn report(namespace: &str, package: &str, after: &[&str], rules: &[&'static Rule]) -> PackageReport {
        let finding = |rule: &&'static Rule| Finding { rule, message: format!("about {}", rule.id) };
        let findings: Vec<Finding> = rules.iter().map(finding).collect();
        PackageReport {
            package: package.to_owned(),
            namespace: namespace.to_owned(),
            subscription: package.to_owned(),
            csv: format!("{package}.v1.0.0"),
            version: "1.0.0".to_owned(),
            channel: String::new(),
            class: rules.iter().map(|rule| rule.class).max().unwrap_or(Class::Ready),
            findings,
            after: after.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    #[test]
    fn packages_are_named_with_or_without_namespace() {
        let reports =
            [report("a", "lamp", &[], &[]), report("b", "lamp", &[], &[]), report("b", "shade", &[], &[])];
        let selected = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select(&reports, &names)
                .map(|found| found.iter().map(|report| report.id()).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(selected(&[]).unwrap(), ["a/lamp", "b/lamp", "b/shade"]);
        assert_eq!(selected(&["shade", "a/lamp", "b/shade"]).unwrap(), ["b/shade", "a/lamp"]);
        let several = "package \"lamp\" is installed several times: name one of a/lamp, b/lamp";
        assert_eq!(selected(&["lamp"]).unwrap_err(), several);
        let near = "classic OLM has not installed package \"shad\": did you mean shade?";
        assert_eq!(selected(&["shad"]).unwrap_err(), near);
    }

    #[test]
    fn dependents_come_before_their_requirements() {
        let names = |reports: &[PackageReport]| {
            let ordered = ordered(reports.iter().collect(), |report| (report.id(), report.after.as_slice()));
            ordered.iter().map(|report| report.package.clone()).collect::<Vec<_>>().join(" ")
        };
        let base = report("n", "base", &["n/app", "n/mid"], &[]);
        let mid = report("n", "mid", &["n/app"], &[]);
        let app = report("n", "app", &["n/not-selected"], &[]);
        assert_eq!(names(&[base, mid, app]), "app mid base");
        // APIs in a cycle, and an own API.
        let cycle = [
            report("n", "b", &["n/a"], &[]),
            report("n", "a", &["n/b"], &[]),
            report("n", "c", &["n/c"], &[]),
        ];
        assert_eq!(names(&cycle), "c b a");
    }

    #[test]
    fn open_findings_refuse_a_package() {
        let planned = ["n/app".to_owned()];
        for (after, rules, accepted, expected) in [
            (&[][..], &[][..], &[][..], None),
            (&[], &[rule::CONFIG, rule::COPIES], &[], None),
            (&["n/app"], &[rule::REQUIRED], &[], None),
            (
                &["n/app", "n/other"],
                &[rule::REQUIRED],
                &[],
                Some("DECISION-3: about DECISION-3. Migrate the others first"),
            ),
            (&[], &[rule::USERS], &[], Some("DECISION-6: about DECISION-6. Grant access")),
            (&[], &[rule::USERS], &["DECISION-6"], None),
            (&[], &[rule::USERS, rule::GROUP], &["DECISION-6"], Some("STATE-3: ")),
        ] {
            let accepted: Vec<String> = accepted.iter().map(|id: &&str| (*id).to_owned()).collect();
            let found = refusal(&report("n", "base", after, rules), &planned, &accepted);
            match (&found, expected) {
                (Some(reasons), Some(start)) => {
                    assert!(reasons.len() == 1 && reasons[0].starts_with(start), "{reasons:?}")
                }
                (found, expected) => assert!(found.is_none() && expected.is_none(), "{found:?}"),
            }
        }
        let users = refusal(&report("n", "base", &[], &[rule::USERS]), &[], &[]).unwrap();
        assert!(users[0].ends_with("or accept the plan with --accept DECISION-6"), "{users:?}");
    }
}
