//! Findings of a check with their locations, and the report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use olm_bundle::{BundleContent, InstallMode};
use olm_finding::{Level, Rule};
use serde::Serialize;

/// Findings reported per rule. Further ones are only counted.
const FINDINGS_PER_RULE: usize = 100;

/// Maximum length of a message in characters.
const MESSAGE_CHARS: usize = 2_000;

/// Violation of a rule. Printed on one line: file and line, object and field, message, rule.
pub type BundleFinding = olm_finding::Finding<BundlePlace>;

/// Place of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BundlePlace {
    /// Path relative to the root of the bundle. Empty for the whole bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line in the file, from 1. For a missing field, the line of its closest existing ancestor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Kind and name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Path of the field, such as `spec.versions[0].name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl fmt::Display for BundlePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => {}
            (file, Some(line)) => write!(f, "{file}:{line}: ")?,
            (file, None) => write!(f, "{file}: ")?,
        }
        [&self.object, &self.field].into_iter().flatten().try_for_each(|part| write!(f, "{part}: "))
    }
}

/// Identity of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Name of the package.
    pub package: String,
    /// Name of the bundle.
    pub name: String,
    /// Version of the ClusterServiceVersion, if set.
    pub version: Option<String>,
    /// Names of the supported install modes.
    pub install_modes: Vec<&'static str>,
}

impl Identity {
    pub(crate) fn of(bundle: &BundleContent) -> Self {
        Self {
            package: bundle.package_name().to_string(),
            name: bundle.name().to_string(),
            version: bundle.version().map(str::to_string),
            install_modes: bundle.install_modes().into_iter().map(InstallMode::name).collect(),
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleReport {
    /// Identity of the bundle, if it can be loaded.
    pub identity: Option<Identity>,
    /// Findings by file, line and rule.
    pub findings: Vec<BundleFinding>,
    /// Number of findings omitted because a rule reports at most a hundred, by rule.
    omitted: Vec<(&'static Rule, usize)>,
}

impl BundleReport {
    pub(crate) fn new(
        files: &BTreeMap<String, Vec<u8>>,
        identity: Option<Identity>,
        findings: Findings,
    ) -> Self {
        let (findings, omitted) = findings.finish(files);
        Self { identity, findings, omitted }
    }

    /// Number of omitted findings of the rules that pass `filter`.
    pub fn omitted_of(&self, filter: impl Fn(&'static Rule) -> bool) -> usize {
        self.omitted.iter().filter(|(rule, _)| filter(rule)).map(|(_, count)| count).sum()
    }

    /// Findings of this level.
    pub fn of(&self, level: Level) -> impl Iterator<Item = &BundleFinding> {
        self.findings.iter().filter(move |finding| finding.level == level)
    }
}

/// Findings by rule.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_rule: BTreeMap<&'static str, FindingsOfRule>,
    files: BTreeSet<String>,
}

#[derive(Debug)]
struct FindingsOfRule {
    rule: &'static Rule,
    reported: Vec<(Location, String)>,
    omitted: usize,
}

impl Findings {
    /// Adds a finding of `rule`. Line breaks in the message become spaces.
    pub(crate) fn add(&mut self, rule: &'static Rule, location: Location, message: impl Into<String>) {
        self.add_at(rule, message, || location);
    }

    /// Adds a finding of `rule` whose location is computed only if needed.
    pub(crate) fn add_at(
        &mut self,
        rule: &'static Rule,
        message: impl Into<String>,
        location: impl FnOnce() -> Location,
    ) {
        let new = || FindingsOfRule { rule, reported: Vec::new(), omitted: 0 };
        let of_rule = self.by_rule.entry(rule.id).or_insert_with(new);
        if of_rule.reported.len() >= FINDINGS_PER_RULE {
            of_rule.omitted += 1;
            return;
        }
        let finding = (location(), single_line(&message.into()));
        if !of_rule.reported.contains(&finding) {
            self.files.insert(finding.0.file.clone());
            of_rule.reported.push(finding);
        }
    }

    /// Reports whether this file has findings.
    pub(crate) fn has_file(&self, file: &str) -> bool {
        self.files.contains(file)
    }

    /// Reports whether the rule has findings.
    pub(crate) fn has(&self, rule: &Rule) -> bool {
        self.by_rule.contains_key(rule.id)
    }

    /// Returns all findings by file, line and rule, and the number of omitted ones by rule.
    fn finish(self, files: &BTreeMap<String, Vec<u8>>) -> (Vec<BundleFinding>, Vec<(&'static Rule, usize)>) {
        let omitted = self.by_rule.values().filter(|of_rule| of_rule.omitted > 0);
        let omitted = omitted.map(|of_rule| (of_rule.rule, of_rule.omitted)).collect();
        let all = self.by_rule.into_values().flat_map(|FindingsOfRule { rule, reported, .. }| {
            reported.into_iter().map(move |(location, message)| (location, rule, message))
        });
        let mut all: Vec<(Location, &'static Rule, String)> = all.collect();
        // Lines of one document are computed together.
        all.sort_by(|a, b| (&a.0.file, a.0.start).cmp(&(&b.0.file, b.0.start)));
        let mut findings = Vec::new();
        for of_file in all.chunk_by(|a, b| a.0.file == b.0.file) {
            let text = files.get(&of_file[0].0.file).map(Vec::as_slice).unwrap_or_default();
            let text: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
            let mut groups = of_file.chunk_by(|a, b| a.0.start == b.0.start).peekable();
            while let Some(group) = groups.next() {
                let next = groups.peek().map(|next| next[0].0.start);
                let lines = lines(&text, group, next);
                findings.extend(group.iter().zip(lines).map(|((location, rule, message), line)| {
                    let (file, object) = (location.file.clone(), location.object.clone());
                    BundleFinding::new(
                        rule,
                        BundlePlace { file, line, object, field: location.field() },
                        message,
                    )
                }));
            }
        }
        findings.sort_by(|a, b| order(a).cmp(&order(b)));
        (findings, omitted)
    }
}

/// Line of each finding of a group with the same start, in a file with these lines. `next` is the start of the next
/// group. The text from there on is not read, so that each part of a file is read once.
fn lines(
    text: &[&[u8]],
    group: &[(Location, &'static Rule, String)],
    next: Option<Start>,
) -> Vec<Option<usize>> {
    match group[0].0.start {
        Start::Unknown => vec![None; group.len()],
        // The position of something missing may be past the end.
        Start::Line(line) => vec![Some(line.min(text.len().max(1))); group.len()],
        Start::Document(first) => {
            let before = first.saturating_sub(1).min(text.len());
            let end = match next {
                Some(Start::Document(next)) => next.saturating_sub(1).clamp(before, text.len()),
                _ => text.len(),
            };
            let document = text[before..end].concat();
            let paths: Vec<&[String]> = group.iter().map(|(location, ..)| location.path.as_slice()).collect();
            let lines = olm_yaml::field_lines(&document, 1, &paths);
            lines.into_iter().map(|line| Some(first.saturating_sub(1) + line)).collect()
        }
    }
}

fn order(finding: &BundleFinding) -> (&str, Option<usize>, &str, Option<&str>, &str) {
    let BundleFinding { rule, place: BundlePlace { file, line, field, .. }, message, .. } = finding;
    (file, *line, rule.id, field.as_deref(), message)
}

/// Message in one line, truncated: text quoted from a bundle may be as long as its file.
fn single_line(message: &str) -> String {
    let line = message.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Location of a finding, as exact as known when it is made. The line number is computed at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// Path relative to the root of the bundle. Empty for the whole bundle.
    pub(crate) file: String,
    pub(crate) start: Start,
    /// Keys and list indexes of the field from the root of its document.
    pub(crate) path: Vec<String>,
    /// Number of leading elements of `path` that lead to the object, for an item of a list.
    pub(crate) skipped: usize,
    /// Kind and name of the object.
    pub(crate) object: Option<String>,
}

/// Source of the line number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    /// None: the line is unknown.
    Unknown,
    /// Line number, from 1.
    Line(usize),
    /// Search for the field in the document that begins at this line.
    Document(usize),
}

impl Location {
    /// The whole bundle.
    pub(crate) fn bundle() -> Self {
        Self::file("")
    }

    /// A whole file.
    pub(crate) fn file(file: &str) -> Self {
        Self { file: file.to_string(), start: Start::Unknown, path: Vec::new(), skipped: 0, object: None }
    }

    /// A line of a file, if known.
    pub(crate) fn line(file: &str, line: Option<usize>) -> Self {
        Self { start: line.map_or(Start::Unknown, Start::Line), ..Self::file(file) }
    }

    /// The first document of a file.
    pub(crate) fn document(file: &str) -> Self {
        Self { start: Start::Document(1), ..Self::file(file) }
    }

    /// Appends the dotted path of a field.
    pub(crate) fn at(mut self, dotted: &str) -> Self {
        self.path.extend(dotted.split('.').map(str::to_string));
        self
    }

    /// Appends one key, which may contain any character.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.path.push(key.to_string());
        self
    }

    /// Field path for messages: `spec.versions[0].name`. `None` for the object itself.
    pub(crate) fn field(&self) -> Option<String> {
        let names = self.path.get(self.skipped..).unwrap_or_default();
        let mut field = String::new();
        for name in names {
            if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
                field += &format!("[{name}]");
            } else if name.contains(['.', '/']) {
                field += &format!("[{}]", olm_version::quote(name));
            } else {
                if !field.is_empty() {
                    field.push('.');
                }
                field += name;
            }
        }
        (!field.is_empty()).then_some(field)
    }
}
