//! `olm bundle validate`: reports all errors of a bundle, with file, line and field.

use std::path::Path;

use clap::Args;
use olm_bundle::{BundleKind, KINDS};
use olm_bundle_check::{Finding, Identity, KubernetesMinor, Level, Report, Rule, check, rules};
use olm_cli_catalog::validate::count;
use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::error::CliError;
use olm_cli_core::output::{Format, FormatArgs, Table, printable};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use serde::Serialize;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Check a bundle before it is published

An error means that the bundle cannot be installed, or that opm or operator-sdk reject it. A warning means that it \
works, but maybe not as intended. The bundle is rendered for every install mode that it supports, by the function \
that operator-controller calls, so a bundle that passes can be installed.

All findings are printed to standard error, with file, line and field. If a manifest cannot be read, the rules \
that need the whole bundle are not checked yet. Each finding names its rule in brackets, and --rules explains \
them. The exit code is 0 without errors, else 3.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 no errors   1 operation failed   2 wrong usage   3 errors, or any finding with --strict

Examples:
  {olm} bundle validate ./bundle
  {olm} bundle validate ./bundle --strict            # warnings fail the check, too
  {olm} bundle validate quay.io/example/operator-bundle:v1.2.0
  {olm} bundle validate ./bundle --k8s-version 1.31
  {olm} bundle validate ./bundle -o json | jq -r '.findings[] | .rule + \" \" + .message'
  {olm} bundle validate --rules")]
pub struct ValidateArgs {
    /// A directory with the directories manifests and metadata, or an image reference
    #[arg(value_name = "DIR|IMAGE", required_unless_present = "rules")]
    bundle: Option<String>,
    /// Warnings fail the check, too
    #[arg(long)]
    strict: bool,
    /// Kubernetes version that the bundle targets; without it, APIs that no supported version serves are errors
    #[arg(long, value_name = "VERSION")]
    k8s_version: Option<KubernetesMinor>,
    /// List the rules and the kinds of objects instead of checking a bundle; -o json includes reasons
    #[arg(long, conflicts_with_all = ["bundle", "strict", "k8s_version"])]
    rules: bool,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    images: ImageArgs,
}

/// Runs the command.
///
/// # Errors
/// The bundle cannot be read, or has findings that fail the check.
pub(crate) async fn run(args: ValidateArgs, session: &mut Session) -> Result<(), CliError> {
    let Some(bundle) = &args.bundle else {
        return session.output.result(args.format.output, "BundleRules", &Rules::all(), rules_text);
    };
    let mut source = bundle_source::read(bundle, &args.images, session).await?;
    if source.digest.is_none() {
        source.files.extend(bundle_source::loose_files(Path::new(bundle)));
    }
    let report = {
        let _step = session.progress.step(format!("checking {bundle}"));
        check(&source.files, args.k8s_version)
    };
    session.check()?;
    let validation = Validation::new(&report, args.strict, source.digest.as_deref());
    match args.format.output {
        Format::Json | Format::Yaml => {
            session.output.result(args.format.output, "BundleValidation", &validation, |_| String::new())?;
        }
        Format::Table => print_findings(&source.origin, &report, &validation),
    }
    if validation.passed { Ok(()) } else { Err(CliError::Findings) }
}

/// Checks the bundle and prints its findings.
///
/// # Errors
/// It has errors.
pub(super) fn require_valid(source: &BundleFiles, session: &Session) -> Result<(), CliError> {
    let report = check(&source.files, None);
    session.check()?;
    let validation = Validation::new(&report, false, None);
    print_findings(&source.origin, &report, &validation);
    if validation.passed { Ok(()) } else { Err(CliError::Findings) }
}

fn print_findings(origin: &str, report: &Report, validation: &Validation<'_>) {
    for finding in &report.findings {
        say(&format!("{}: {}", finding.level.name(), printable(&finding.to_string())));
    }
    if !report.findings.is_empty() {
        say(&format!("{origin}: {}", summary(validation)));
    }
}

/// `2 errors, 1 warning`
fn summary(validation: &Validation<'_>) -> String {
    let omitted = (validation.omitted > 0).then(|| format!("{} more not shown", validation.omitted));
    let parts = [count(validation.errors, "error"), count(validation.warnings, "warning"), omitted];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct Validation<'a> {
    /// `true` if the exit code is 0.
    passed: bool,
    /// Digest of the image. Absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'a str>,
    /// Name and version of the bundle, if it loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<&'a Identity>,
    errors: usize,
    warnings: usize,
    /// Number of findings that are not listed because their rule has too many.
    omitted: usize,
    findings: &'a [Finding],
}

impl<'a> Validation<'a> {
    fn new(report: &'a Report, strict: bool, digest: Option<&'a str>) -> Self {
        let (errors, warnings) = (report.of(Level::Error).count(), report.of(Level::Warning).count());
        Self {
            passed: errors == 0 && (warnings == 0 || !strict),
            digest,
            bundle: report.identity.as_ref(),
            errors,
            warnings,
            omitted: report.omitted,
            findings: &report.findings,
        }
    }
}

#[derive(Debug, Serialize)]
struct Rules {
    rules: Vec<&'static Rule>,
    /// Kinds of objects that a bundle may ship.
    kinds: Vec<&'static BundleKind>,
}

impl Rules {
    fn all() -> Self {
        Self { rules: rules().collect(), kinds: KINDS.iter().filter(|kind| kind.shipped).collect() }
    }
}

fn rules_text(rules: &Rules) -> String {
    let mut table = Table::new(&["RULE", "LEVEL", "REQUIREMENT"]);
    for rule in &rules.rules {
        table.row([rule.id, rule.level.name(), rule.text]);
    }
    let mut kinds = Table::new(&["KIND", "GROUP", "SCOPE", "PHASE"]);
    for kind in &rules.kinds {
        let group = if kind.group.is_empty() { "core" } else { kind.group };
        kinds.row([kind.kind, group, kind.scope.name(), kind.phase]);
    }
    format!(
        "{}\nKinds that a bundle may contain, besides its ClusterServiceVersion and CustomResourceDefinitions \
         (their API groups and versions are not checked):\n{}",
        table.text(),
        kinds.text()
    )
}
