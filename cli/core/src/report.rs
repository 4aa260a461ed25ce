//! Reports of findings, for the command line and for CI: SARIF, JUnit, annotations of GitHub
//! (docs/design/cli.md#rules-and-findings).

use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueEnum};
use olm_finding::{Finding, Level, Rule};
use olm_runtime::component::VERSION;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::names::nearest;
use crate::output::{Format, Table, counted, json as json_text, printable, xml};
use crate::session::Session;

/// Output format of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Human-readable
    Table,
    /// Machine-readable
    Json,
    /// Machine-readable
    Yaml,
    /// Static analysis results (SARIF 2.1.0), for code scanning
    Sarif,
    /// Test report, with a failure for each test case that has findings
    Junit,
    /// Workflow commands of GitHub Actions, which annotate lines of files
    Github,
}

/// Flags of the commands that report findings.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Skip the findings of this rule; may be given several times
    #[arg(long, value_name = "RULE")]
    pub ignore: Vec<String>,
    /// List the rules instead of checking; -o json and -o yaml include remedies
    #[arg(long)]
    pub rules: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: ReportFormat,
}

impl ReportArgs {
    /// Checks that the ignored rules exist.
    ///
    /// # Errors
    /// One does not. The message has similar IDs.
    pub fn check(&self, rules: impl Iterator<Item = &'static Rule> + Clone) -> Result<(), CliError> {
        let Some(unknown) = self.ignore.iter().find(|id| !rules.clone().any(|rule| rule.id == **id)) else {
            return Ok(());
        };
        let group = |id: &str| id.split('-').next().unwrap_or_default().to_uppercase();
        let near = nearest(unknown, rules.clone().map(|rule| rule.id));
        let of_group = rules.clone().map(|rule| rule.id).filter(|id| group(id) == group(unknown));
        let mut similar: Vec<&str> = near.into_iter().chain(of_group).collect();
        similar.sort_unstable();
        similar.dedup();
        let similar = if similar.is_empty() { rules.map(|rule| rule.id).collect() } else { similar };
        let similar = similar.join(", ");
        Err(CliError::usage(format!("--ignore {unknown}: no such rule; similar: {similar}; see --rules")))
    }

    /// Reports whether the findings of this rule are skipped.
    pub fn ignores(&self, rule: &Rule) -> bool {
        self.ignore.iter().any(|id| id == rule.id)
    }

    /// Format of documents, if the report is one.
    pub fn format(&self) -> Option<Format> {
        match self.output {
            ReportFormat::Table => Some(Format::Table),
            ReportFormat::Json => Some(Format::Json),
            ReportFormat::Yaml => Some(Format::Yaml),
            ReportFormat::Sarif | ReportFormat::Junit | ReportFormat::Github => None,
        }
    }

    /// Prints rules, or what contains them.
    ///
    /// # Errors
    /// The format has no rules, or standard output cannot be written.
    pub fn print_rules<T: Serialize>(
        &self,
        kind: &'static str,
        rules: &T,
        text: impl FnOnce(&T) -> String,
        session: &mut Session,
    ) -> Result<(), CliError> {
        let format = self
            .format()
            .ok_or_else(|| CliError::usage("rules are printed as a table, JSON or YAML: use -o json"))?;
        session.output.result(format, kind, rules, text)
    }

    /// Prints a result: as a document, or as a report.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print<T: Serialize>(
        &self,
        kind: &'static str,
        result: &T,
        text: impl FnOnce(&T) -> String,
        report: impl FnOnce(&T) -> RunReport,
        session: &mut Session,
    ) -> Result<(), CliError> {
        let text = match (self.format(), self.output) {
            (Some(format), _) => return session.output.result(format, kind, result, text),
            (None, ReportFormat::Junit) => report(result).junit(),
            (None, ReportFormat::Github) => report(result).github(),
            (None, _) => json_text(&report(result).sarif())?,
        };
        session.output.text(&text)
    }
}

/// Rules as a document or as a table.
#[derive(Debug, Serialize)]
pub struct RuleList {
    rules: Vec<&'static Rule>,
}

impl RuleList {
    /// These rules.
    pub fn new(rules: impl Iterator<Item = &'static Rule>) -> Self {
        Self { rules: rules.collect() }
    }

    /// Table with their IDs, levels and requirements.
    pub fn text(&self) -> String {
        let mut table = Table::new(&["RULE", "LEVEL", "REQUIREMENT"]);
        self.rules.iter().for_each(|rule| table.row([rule.id, rule.level.name(), rule.text]));
        table.text()
    }
}

/// Findings of one run.
#[derive(Debug)]
pub struct RunReport {
    /// Command, such as `olm bundle validate`.
    pub tool: &'static str,
    /// All rules of the command.
    pub rules: Vec<&'static Rule>,
    /// Least severe level that fails the check, if one does.
    pub fails: Option<Level>,
    /// Checked parts.
    pub cases: Vec<Case>,
}

/// Checked part, such as a bundle. A test case of JUnit.
#[derive(Debug)]
pub struct Case {
    /// Name of the whole, such as a package.
    pub suite: String,
    /// Name of the part.
    pub name: String,
    /// Its findings.
    pub findings: Vec<Finding<Spot>>,
}

/// Place of a finding in a report.
#[derive(Debug, Default)]
pub struct Spot {
    /// File of the working directory, if known.
    pub file: Option<String>,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// Object, package or image.
    pub name: String,
}

/// Path relative to the working directory, with slashes: `.` for the directory itself. Absolute if it is elsewhere and was
/// given so.
pub fn relative(path: &Path) -> String {
    let current = std::env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(&current).unwrap_or(path);
    let parts: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    let parts = if parts.as_os_str().is_empty() { Path::new(".") } else { &parts };
    parts.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
}

/// `2 errors, 1 warning`, or `no findings`.
pub fn summary(levels: impl Iterator<Item = Level>, omitted: usize) -> String {
    let levels: Vec<Level> = levels.collect();
    let number = |level: Level| (levels.iter().filter(|one| **one == level).count(), level.name());
    let counts = [Level::Error, Level::Warning, Level::Note].map(number);
    let mut parts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, name)| counted(*count, name)).collect();
    if omitted > 0 {
        parts.push(format!("{omitted} more not shown"));
    }
    if parts.is_empty() { "no findings".to_owned() } else { parts.join(", ") }
}

impl RunReport {
    fn findings(&self) -> impl Iterator<Item = &Finding<Spot>> {
        self.cases.iter().flat_map(|case| &case.findings)
    }

    /// Static analysis results.
    fn sarif(&self) -> Value {
        let rule = |rule: &&Rule| {
            json!({
                "id": rule.id,
                "shortDescription": { "text": rule.text },
                "help": { "text": rule.remedy },
                "defaultConfiguration": { "level": rule.level.name() },
            })
        };
        let result = |finding: &Finding<Spot>| {
            let Spot { file, line, name } = &finding.place;
            let mut location = json!({});
            if let Some(file) = file {
                location["physicalLocation"] = json!({ "artifactLocation": { "uri": uri(file) } });
                if let Some(line) = line {
                    location["physicalLocation"]["region"] = json!({ "startLine": line });
                }
            }
            if !name.is_empty() {
                location["logicalLocations"] = json!([{ "fullyQualifiedName": name }]);
            }
            json!({
                "ruleId": finding.rule.id,
                "level": finding.level.name(),
                "message": { "text": message(finding) },
                "locations": [location],
            })
        };
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": self.tool,
                    "version": VERSION,
                    "rules": self.rules.iter().map(rule).collect::<Vec<_>>(),
                }},
                "results": self.findings().map(result).collect::<Vec<_>>(),
            }],
        })
    }

    /// Test report: a case for each checked part. Findings that do not fail the check are its output.
    fn junit(&self) -> String {
        let mut report = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        // Writing to a String does not fail.
        for suite in self.cases.chunk_by(|a, b| a.suite == b.suite) {
            let is_failure =
                |finding: &&Finding<Spot>| self.fails.is_some_and(|fails| finding.level <= fails);
            let failures =
                suite.iter().filter(|case| case.findings.iter().any(|one| is_failure(&one))).count();
            let name = xml(&suite[0].suite);
            let _ = writeln!(
                report,
                "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\">",
                suite.len()
            );
            for case in suite {
                let _ = writeln!(report, "    <testcase classname=\"{name}\" name=\"{}\">", xml(&case.name));
                let (failed, rest): (Vec<_>, Vec<_>) = case.findings.iter().partition(is_failure);
                let body = |findings: &[&Finding<Spot>]| {
                    let lines = findings
                        .iter()
                        .map(|one| format!("{}{}: {}", position(&one.place), one.rule.id, message(one)));
                    lines.map(|line| xml(&line)).collect::<Vec<_>>()
                };
                if let Some(first) = failed.first() {
                    let (kind, lines) = (first.rule.id, body(&failed));
                    let (shown, all) = (&lines[0], lines.join("&#10;"));
                    let _ = writeln!(
                        report,
                        "      <failure type=\"{kind}\" message=\"{shown}\">{all}</failure>"
                    );
                }
                if !rest.is_empty() {
                    let _ = writeln!(report, "      <system-out>{}</system-out>", body(&rest).join("&#10;"));
                }
                report.push_str("    </testcase>\n");
            }
            report.push_str("  </testsuite>\n");
        }
        report + "</testsuites>\n"
    }

    /// A workflow command for each finding.
    fn github(&self) -> String {
        let mut text = String::new();
        for finding in self.findings() {
            let command = if finding.level == Level::Note { "notice" } else { finding.level.name() };
            let Spot { file, line, .. } = &finding.place;
            let file = file.as_ref().map(|file| format!("file={},", property(file))).unwrap_or_default();
            let line = line.map(|line| format!("line={line},")).unwrap_or_default();
            let (id, message) = (property(finding.rule.id), data(&message(finding)));
            text += &format!("::{command} {file}{line}title={id}::{message}\n");
        }
        text
    }
}

/// Message with the object, unless it begins with its name.
fn message(finding: &Finding<Spot>) -> String {
    let (name, message) = (&finding.place.name, &finding.message);
    let text = if name.is_empty() || message.starts_with(name.as_str()) {
        message.clone()
    } else {
        format!("{name}: {message}")
    };
    printable(&text)
}

/// `file:line: `
fn position(spot: &Spot) -> String {
    match (&spot.file, spot.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: "),
        (Some(file), None) => format!("{file}: "),
        (None, _) => String::new(),
    }
}

/// Path as a reference of a URI.
fn uri(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~@+=,!$&'()*;".contains(&byte);
    path.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests;
