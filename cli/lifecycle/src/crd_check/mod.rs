//! `olm crd-check`: checks whether new CustomResourceDefinitions break existing custom resources
//! (docs/design/apply.md#crd-upgrade-safety).
//!
//! The findings come from the same function that makes operator-controller refuse an upgrade. What a change breaks is
//! told in addition (docs/design/cli.md#impact-of-crd-changes).

mod rules;
mod source;

use std::collections::BTreeSet;
use std::fmt;

use clap::Args;
use olm_api::annotations::EXT_CRD_CHECK;
use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_cli_core::output::Table;
use olm_cli_core::report::{Case, ReportArgs, RuleList, RunReport, Spot};
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_crd_safety::{
    CrdFinding, Impact, Section, check, error_text, vanished_versions, without_consequences,
};
use olm_finding::{Level, Rule};
use serde::{Serialize, Serializer};
use serde_json::Value;

use self::source::{Crd, Crds};

/// Highest number of field managers that a text names.
const NAMED: usize = 5;

/// First lines of the command's help.
pub const ABOUT: &str = "Check whether new CustomResourceDefinitions break existing custom resources

Compares each CustomResourceDefinition of NEW with the one of the same name in OLD, as an upgrade of a \
ClusterExtension does unless spec.install.preflight.crdUpgradeSafety.enforcement is None: scope, stored versions, \
removed fields, each property of each version, and new differences between versions that are served side by side \
without a conversion webhook. OLD and NEW are files, bundles, folders with manifests, or images of bundles. Objects of \
other kinds are ignored.

Each finding says what the change breaks: stored objects that become invalid or lose fields (an error), clients that \
get other values (a warning), or nothing (a note). operator-controller holds the upgrade for each of them, and the \
exit code is 3. The annotation ext.olm.operatorframework.io/crd-check of the ClusterExtension relaxes this.

Between bundles, folders and images, removed CustomResourceDefinitions and versions that are no longer served are \
listed, too. They do not hold the upgrade, and do not change the exit code.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 operator-controller accepts all changes   1 operation failed   2 wrong usage   3 it holds the upgrade

Examples:
  {olm} crd-check old.yaml new.yaml
  {olm} crd-check quay.io/example/operator-bundle:v1.2.0 ./bundle
  {olm} crd-check ./last-release/config/crd ./config/crd -o github      # annotates lines of a pull request
  kubectl get crd widgets.example.com -o yaml | {olm} crd-check - new.yaml
  kubectl get crd -o json | {olm} crd-check - ./bundle
  {olm} crd-check old.yaml new.yaml --ignore default
  {olm} crd-check old.yaml new.yaml -o json | jq -r '.crds[].findings[] | .breaks + \": \" + .line'")]
pub struct CrdCheckArgs {
    /// File (YAML or JSON, any number of objects), bundle, folder or image with the objects on the cluster; - is
    /// standard input
    #[arg(
        value_name = "OLD",
        required_unless_present = "rules",
        default_value = "",
        hide_default_value = true
    )]
    old: String,
    /// File, bundle, folder or image with the objects to replace them; - is standard input
    #[arg(
        value_name = "NEW",
        required_unless_present = "rules",
        default_value = "",
        hide_default_value = true
    )]
    new: String,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    images: ImageArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct CrdCheck {
    /// `true` if operator-controller accepts all changes.
    safe: bool,
    /// Sorted by name.
    crds: Vec<CrdResult>,
    /// `true` if a CRD that only OLD has is removed.
    #[serde(skip)]
    is_complete: bool,
}

/// Result of replacing one CustomResourceDefinition.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CrdResult {
    pub(crate) name: String,
    pub(crate) result: Verdict,
    /// Error text of the ClusterExtension condition, also of ignored findings.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    pub(crate) findings: Vec<FindingDetails>,
    /// Empty in the result of `olm crd-check`, which has them as findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) no_longer_served: Vec<UnservedVersion>,
}

/// Version that is no longer served. Printed as a sentence.
#[derive(Debug, Serialize)]
pub(crate) struct UnservedVersion {
    /// Name, such as `v1beta1`.
    pub(crate) version: String,
    /// Number of custom resources that were written in it. `None` if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) objects: Option<usize>,
    /// `true` if there are so many custom resources that not all were read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_minimum: bool,
    /// Field managers of these writes.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) managers: BTreeSet<String>,
}

impl UnservedVersion {
    pub(crate) fn new(version: &str) -> Self {
        Self { version: version.to_owned(), objects: None, is_minimum: false, managers: BTreeSet::new() }
    }
}

impl fmt::Display for UnservedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no longer served: clients that use it fail", self.version)?;
        let mut managers = self.managers.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        if self.managers.len() > NAMED {
            managers += &format!(" and {} more", self.managers.len() - NAMED);
        }
        let least = if self.is_minimum { "at least " } else { "" };
        match self.objects {
            None => Ok(()),
            Some(0) if self.is_minimum => Ok(()),
            Some(0) => f.write_str("; no custom resource was written in it"),
            Some(1) => write!(f, "; {least}1 custom resource was written in it, by {managers}"),
            Some(count) => write!(f, "; {least}{count} custom resources were written in it, by {managers}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Verdict {
    Safe,
    Unsafe,
    OnlyInOld,
    OnlyInNew,
}

/// Finding as JSON or YAML.
#[derive(Debug, Serialize)]
pub(crate) struct FindingDetails {
    section: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    property: Option<String>,
    check: &'static str,
    text: String,
    /// What the change breaks.
    #[serde(rename = "breaks", serialize_with = "by_name")]
    impact: Impact,
    /// The whole finding, with the text of the ClusterExtension condition.
    pub(crate) line: String,
    #[serde(skip)]
    pub(crate) loses_data: bool,
    /// `true` if operator-controller accepts the change in no mode of annotation crd-check.
    #[serde(skip)]
    pub(crate) is_absolute: bool,
}

fn by_name<S: Serializer>(impact: &Impact, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(impact.as_str())
}

impl From<CrdFinding> for FindingDetails {
    fn from(finding: CrdFinding) -> Self {
        let (line, loses_data, is_absolute) =
            (finding.to_string(), finding.loses_data(), finding.is_absolute());
        let CrdFinding { section, version, property, check, text, impact } = finding;
        Self {
            section: section.as_str(),
            version,
            property,
            check,
            text,
            impact,
            line,
            loses_data,
            is_absolute,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The objects cannot be read or compared, or there are findings for which operator-controller holds an upgrade.
pub async fn run(args: CrdCheckArgs, session: &mut Session) -> Result<(), CliError> {
    if args.report.rules {
        return args.report.print_rules("CrdRules", &RuleList::new(rules::rules()), RuleList::text, session);
    }
    args.report.check(rules::rules())?;
    if args.old == "-" && args.new == "-" {
        return Err(CliError::usage("OLD and NEW cannot both be standard input"));
    }
    let old = source::read(&args.old, &args.images, session).await?;
    let new = source::read(&args.new, &args.images, session).await?;
    let is_complete = old.is_complete && new.is_complete;
    let empty = [(&args.old, &old), (&args.new, &new)]
        .into_iter()
        .find(|(_, crds)| crds.is_complete && crds.by_name.is_empty());
    if let Some((argument, _)) = empty {
        return Err(CliError::operational(format!("{argument} has no CustomResourceDefinition")));
    }
    if !is_complete && !old.by_name.keys().any(|name| new.by_name.contains_key(name)) {
        let names = |crds: &Crds| listed(&crds.by_name.keys().cloned().collect::<Vec<_>>());
        return Err(CliError::operational(format!(
            "no CustomResourceDefinition is in both: {} has {}, {} has {}",
            args.old,
            names(&old),
            args.new,
            names(&new)
        )));
    }
    let mut crds = Vec::new();
    for name in old.by_name.keys().chain(new.by_name.keys()).collect::<BTreeSet<_>>() {
        session.check()?;
        let (before, after) = (old.by_name.get(name), new.by_name.get(name));
        crds.push(judge(name, before, after, is_complete, &args.report)?);
    }
    let safe = crds.iter().all(|crd| crd.result != Verdict::Unsafe);
    let result = CrdCheck { safe, crds, is_complete };
    args.report.print("CrdCheck", &result, text, |result| report(result, &new), session)?;
    if safe { Ok(()) } else { Err(CliError::Findings) }
}

/// Result for one CRD: what the reference finds except for consequences of another finding, and what it ignores.
fn judge(
    name: &str,
    old: Option<&Crd>,
    new: Option<&Crd>,
    is_complete: bool,
    args: &ReportArgs,
) -> Result<CrdResult, CliError> {
    let objects = (old.map(|crd| &crd.object), new.map(|crd| &crd.object));
    let mut found = findings_of(objects.0, objects.1)?;
    let CrdResult { error, .. } = CrdResult::new(name, objects.0, objects.1, &found);
    found.retain(|finding| !args.ignores(rules::rule(finding.check)));
    let mut result = CrdResult { error, ..CrdResult::new(name, objects.0, objects.1, &found) };
    let mut added = Vec::new();
    match objects {
        (Some(old), Some(new)) => {
            let vanished = vanished_versions(old, new).map_err(CliError::operational)?;
            let text = |version: &String| format!("version is no longer served: {version}");
            added
                .extend(vanished.iter().map(|version| ours(rules::VANISHED, Impact::Clients, text(version))));
        }
        (Some(_), None) if is_complete => {
            let text = "removed: its custom resources are deleted with it".to_owned();
            added.push(ours(rules::REMOVED, Impact::StoredObjects, text));
        }
        _ => {}
    }
    added.retain(|finding| !args.ignores(rules::rule(finding.check)));
    result.findings = without_consequences(found).into_iter().chain(added).map(Into::into).collect();
    Ok(result)
}

/// Finding that the reference does not have.
fn ours(check: &'static str, impact: Impact, text: String) -> CrdFinding {
    CrdFinding { section: Section::Crd, version: None, property: None, check, text, impact }
}

fn findings_of(old: Option<&Value>, new: Option<&Value>) -> Result<Vec<CrdFinding>, CliError> {
    new.map_or(Ok(Vec::new()), |new| check(old, new)).map_err(CliError::operational)
}

/// Checks replacing `old` with `new`.
///
/// # Errors
/// One of them is not a CustomResourceDefinition that can be compared.
pub(crate) fn compare(name: &str, old: Option<&Value>, new: Option<&Value>) -> Result<CrdResult, CliError> {
    let findings = findings_of(old, new)?;
    let result = CrdResult::new(name, old, new, &findings);
    let vanished = match (old, new) {
        (Some(old), Some(new)) => vanished_versions(old, new).map_err(CliError::operational)?,
        _ => Vec::new(),
    };
    let no_longer_served = vanished.iter().map(|version| UnservedVersion::new(version)).collect();
    let findings = findings.into_iter().map(Into::into).collect();
    Ok(CrdResult { findings, no_longer_served, ..result })
}

impl CrdResult {
    /// Verdict of operator-controller, without the findings.
    fn new(name: &str, old: Option<&Value>, new: Option<&Value>, findings: &[CrdFinding]) -> Self {
        let result = match (old, new) {
            (_, None) => Verdict::OnlyInOld,
            (None, _) => Verdict::OnlyInNew,
            _ if findings.is_empty() => Verdict::Safe,
            _ => Verdict::Unsafe,
        };
        let error = (!findings.is_empty()).then(|| error_text(name, findings));
        Self { name: name.to_owned(), result, error, findings: Vec::new(), no_longer_served: Vec::new() }
    }
}

fn text(check: &CrdCheck) -> String {
    let mut text = String::new();
    if check.crds.iter().any(|crd| !crd.findings.is_empty()) {
        let mut table = Table::new(&["CRD", "VERSION", "PROPERTY", "CHECK", "BREAKS", "CHANGE"]);
        for crd in &check.crds {
            for finding in &crd.findings {
                let (version, property) = (finding.version.as_deref(), finding.property.as_deref());
                table.row([
                    crd.name.as_str(),
                    version.unwrap_or_default(),
                    property.unwrap_or_default(),
                    finding.check,
                    finding.impact.as_str(),
                    &finding.text,
                ]);
            }
        }
        text += &table.text();
        text.push('\n');
    }
    let removed = if check.is_complete { "removed" } else { "" };
    for (verdict, words) in [
        (Verdict::Safe, "safe"),
        (Verdict::Unsafe, "not safe"),
        (Verdict::OnlyInNew, "only in NEW, not checked"),
        (Verdict::OnlyInOld, removed),
    ] {
        for crd in check.crds.iter().filter(|crd| crd.result == verdict && !words.is_empty()) {
            let ignored = verdict == Verdict::Safe && crd.error.is_some();
            let except = if ignored { ", except for ignored findings" } else { "" };
            text += &format!("{}: {words}{except}\n", crd.name);
        }
    }
    // Only counted: an OLD file of a whole cluster contains many.
    let rest = check.crds.iter().filter(|crd| crd.result == Verdict::OnlyInOld).count();
    if rest > 0 && !check.is_complete {
        text += &format!("only in OLD, not checked: {rest}\n");
    }
    text + &advice(check)
}

/// What relaxes the check, if it holds the upgrade.
fn advice(check: &CrdCheck) -> String {
    let unsafe_crds = || check.crds.iter().filter(|crd| crd.result == Verdict::Unsafe);
    let holds = |finding: &&FindingDetails| ![rules::REMOVED, rules::VANISHED].contains(&finding.check);
    let findings = || unsafe_crds().flat_map(|crd| &crd.findings).filter(holds);
    let of = |impact| findings().filter(|finding| finding.impact == impact).count();
    let graded =
        [Impact::StoredObjects, Impact::Clients, Impact::Nothing].map(|impact| (of(impact), impact.as_str()));
    let graded: Vec<_> = graded
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} break {what}"))
        .collect();
    if check.safe {
        return String::new();
    }
    let absolute = findings().filter(|finding| finding.is_absolute).count();
    let rest = if absolute > 0 {
        format!("The API server always rejects {absolute} of these changes.")
    } else {
        format!(
            "With the annotation {EXT_CRD_CHECK} of the ClusterExtension, `Live` lets existing objects decide, and `Warn` \
             only reports."
        )
    };
    format!("operator-controller holds the upgrade: {}. {rest}\n", graded.join(", "))
}

/// A case for each CRD, with lines of NEW.
fn report(check: &CrdCheck, new: &Crds) -> RunReport {
    let case = |crd: &CrdResult| {
        let spot = |finding: &FindingDetails| {
            let (version, property) = (finding.version.as_deref(), finding.property.as_deref());
            let place = new.by_name.get(&crd.name).map(|crd| crd.place(version, property));
            let (file, line) = place.unwrap_or_default();
            let message = format!("{} (breaks {})", finding.line, finding.impact.as_str());
            let rule: &'static Rule = rules::rule(finding.check);
            let spot = Spot { file, line, name: crd.name.clone() };
            olm_finding::Finding {
                level: rules::level(finding.impact),
                ..olm_finding::Finding::new(rule, spot, message)
            }
        };
        let findings = crd.findings.iter().map(spot).collect();
        Case { suite: "crds".to_owned(), name: crd.name.clone(), findings }
    };
    RunReport {
        tool: "olm crd-check",
        rules: rules::rules().collect(),
        fails: (!check.safe).then_some(Level::Note),
        cases: check
            .crds
            .iter()
            .filter(|crd| crd.result != Verdict::OnlyInOld || check.is_complete)
            .map(case)
            .collect(),
    }
}
