//! `olm bundle validate`: reports all errors of bundles, with file, line and field.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use olm_bundle::{BundleKind, KINDS};
use olm_bundle_check::{BundleFinding, BundlePlace, Identity, KubernetesMinor, Level, check, rules};
use olm_cli_core::bundle_source::{self, BundleFiles};
use olm_cli_core::error::CliError;
use olm_cli_core::manifest::syntax_advice;
use olm_cli_core::output::{List, Table, counted, printable};
use olm_cli_core::progress::say;
use olm_cli_core::report::{Case, ReportArgs, RuleList, RunReport, Spot, relative, summary};
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use serde::Serialize;

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Check bundles before they are published

An error means that the bundle cannot be installed, or that opm or operator-sdk rejects it. A warning means that it \
works, but not as intended, or not everywhere. A note means that nothing breaks. The bundle is rendered for every \
install mode that it supports, by the function that operator-controller calls, so a bundle that passes can be installed.

All findings are printed with file, line and field. If a manifest cannot be read, the rules that need the whole bundle \
are not checked yet. Each finding names its rule in brackets, and --rules explains them. The exit code is 0 without \
errors, else 3.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 no errors   1 operation failed   2 wrong usage   3 errors, or warnings with --strict

Examples:
  {olm} bundle validate ./bundle
  {olm} bundle validate ./bundle --strict            # warnings fail the check, too
  {olm} bundle validate operators/*/1.*              # several bundles, with a summary
  {olm} bundle validate quay.io/example/operator-bundle:v1.2.0
  {olm} bundle validate ./bundle --k8s-version 1.31
  {olm} bundle validate ./bundle --ignore IMG-1 -o github        # annotates lines of a pull request
  {olm} bundle validate ./bundle -o sarif > bundle.sarif
  {olm} bundle validate ./bundle -o json | jq -r '.findings[] | .rule + \" \" + .message'
  {olm} bundle validate --rules")]
pub struct ValidateArgs {
    /// Directories with the directories manifests and metadata, or image references
    #[arg(value_name = "DIR|IMAGE", required_unless_present = "rules")]
    bundles: Vec<String>,
    /// Warnings fail the check, too; notes never do
    #[arg(long)]
    strict: bool,
    /// Kubernetes version that the bundle targets; without it, APIs that no supported version serves are errors
    #[arg(long, value_name = "VERSION")]
    k8s_version: Option<KubernetesMinor>,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    images: ImageArgs,
}

/// Runs the command.
///
/// # Errors
/// A bundle cannot be read, or has findings that fail the check.
pub(crate) async fn run(args: ValidateArgs, session: &mut Session) -> Result<(), CliError> {
    let ValidateArgs { bundles, report, .. } = &args;
    if report.rules {
        return report.print_rules("BundleRules", &BundleRules::all(), BundleRules::text, session);
    }
    report.check(rules())?;
    let (mut items, mut failures) = (Vec::new(), Vec::new());
    for bundle in bundles {
        let mut source = match bundle_source::read(bundle, &args.images, session).await {
            Ok(source) => source,
            // The findings of the others are printed nevertheless.
            Err(error) if bundles.len() > 1 => {
                session.check()?;
                failures.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        if source.digest.is_none() {
            source.files.extend(bundle_source::loose_files(Path::new(bundle)));
        }
        let _step = session.progress.step(format!("checking {bundle}"));
        let hints = syntax_hints(&source.files);
        items.push(Validation::new(bundle, source, &args));
        hints.iter().for_each(|hint| say(&format!("hint: {hint}")));
        session.check()?;
    }
    let passed = items.iter().all(|item| item.passed);
    let of_run = |items: &[Validation]| report_of(items, args.strict);
    if let ([one], 1) = (items.as_slice(), bundles.len()) {
        let report_of = |one: &Validation| of_run(std::slice::from_ref(one));
        report.print("BundleValidation", one, Validation::text, report_of, session)?;
    } else {
        let list = List { items };
        report.print("BundleValidationList", &list, list_text, |list| of_run(&list.items), session)?;
    }
    let last = failures.pop();
    failures.iter().for_each(|failure| say(&format!("error: {failure}")));
    match last {
        Some(failure) => Err(failure),
        None if passed => Ok(()),
        None => Err(CliError::Findings),
    }
}

/// Hints for files with invalid YAML, such as `a.yaml:3: quote it: …`.
fn syntax_hints(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let hint = |(path, content): (&String, &Vec<u8>)| {
        let error = olm_yaml::from_slice(content).err()?;
        let (line, advice) = syntax_advice(std::str::from_utf8(content).ok()?, error.line()?)?;
        Some(format!("{path}:{line}: {advice}"))
    };
    files
        .iter()
        .filter(|(path, _)| path.ends_with(".yaml") || path.ends_with(".yml"))
        .filter_map(hint)
        .collect()
}

/// Checks the bundle and prints its findings to standard error.
///
/// # Errors
/// It has errors.
pub(super) fn require_valid(source: &BundleFiles, session: &Session) -> Result<(), CliError> {
    let report = check(&source.files, None);
    session.check()?;
    let findings: Vec<_> = report.findings.iter().filter(|one| one.level < Level::Note).collect();
    for finding in &findings {
        say(&format!("{}: {}", finding.level.name(), printable(&finding.to_string())));
    }
    if !findings.is_empty() {
        say(&format!(
            "{}: {}",
            source.origin,
            summary(findings.iter().map(|one| one.level), report.omitted_of(|_| true))
        ));
    }
    if findings.iter().any(|one| one.level == Level::Error) { Err(CliError::Findings) } else { Ok(()) }
}

/// Result for one bundle.
#[derive(Debug, Serialize)]
struct Validation {
    /// Bundle as given.
    source: String,
    /// `true` if the exit code is 0.
    passed: bool,
    /// Digest of the image. Absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// Name and version of the bundle, if it loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<Identity>,
    errors: usize,
    warnings: usize,
    notes: usize,
    /// Number of findings that are not listed because their rule has too many.
    omitted: usize,
    /// Files are relative to the root of the bundle.
    findings: Vec<BundleFinding>,
}

impl Validation {
    fn new(source: &str, read: BundleFiles, args: &ValidateArgs) -> Self {
        let report = check(&read.files, args.k8s_version);
        let omitted = report.omitted_of(|rule| !args.report.ignores(rule));
        let is_kept = |finding: &BundleFinding| !args.report.ignores(finding.rule);
        let findings: Vec<_> = report.findings.into_iter().filter(is_kept).collect();
        let count = |level| findings.iter().filter(|one| one.level == level).count();
        let (errors, warnings) = (count(Level::Error), count(Level::Warning));
        Self {
            source: source.to_owned(),
            passed: errors == 0 && (warnings == 0 || !args.strict),
            digest: read.digest,
            bundle: report.identity,
            errors,
            warnings,
            notes: count(Level::Note),
            omitted,
            findings,
        }
    }

    /// File or folder below the working directory. `None` for an image.
    fn file(&self, place: &BundlePlace) -> Option<String> {
        self.digest.is_none().then(|| relative(&Path::new(&self.source).join(&place.file)))
    }

    fn summary(&self) -> String {
        let levels = self.findings.iter().map(|one| one.level);
        format!("{}: {}\n", self.source, summary(levels, self.omitted))
    }

    /// Findings and their number. Nothing without findings.
    fn text(&self) -> String {
        let line = |finding: &BundleFinding| {
            let mut finding = finding.clone();
            if !finding.place.file.is_empty() {
                finding.place.file = self.file(&finding.place).unwrap_or(finding.place.file);
            }
            format!("{}: {finding}\n", finding.level.name())
        };
        let lines: String = self.findings.iter().map(line).collect();
        if lines.is_empty() { lines } else { lines + &self.summary() }
    }
}

/// Findings of all bundles, the number of each, and the number of bundles.
fn list_text(list: &List<Validation>) -> String {
    let text = |one: &Validation| if one.findings.is_empty() { one.summary() } else { one.text() };
    let texts: String = list.items.iter().map(text).collect();
    let failed = list.items.iter().filter(|one| !one.passed).count();
    texts + &format!("{}: {failed} failed\n", counted(list.items.len(), "bundle"))
}

fn report_of(items: &[Validation], strict: bool) -> RunReport {
    let case = |one: &Validation| {
        let spot = |finding: &BundleFinding| {
            let BundlePlace { file, line, object, field } = &finding.place;
            let path = one.file(&finding.place);
            let inner = path.is_none().then_some(file).filter(|file| !file.is_empty());
            let names = inner.into_iter().chain(object).chain(field).map(String::as_str);
            let spot = Spot { name: names.collect::<Vec<_>>().join(": "), file: path, line: *line };
            olm_finding::Finding::new(finding.rule, spot, &finding.message)
        };
        let findings = one.findings.iter().map(spot).collect();
        Case { suite: "bundles".to_owned(), name: one.source.clone(), findings }
    };
    RunReport {
        tool: "olm bundle validate",
        rules: rules().collect(),
        fails: Some(if strict { Level::Warning } else { Level::Error }),
        cases: items.iter().map(case).collect(),
    }
}

#[derive(Debug, Serialize)]
struct BundleRules {
    #[serde(flatten)]
    rules: RuleList,
    /// Kinds of objects that a bundle may ship.
    kinds: Vec<&'static BundleKind>,
}

impl BundleRules {
    fn all() -> Self {
        Self { rules: RuleList::new(rules()), kinds: KINDS.iter().filter(|kind| kind.shipped).collect() }
    }

    fn text(&self) -> String {
        let mut kinds = Table::new(&["KIND", "GROUP", "SCOPE", "PHASE"]);
        for kind in &self.kinds {
            let group = if kind.group.is_empty() { "core" } else { kind.group };
            kinds.row([kind.kind, group, kind.scope.name(), kind.phase]);
        }
        format!(
            "{}\nKinds that a bundle may contain, besides its ClusterServiceVersion and CustomResourceDefinitions \
             (their API groups and versions are not checked):\n{}",
            self.rules.text(),
            kinds.text()
        )
    }
}
