//! `olm validate` and `olm catalog validate`: report all errors of a catalog, with file and line.

use std::io::Read as _;

use clap::{Args, ValueEnum};
use olm_cli_core::bundle_source::is_bundle_dir;
use olm_cli_core::classic_kinds;
use olm_cli_core::error::CliError;
use olm_cli_core::manifest::syntax_advice;
use olm_cli_core::output::{Format, counted, printable};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{DirectoryFolder, ImageArgs, Source};
use olm_fbc::{Finding, Folder as _, Limits, Report, Severity};
use olm_oci::ImageLabels;
use serde::Serialize;

/// First lines of the command's help.
pub const ABOUT: &str = "Check a catalog: that every file loads, that packages, channels and bundles are \
consistent, and that each channel is an upgrade graph with one head

All findings are printed to standard error, with file and line. A catalog without findings prints nothing. The exit \
code is 0 without errors, else 3. A repeated key is a warning: its first value, or the object that it is part of, is lost. \
Bundles are checked by `bundle validate`.";

/// Label of every bundle image (docs/design/cli.md#bundle-annotations).
const BUNDLE_LABEL: &str = "operators.operatorframework.io.bundle.package.v1";

/// Bytes of a file that are read for a hint.
const MAX_HINTED: u64 = 1 << 20;

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} validate ./catalog
  {olm} validate ./catalog --strict             # warnings fail the check, too
  {olm} validate registry.example.com/team/catalog:v1 -o json")]
pub struct ValidateArgs {
    /// A directory or an image reference
    #[arg(value_name = "DIR|IMAGE")]
    catalog: String,
    /// Also report warnings about content that is allowed but not recommended; warnings fail the check, too
    #[arg(long)]
    strict: bool,
    /// Output format: table (the default), json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true, value_parser = format)]
    output: Format,
    #[command(flatten)]
    images: ImageArgs,
}

/// Parses `--output` with the error text of `opm validate`, which has no table format
/// (docs/design/catalogd.md#validation).
fn format(text: &str) -> Result<Format, String> {
    Format::from_str(text, false)
        .map_err(|_| format!("invalid --output value {}, expected (json|yaml)", olm_version::quote(text)))
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, or has findings.
pub async fn run(args: ValidateArgs, session: &mut Session) -> Result<(), CliError> {
    let (report, hints) = match Source::parse(&args.catalog)? {
        Source::Directory(root) if is_bundle_dir(&root) => return Err(bundle(&args.catalog)),
        Source::Directory(root) => check(&args, &DirectoryFolder::open(&root)?, session)?,
        Source::Image(reference) => {
            let mut is_bundle = false;
            let folder = |labels: &ImageLabels| {
                is_bundle = labels.contains_key(BUNDLE_LABEL);
                olm_oci::catalog_folder(labels)
            };
            let content = match args.images.pull(&reference, folder, session).await {
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
    let passed = report.is_valid() && (report.findings.is_empty() || !args.strict);
    match args.output {
        Format::Json | Format::Yaml => {
            let result = ValidationResult::new(&report, passed);
            session.output.result(args.output, "CatalogValidation", &result, |_| String::new())?;
        }
        Format::Table => {
            for finding in &report.findings {
                say(&finding_line(finding));
            }
            for hint in &hints {
                say(&format!("hint: {hint}"));
            }
            if !report.findings.is_empty() {
                say(&format!("{}: {}", args.catalog, summary(&report)));
            }
        }
    }
    if passed { Ok(()) } else { Err(CliError::Findings) }
}

/// Error for a bundle in place of a catalog.
fn bundle(name: &str) -> CliError {
    CliError::usage(format!("{name} is a bundle, not a catalog: use `bundle validate {name}`"))
}

/// Report, and hints for objects that belong to no catalog.
fn check(
    args: &ValidateArgs,
    folder: &DirectoryFolder,
    session: &Session,
) -> Result<(Report, Vec<String>), CliError> {
    let _step = session.progress.step(format!("checking {}", args.catalog));
    let report = olm_fbc::validate_folder(folder, &Limits::default(), args.strict);
    session.check()?;
    let mut hints = Vec::new();
    if !report.findings.is_empty() {
        // A load error is already in the report.
        let _: Result<(), CliError> = olm_fbc::load(folder, &Limits::default(), &mut |meta| {
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
fn syntax_hint(folder: &DirectoryFolder, finding: &Finding) -> Option<String> {
    let origin = finding.origin.as_ref().filter(|_| finding.message.contains("YAML"))?;
    let mut text = String::new();
    folder.open(&origin.file).ok()?.take(MAX_HINTED).read_to_string(&mut text).ok()?;
    let (line, advice) = syntax_advice(&text, origin.line)?;
    Some(format!("{}:{line}: {advice}", origin.file.display()))
}

fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Finding as a line of text.
pub(crate) fn finding_line(finding: &Finding) -> String {
    format!("{}: {}", severity(finding), printable(&finding.to_string()))
}

/// `2 errors`, or `None` for zero.
pub fn count(count: usize, what: &str) -> Option<String> {
    (count > 0).then(|| counted(count, what))
}

/// `2 errors, 1 warning`
pub(crate) fn summary(report: &Report) -> String {
    let parts = [count(report.errors().count(), "error"), count(report.warnings().count(), "warning")];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Result as JSON or YAML: the two fields of opm, and every finding.
#[derive(Debug, Serialize)]
struct ValidationResult<'a> {
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorMessage>,
    findings: &'a [Finding],
}

#[derive(Debug, Serialize)]
struct ErrorMessage {
    message: String,
}

impl<'a> ValidationResult<'a> {
    fn new(report: &'a Report, passed: bool) -> Self {
        let message = || report.reference_message.clone().unwrap_or_else(|| summary(report));
        let error = (!passed).then(|| ErrorMessage { message: message() });
        Self { passed, error, findings: &report.findings }
    }
}
