//! `olm crd-check`: checks whether new CustomResourceDefinitions break existing custom resources
//! (docs/design/apply.md#crd-upgrade-safety).
//!
//! The findings come from the same function that makes operator-controller refuse an upgrade.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::names::listed;
use olm_cli_core::output::{FormatArgs, Table};
use olm_cli_core::session::Session;
use olm_crd_safety::{Finding, check, error_text};
use olm_version::quote;
use serde::Serialize;
use serde_json::Value;

/// First lines of the command's help.
pub const ABOUT: &str = "Check whether new CustomResourceDefinitions break existing custom resources

Compares each CustomResourceDefinition of NEW with the one of the same name in OLD, as an upgrade of a \
ClusterExtension does unless spec.install.preflight.crdUpgradeSafety.enforcement is None: scope, stored versions, \
removed fields, each property of each version, and new differences between versions that are served side by side \
without a conversion webhook.

Objects of other kinds are ignored. CustomResourceDefinitions that are in one file only are not checked.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 all changes are safe   1 operation failed   2 wrong usage   3 there are findings

Examples:
  {olm} crd-check old.yaml new.yaml
  kubectl get crd widgets.example.com -o yaml | {olm} crd-check - new.yaml
  kubectl get crd -o json | {olm} crd-check - ./bundle/manifests/widgets.crd.yaml -o yaml
  {olm} crd-check old.yaml new.yaml -o json | jq -r '.crds[].findings[].line'")]
pub struct CrdCheckArgs {
    /// File (YAML or JSON, any number of objects) with the objects on the cluster; - is standard input
    #[arg(value_name = "OLD")]
    old: String,
    /// File with the objects to replace them; - is standard input
    #[arg(value_name = "NEW")]
    new: String,
    #[command(flatten)]
    format: FormatArgs,
}

/// Largest file. Sized for `kubectl get crd -o yaml` on a large cluster.
const MAX_FILE: u64 = 64 << 20;

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct CrdCheck {
    safe: bool,
    /// Sorted by name.
    crds: Vec<CrdResult>,
}

/// Result of replacing one CustomResourceDefinition.
#[derive(Debug, Serialize)]
pub(crate) struct CrdResult {
    pub(crate) name: String,
    pub(crate) result: Verdict,
    /// Error text of the ClusterExtension condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    pub(crate) findings: Vec<FindingDetails>,
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
    /// The whole finding, with the text of the ClusterExtension condition.
    pub(crate) line: String,
    #[serde(skip)]
    pub(crate) loses_data: bool,
    /// `true` if operator-controller accepts the change in no mode of annotation crd-check.
    #[serde(skip)]
    pub(crate) is_absolute: bool,
}

impl From<Finding> for FindingDetails {
    fn from(finding: Finding) -> Self {
        let (line, loses_data, is_absolute) =
            (finding.to_string(), finding.loses_data(), finding.is_absolute());
        let Finding { section, version, property, check, text } = finding;
        Self { section: section.as_str(), version, property, check, text, line, loses_data, is_absolute }
    }
}

/// Runs the command.
///
/// # Errors
/// The files cannot be read or compared, or there are findings.
pub async fn run(args: CrdCheckArgs, session: &mut Session) -> Result<(), CliError> {
    if args.old == "-" && args.new == "-" {
        return Err(CliError::usage("OLD and NEW cannot both be standard input"));
    }
    let old = crds(&args.old, session).await?;
    let new = crds(&args.new, session).await?;
    if !old.keys().any(|name| new.contains_key(name)) {
        let names = |crds: &BTreeMap<String, Value>| listed(&crds.keys().cloned().collect::<Vec<_>>());
        return Err(CliError::operational(format!(
            "no CustomResourceDefinition is in both files: {} has {}, {} has {}",
            args.old,
            names(&old),
            args.new,
            names(&new)
        )));
    }
    let mut results = Vec::new();
    for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        session.check()?;
        results.push(compare(name, old.get(name), new.get(name))?);
    }
    let safe = results.iter().all(|crd| crd.findings.is_empty());
    session.output.result(args.format.output, "CrdCheck", &CrdCheck { safe, crds: results }, text)?;
    if safe { Ok(()) } else { Err(CliError::Findings) }
}

/// CRDs of a file by name, including those in List objects as `kubectl get` prints them.
async fn crds(path: &str, session: &Session) -> Result<BTreeMap<String, Value>, CliError> {
    let text = manifest::text(path, MAX_FILE, session).await?;
    let mut objects = olm_yaml::all_from_slice(text.as_bytes()).map_err(|error| CliError::at(path, error))?;
    for object in &mut objects {
        if let Some(Value::Array(items)) = object.get_mut("items").map(Value::take) {
            *object = Value::Array(items);
        }
    }
    let objects = objects.into_iter().flat_map(|object| match object {
        Value::Array(items) => items,
        object => vec![object],
    });
    let mut crds = BTreeMap::new();
    for object in objects.filter(|object| object["kind"] == "CustomResourceDefinition") {
        let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned) else {
            return Err(CliError::at(path, "a CustomResourceDefinition has no metadata.name"));
        };
        if crds.contains_key(&name) {
            let problem = format!("CustomResourceDefinition {} occurs twice", quote(&name));
            return Err(CliError::at(path, problem));
        }
        crds.insert(name, object);
    }
    Ok(crds)
}

/// Checks replacing `old` with `new`.
///
/// # Errors
/// One of them is not a CustomResourceDefinition that can be compared.
pub(crate) fn compare(name: &str, old: Option<&Value>, new: Option<&Value>) -> Result<CrdResult, CliError> {
    let findings = match new {
        Some(new) => check(old, new).map_err(CliError::operational)?,
        None => Vec::new(),
    };
    let result = match (old, new) {
        (_, None) => Verdict::OnlyInOld,
        (None, _) => Verdict::OnlyInNew,
        _ if findings.is_empty() => Verdict::Safe,
        _ => Verdict::Unsafe,
    };
    Ok(CrdResult {
        name: name.to_owned(),
        result,
        error: (!findings.is_empty()).then(|| error_text(name, &findings)),
        findings: findings.into_iter().map(Into::into).collect(),
    })
}

fn text(check: &CrdCheck) -> String {
    let mut text = String::new();
    if !check.safe {
        let mut table = Table::new(&["CRD", "VERSION", "PROPERTY", "CHECK", "CHANGE"]);
        for crd in &check.crds {
            for finding in &crd.findings {
                let (version, property) = (finding.version.as_deref(), finding.property.as_deref());
                table.row([
                    crd.name.as_str(),
                    version.unwrap_or_default(),
                    property.unwrap_or_default(),
                    finding.check,
                    &finding.text,
                ]);
            }
        }
        text += &table.text();
        text.push('\n');
    }
    for (verdict, words) in [
        (Verdict::Safe, "safe"),
        (Verdict::Unsafe, "not safe"),
        (Verdict::OnlyInNew, "only in NEW, not checked"),
    ] {
        for crd in check.crds.iter().filter(|crd| crd.result == verdict) {
            text += &format!("{}: {words}\n", crd.name);
        }
    }
    // Only counted: an OLD file of a whole cluster contains many.
    let rest = check.crds.iter().filter(|crd| crd.result == Verdict::OnlyInOld).count();
    if rest > 0 {
        text += &format!("only in OLD, not checked: {rest}\n");
    }
    text
}
