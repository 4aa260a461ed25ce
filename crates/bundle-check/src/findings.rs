//! Collector of findings.

use std::collections::{BTreeMap, BTreeSet};

use crate::lines::Lines;
use crate::place::{Place, Start};
use crate::report::Finding;
use crate::rule::Rule;

/// Findings reported per rule. Further ones are only counted.
const TOLD_OF_A_RULE: usize = 100;

/// Maximum length of a message in characters.
const MESSAGE_CHARS: usize = 2_000;

/// Findings by rule.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_rule: BTreeMap<&'static str, OfRule>,
    files: BTreeSet<String>,
}

#[derive(Debug)]
struct OfRule {
    rule: &'static Rule,
    told: Vec<(Place, String)>,
    omitted: usize,
}

impl Findings {
    /// Adds a finding of `rule`. Line breaks in the message become spaces.
    pub(crate) fn add(&mut self, rule: &'static Rule, place: Place, message: impl Into<String>) {
        self.add_at(rule, message, || place);
    }

    /// Adds a finding of `rule` whose position is computed only if needed.
    pub(crate) fn add_at(
        &mut self,
        rule: &'static Rule,
        message: impl Into<String>,
        place: impl FnOnce() -> Place,
    ) {
        let of_rule =
            self.by_rule.entry(rule.id).or_insert_with(|| OfRule { rule, told: Vec::new(), omitted: 0 });
        if of_rule.told.len() >= TOLD_OF_A_RULE {
            of_rule.omitted += 1;
            return;
        }
        let finding = (place(), line_of(&message.into()));
        if !of_rule.told.contains(&finding) {
            self.files.insert(finding.0.file.clone());
            of_rule.told.push(finding);
        }
    }

    /// Reports whether this file has findings.
    pub(crate) fn concern(&self, file: &str) -> bool {
        self.files.contains(file)
    }

    /// Reports whether the rule has findings.
    pub(crate) fn has(&self, rule: &Rule) -> bool {
        self.by_rule.contains_key(rule.id)
    }

    /// Returns all findings by file, line and rule, and the number of omitted ones.
    pub(crate) fn finish(self, files: &BTreeMap<String, Vec<u8>>) -> (Vec<Finding>, usize) {
        let omitted = self.by_rule.values().map(|of_rule| of_rule.omitted).sum();
        let told = |of_rule: OfRule| {
            of_rule.told.into_iter().map(move |(place, message)| (place, of_rule.rule, message))
        };
        let mut found: Vec<(Place, &'static Rule, String)> =
            self.by_rule.into_values().flat_map(told).collect();
        // Lines of one document are computed together.
        found.sort_by(|a, b| (&a.0.file, a.0.start).cmp(&(&b.0.file, b.0.start)));
        let mut findings = Vec::new();
        let mut open: Option<(&str, Lines<'_>)> = None;
        for group in found.chunk_by(|a, b| (&a.0.file, a.0.start) == (&b.0.file, b.0.start)) {
            let Some((first, ..)) = group.first() else { continue };
            if open.as_ref().is_none_or(|(file, _)| *file != first.file) {
                let text = files.get(&first.file).map(Vec::as_slice).unwrap_or_default();
                open = Some((&first.file, Lines::new(text)));
            }
            let Some((_, file)) = &open else { continue };
            let lines: Vec<Option<usize>> = match first.start {
                Start::Unknown => vec![None; group.len()],
                Start::Line(line) => vec![Some(file.at_most(line)); group.len()],
                Start::Document(start) => {
                    let paths: Vec<&[String]> =
                        group.iter().map(|(place, ..)| place.path.as_slice()).collect();
                    file.of(start, &paths).into_iter().map(Some).collect()
                }
            };
            findings.extend(group.iter().zip(lines).map(|((place, rule, message), line)| Finding {
                rule,
                level: rule.level,
                file: place.file.clone(),
                line,
                object: place.object.clone(),
                field: place.field(),
                message: message.clone(),
            }));
        }
        findings.sort_by(|a, b| order(a).cmp(&order(b)));
        (findings, omitted)
    }
}

fn order(finding: &Finding) -> (&str, Option<usize>, &str, Option<&str>, &str) {
    let Finding { rule, file, line, field, message, .. } = finding;
    (file, *line, rule.id, field.as_deref(), message)
}

/// Message in one line, truncated: text quoted from a bundle may be as long as its file.
fn line_of(message: &str) -> String {
    let line = message.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
