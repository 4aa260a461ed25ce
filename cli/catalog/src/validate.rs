//! `olm validate` and `olm catalog validate`: report all errors of a catalog, with file and line.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use olm_cli_core::bundle_source::is_bundle_dir;
use olm_cli_core::classic_kinds;
use olm_cli_core::error::CliError;
use olm_cli_core::manifest::syntax_advice;
use olm_cli_core::output::printable;
use olm_cli_core::report::{Case, ReportArgs, RuleList, Spot, relative, summary};
use olm_cli_core::session::Session;
use olm_cli_core::source::{DirectoryFolder, ImageArgs, Source};
use olm_fbc::{CatalogFinding, Folder as _, LoadLimits, RULES, ValidationReport};
use olm_finding::Level;
use olm_oci::ImageLabels;
use serde::Serialize;

/// First lines of the command's help.
pub const ABOUT: &str = "Check a catalog: that every file loads, that packages, channels and bundles are \
consistent, and that each channel is an upgrade graph with one head

All findings are printed with file and line. A catalog without findings prints nothing. The exit code is 0 without \
errors, else 3. A repeated key is a warning: its first value, or the object that it is part of, is lost. Bundles are \
checked by `bundle validate`.";

/// Label of every bundle image, and annotation in its files, with the package (docs/design/cli.md#bundle-annotations).
pub(crate) const BUNDLE_LABEL: &str = "operators.operatorframework.io.bundle.package.v1";

/// Bytes of a file that are read for a hint.
const MAX_HINTED: u64 = 1 << 20;

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} validate ./catalog
  {olm} validate ./catalog --strict             # warnings fail the check, too
  {olm} validate ./catalog -o github            # annotates lines of a pull request
  {olm} validate registry.example.com/team/catalog:v1 -o json
  {olm} validate --rules")]
pub struct CatalogValidateArgs {
    /// A directory or an image reference
    #[arg(
        value_name = "DIR|IMAGE",
        required_unless_present = "rules",
        default_value = "",
        hide_default_value = true
    )]
    catalog: String,
    /// Also report warnings about content that is allowed but not recommended; warnings fail the check, too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    images: ImageArgs,
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, or has findings.
pub async fn run(args: CatalogValidateArgs, session: &mut Session) -> Result<(), CliError> {
    let rules = RULES.iter().map(|declared| &declared.rule);
    if args.report.rules {
        return args.report.print_rules("CatalogRules", &RuleList::new(rules), RuleList::text, session);
    }
    args.report.check(rules)?;
    keeps_errors(&args.report)?;
    let mut folder = None;
    let (mut report, hints) = match Source::parse(&args.catalog)? {
        Source::Directory(root) if is_bundle_dir(&root) => return Err(bundle(&args.catalog)),
        Source::Directory(root) => {
            let checked = check(&args, &DirectoryFolder::open(&root)?, session)?;
            folder = Some(root);
            checked
        }
        Source::Image(reference) => {
            let mut is_bundle = false;
            let content_folder = |labels: &ImageLabels| {
                is_bundle = labels.contains_key(BUNDLE_LABEL);
                olm_oci::catalog_folder(labels)
            };
            let content = match args.images.pull(&reference, content_folder, session).await {
                Err(_) if is_bundle => return Err(bundle(&args.catalog)),
                content => content?,
            };
            check(&args, &DirectoryFolder::open(content.path())?, session)?
        }
        Source::Cluster(_) => {
            return Err(CliError::usage(
                "validate checks a directory or an image, not the catalogs of a cluster",
            ));
        }
    };
    report.findings.retain(|finding| !args.report.ignores(finding.rule));
    let passed = report.errors().next().is_none() && (report.findings.is_empty() || !args.strict);
    let result = ValidationResult::new(&args, report, passed, hints, folder);
    args.report.print(
        "CatalogValidation",
        &result,
        ValidationResult::text,
        ValidationResult::report,
        session,
    )?;
    if passed { Ok(()) } else { Err(CliError::Findings) }
}

/// Checks that errors of the catalog are not ignored.
///
/// # Errors
/// They are.
fn keeps_errors(report: &ReportArgs) -> Result<(), CliError> {
    let errors = RULES.iter().find(|rule| rule.level == Level::Error && report.ignores(rule));
    errors.map_or(Ok(()), |rule| {
        let id = rule.id;
        Err(CliError::usage(format!("--ignore {id}: catalogd does not serve a catalog with these errors")))
    })
}

/// Error for a bundle in place of a catalog.
fn bundle(name: &str) -> CliError {
    CliError::usage(format!("{name} is a bundle, not a catalog: use `bundle validate {name}`"))
}

/// Report, and hints for objects that belong to no catalog.
fn check(
    args: &CatalogValidateArgs,
    folder: &DirectoryFolder,
    session: &Session,
) -> Result<(ValidationReport, Vec<String>), CliError> {
    let _step = session.progress.step(format!("checking {}", args.catalog));
    let report = olm_fbc::validate_folder(folder, &LoadLimits::default(), args.strict);
    session.check()?;
    let mut hints = Vec::new();
    if !report.findings.is_empty() {
        // A load error is already in the report.
        let _: Result<(), CliError> = olm_fbc::load(folder, &LoadLimits::default(), &mut |meta| {
            if meta.schema.is_empty() {
                hints.extend(classic_kinds::hint(&meta.blob));
            }
            Ok(())
        });
        hints.dedup();
    }
    hints.extend(report.errors().filter_map(|finding| syntax_hint(folder, finding)));
    Ok((report, hints))
}

/// Hint for a file whose YAML cannot be parsed, such as a value to quote, with its place.
fn syntax_hint(folder: &DirectoryFolder, finding: &CatalogFinding) -> Option<String> {
    let origin = finding.origin.as_ref().filter(|_| finding.message.contains("YAML"))?;
    let mut text = String::new();
    folder.open(&origin.file).ok()?.take(MAX_HINTED).read_to_string(&mut text).ok()?;
    let (line, advice) = syntax_advice(&text, origin.line)?;
    Some(format!("{}:{line}: {advice}", origin.file.display()))
}

/// Finding as a line of text.
pub(crate) fn finding_line(finding: &CatalogFinding) -> String {
    format!("{}: {}", finding.severity.name(), printable(&finding.to_string()))
}

/// Result: the two fields of opm, and every finding.
#[derive(Debug, Serialize)]
struct ValidationResult {
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorMessage>,
    findings: Vec<CatalogFinding>,
    /// Catalog as given.
    #[serde(skip)]
    catalog: String,
    /// Its folder, if it is one.
    #[serde(skip)]
    folder: Option<PathBuf>,
    #[serde(skip)]
    hints: Vec<String>,
    #[serde(skip)]
    fails: Level,
}

#[derive(Debug, Serialize)]
struct ErrorMessage {
    message: String,
}

impl ValidationResult {
    fn new(
        args: &CatalogValidateArgs,
        report: ValidationReport,
        passed: bool,
        hints: Vec<String>,
        folder: Option<PathBuf>,
    ) -> Self {
        let message = report.reference_message.unwrap_or_else(|| levels(&report.findings));
        let error = (!passed).then_some(ErrorMessage { message });
        let fails = if args.strict { Level::Warning } else { Level::Error };
        let catalog = args.catalog.clone();
        Self { passed, error, findings: report.findings, catalog, folder, hints, fails }
    }

    /// Findings, hints, and the number of findings. Nothing without findings.
    fn text(&self) -> String {
        if self.findings.is_empty() {
            return String::new();
        }
        let line = |finding: &CatalogFinding| {
            let mut finding = finding.clone();
            if let (Some(folder), Some(origin)) = (&self.folder, &mut finding.origin) {
                origin.file = Path::new(&relative(&folder.join(&origin.file))).into();
            }
            format!("{} [{}]\n", finding_line(&finding), finding.rule.id)
        };
        let lines = self.findings.iter().map(line);
        let hints = self.hints.iter().map(|hint| format!("hint: {hint}\n"));
        lines.chain(hints).collect::<String>() + &format!("{}: {}\n", self.catalog, levels(&self.findings))
    }

    fn report(&self) -> olm_cli_core::report::RunReport {
        let spot = |finding: &CatalogFinding| {
            let origin = finding.origin.as_ref().filter(|origin| !origin.file.as_os_str().is_empty());
            let path =
                origin.zip(self.folder.as_ref()).map(|(origin, folder)| relative(&folder.join(&origin.file)));
            let line = path.as_ref().and(origin).map(|origin| origin.line.max(1));
            let kept = if path.is_some() { None } else { finding.origin.clone() };
            let message = CatalogFinding { origin: kept, ..finding.clone() }.to_string();
            olm_finding::Finding::new(finding.rule, Spot { file: path, line, name: String::new() }, message)
        };
        let findings = self.findings.iter().map(spot).collect();
        olm_cli_core::report::RunReport {
            tool: "olm validate",
            rules: RULES.iter().map(|declared| &declared.rule).collect(),
            fails: Some(self.fails),
            cases: vec![Case { suite: self.catalog.clone(), name: "structure".to_owned(), findings }],
        }
    }
}

/// `2 errors, 1 warning`
pub(crate) fn levels(findings: &[CatalogFinding]) -> String {
    summary(findings.iter().map(|finding| finding.severity), 0)
}
