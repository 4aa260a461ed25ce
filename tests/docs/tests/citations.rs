//! Comments cite only sections of `docs/design/` and rows of `docs/design/cases.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_docs::{anchor, documents, project, sections};
use regex::Regex;

/// Path below the project and content of every text file under version control.
fn sources() -> Result<Vec<(String, String)>> {
    let listed =
        Command::new("git").args(["ls-files", "-z"]).current_dir(project()).output().context("git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let paths = String::from_utf8(listed.stdout)?;
    let texts = paths.split_terminator('\0').filter_map(|path| {
        // Skips files that are not UTF-8.
        Some((path.to_owned(), fs::read_to_string(project().join(path)).ok()?))
    });
    Ok(texts.collect())
}

/// All matches of `pattern`, each with its file and line.
fn matches<'a>(pattern: &str, sources: &'a [(String, String)]) -> Result<Vec<(String, &'a str)>> {
    let pattern = Regex::new(pattern)?;
    let mut found = Vec::new();
    for (path, text) in sources {
        for (index, line) in text.lines().enumerate() {
            found.extend(pattern.find_iter(line).map(|hit| (format!("{path}:{}", index + 1), hit.as_str())));
        }
    }
    Ok(found)
}

#[test]
fn cited_sections_exist() -> Result<()> {
    let anchors: BTreeMap<String, BTreeSet<String>> = documents()?
        .into_iter()
        .map(|document| {
            let anchors =
                sections(&document.text).into_iter().map(|section| anchor(section.heading)).collect();
            (format!("docs/{}", document.path), anchors)
        })
        .collect();
    let sources = sources()?;
    let cited = matches(r"docs/design/[a-z0-9/-]+\.md(#[a-z0-9-]+)?", &sources)?;
    ensure!(cited.len() > 500, "only {} citations", cited.len());
    for (place, citation) in cited {
        let (page, section) = citation.split_once('#').unwrap_or((citation, ""));
        let anchors = anchors.get(page).with_context(|| format!("{place}: {page} does not exist"))?;
        ensure!(
            section.is_empty() || anchors.contains(section),
            "{place}: {page} has no section #{section}; it has {anchors:?}"
        );
    }
    Ok(())
}

#[test]
fn cited_cases_exist() -> Result<()> {
    let page = fs::read_to_string(project().join("docs/design/cases.md"))?;
    let cases: BTreeSet<&str> =
        page.split("<a id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0)).collect();
    let sources = sources()?;
    let areas = "api|catalogd|resolution|bundles|apply|operations|additions|seeds";
    let named = matches(&format!(r"\b({areas})-([a-z]\d+(-\d+)?|\d+)\b"), &sources)?;
    let named: Vec<_> = named
        .into_iter()
        .filter(|(place, _)| place.contains(".rs:") && !place.starts_with("docs/"))
        .collect();
    ensure!(named.len() > 200, "only {} cases are named", named.len());
    for (place, case) in named {
        ensure!(cases.contains(case), "{place}: {case} is not a row of docs/design/cases.md");
    }
    Ok(())
}

#[test]
fn comments_cite_no_documents_outside_the_repository() -> Result<()> {
    let sources = sources()?;
    let outside =
        matches(r"\b[Ss]pec 0\d|\b[Rr]uling|\bR-\d+\b|\bacceptance \d|// [A-Z]\d+[a-z]?(-\d+)?\b", &sources)?;
    ensure!(
        outside.iter().all(|(place, _)| place.starts_with("tests/docs/tests/citations.rs:")),
        "cite docs/design instead: {outside:?}"
    );
    Ok(())
}
