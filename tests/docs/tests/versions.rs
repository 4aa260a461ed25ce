//! Runs the tables of `docs/reference/versions.md` through the functions that choose bundles.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use olm_api::cluster_extension::{VERSION_MAX_CHARACTERS, version_pattern};
use olm_docs::{code_spans, document, project, rows, sections};
use olm_version::{Constraint, Range, Version};
use regex::Regex;

const PAGE: &str = "reference/versions.md";

/// Grammar of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Grammar {
    /// `spec.source.catalog.version`, as API server and operator-controller accept it.
    Extension,
    /// `skipRange` and `versionRange`.
    Author,
}

/// Versions among `of` that `text` selects. `None` if it is invalid.
fn selected<'a>(grammar: Grammar, text: &str, of: &[&'a str]) -> Result<Option<Vec<&'a str>>> {
    let versions = of.iter().map(|&version| {
        Version::parse(version).map(|parsed| (version, parsed)).with_context(|| format!("version {version}"))
    });
    let versions = versions.collect::<Result<Vec<_>>>()?;
    let kept = |admits: &dyn Fn(&Version) -> bool| -> Vec<&'a str> {
        versions.iter().filter(|(_, parsed)| admits(parsed)).map(|(version, _)| *version).collect()
    };
    Ok(match grammar {
        Grammar::Extension => {
            let is_admitted = text.chars().count() <= VERSION_MAX_CHARACTERS
                && Regex::new(&version_pattern())?.is_match(text);
            let constraint = Constraint::parse(text).ok().filter(|_| is_admitted);
            constraint.map(|constraint| kept(&|version| constraint.matches(version)))
        }
        Grammar::Author => Range::parse(text).ok().map(|range| kept(&|version| range.contains(version))),
    })
}

/// Versions on which two texts with the same meaning are compared.
fn grid() -> Vec<String> {
    let numbers = [0, 1, 2, 3, 9, 10, 11, 12, 13, 20];
    let cores = [0, 1, 2, 3]
        .iter()
        .flat_map(|major| numbers.iter().flat_map(move |minor| numbers.map(|patch| (major, minor, patch))));
    let all = cores.flat_map(|(major, minor, patch)| {
        ["", "-0", "-rc.1", "+build.5"].map(|suffix| format!("{major}.{minor}.{patch}{suffix}"))
    });
    all.collect()
}

/// Code spans of a cell, with `\|` as `|`.
fn texts(cell: &str) -> Vec<String> {
    code_spans(cell).into_iter().map(|span| span.replace("\\|", "|")).collect()
}

/// Compares the row of a text with the function of its grammar: its meaning in other words (a cell such as
/// `>=1.2.0 <1.3.0`, perhaps after "as"), versions that it selects, versions that it does not select.
fn check_row(grammar: Grammar, row: &[&str]) -> Result<()> {
    let [text, same @ .., inside, outside] = row else { bail!("{row:?}") };
    let text = texts(text).pop().context("no text in the first cell")?;
    let (inside, outside) = (texts(inside), texts(outside));
    ensure!(!inside.is_empty() || !outside.is_empty(), "no versions");
    let listed: Vec<&str> = inside.iter().chain(&outside).map(String::as_str).collect();
    let found = selected(grammar, &text, &listed)?.with_context(|| format!("{text} is invalid"))?;
    ensure!(found == inside, "{text} selects {found:?}, not {inside:?}");
    for same in same.iter().flat_map(|cell| texts(cell)) {
        let grid = grid();
        let grid: Vec<&str> = grid.iter().map(String::as_str).collect();
        let (one, other) = (selected(grammar, &text, &grid)?, selected(grammar, &same, &grid)?);
        ensure!(one.is_some() && one == other, "{text} is not {same}: {one:?}, {other:?}");
    }
    Ok(())
}

#[test]
fn rows_of_both_grammars_have_their_results() -> Result<()> {
    let page = document(PAGE)?;
    let mut counts = [0, 0];
    for section in sections(&page.text) {
        let grammar = match section.heading {
            "Comparisons"
            | "Wildcards"
            | "Patch releases: tilde"
            | "Releases without a breaking change: caret"
            | "Pre-releases and build metadata" => Grammar::Extension,
            "Range of an author" => Grammar::Author,
            _ => continue,
        };
        for row in rows(&section.lines) {
            check_row(grammar, &row).with_context(|| format!("docs/{PAGE}, {}: {row:?}", section.heading))?;
            counts[usize::from(grammar == Grammar::Author)] += 1;
        }
    }
    ensure!(counts[0] > 40 && counts[1] > 10, "{counts:?} rows");
    Ok(())
}

#[test]
fn ranges_in_the_description_of_the_field_have_their_meaning() -> Result<()> {
    let path = project().join("manifests/crds/clusterextensions.olm.operatorframework.io.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let (grid, mut count) = (grid(), 0);
    let grid: Vec<&str> = grid.iter().map(String::as_str).collect();
    for line in text.lines().filter(|line| line.trim_start().starts_with("- `")) {
        let spans = code_spans(line);
        let [text, meaning] = spans[..] else { bail!("{line}") };
        let (one, other) =
            (selected(Grammar::Extension, text, &grid)?, selected(Grammar::Extension, meaning, &grid)?);
        ensure!(one.is_some() && one == other, "{text} is not {meaning}: {one:?}, {other:?}");
        count += 1;
    }
    ensure!(count == 18, "{count} ranges");
    Ok(())
}

#[test]
fn rows_of_the_same_text_have_the_results_of_both_grammars() -> Result<()> {
    let page = document(PAGE)?;
    let sections = sections(&page.text);
    let section = sections.iter().find(|section| section.heading == "The same text in both grammars");
    let section = section.context("no section with both grammars")?;
    let named: Vec<String> =
        section.lines.iter().take_while(|line| !line.starts_with('|')).flat_map(|line| texts(line)).collect();
    let versions: Vec<&str> = named.iter().map(String::as_str).collect();
    let rows = rows(&section.lines);
    ensure!(versions.len() > 4 && rows.len() > 15, "{versions:?}, {} rows", rows.len());
    for row in rows {
        let [text, cells @ ..] = &row[..] else { bail!("{row:?}") };
        let text = texts(text).pop().with_context(|| format!("{row:?}"))?;
        for (grammar, cell) in [Grammar::Extension, Grammar::Author].into_iter().zip(cells) {
            let expected = (*cell != "invalid").then(|| texts(cell));
            let found = selected(grammar, &text, &versions)?;
            ensure!(
                found == expected.as_ref().map(|texts| texts.iter().map(String::as_str).collect::<Vec<_>>()),
                "docs/{PAGE}: {text} as {grammar:?}: {found:?}, not {cell}"
            );
        }
    }
    Ok(())
}
