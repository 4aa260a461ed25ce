//! Links between the documents, and their order on the site (`hack/site`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use olm_docs::{anchor, code_spans, document, documents, links, project, sections};

/// Documents outside of `docs/`, by path.
fn outside() -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for folder in ["", "hack/", ".github/"] {
        for entry in fs::read_dir(project().join(folder))? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().context("a name that is not UTF-8")?;
            if name.ends_with(".md") {
                found.insert(format!("{folder}{name}"), fs::read_to_string(entry.path())?);
            }
        }
    }
    Ok(found)
}

/// Path of the target of a relative link in `from`, and its anchor.
fn target<'a>(from: &'a str, link: &'a str) -> (String, Option<&'a str>) {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let mut to: Vec<&str> = from.split('/').collect();
    if !file.is_empty() {
        to.pop();
    }
    for part in file.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            to.pop();
        } else {
            to.push(part);
        }
    }
    (to.join("/"), anchor)
}

#[test]
fn links_have_existing_targets() -> Result<()> {
    let mut texts = outside()?;
    ensure!(texts.contains_key("README.md") && texts.contains_key("CONTRIBUTING.md"), "{:?}", texts.keys());
    for document in documents()? {
        texts.insert(format!("docs/{}", document.path), document.text);
    }
    for (path, text) in &texts {
        for link in links(text).into_iter().filter(|link| !link.contains("://")) {
            let (to, heading) = target(path, link);
            ensure!(project().join(&to).exists(), "{path}: {link} does not exist");
            ensure!(
                !path.starts_with("docs/") || to.starts_with("docs/"),
                "{path}: {link} is not on the site, which has only docs/"
            );
            if let (Some(heading), Some(text)) = (heading, texts.get(&to)) {
                let known = sections(text).iter().any(|section| anchor(section.heading) == heading);
                ensure!(known, "{path}: {link}: no such heading");
            }
        }
    }
    Ok(())
}

#[test]
fn summary_lists_every_document_once() -> Result<()> {
    let summary = document("SUMMARY.md")?;
    // Headings of the tree have an empty link.
    let listed: Vec<&str> = links(&summary.text).into_iter().filter(|link| !link.is_empty()).collect();
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    ensure!(listed.len() == unique.len(), "docs/SUMMARY.md lists a document twice");
    let documents = documents()?;
    let missing: Vec<_> = documents
        .iter()
        .map(|document| document.path.as_str())
        .filter(|path| *path != summary.path && !unique.contains(path))
        .collect();
    ensure!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
    Ok(())
}

#[test]
fn paths_in_documents_outside_of_docs_exist() -> Result<()> {
    let folders = ["api", "catalogd", "cli", "controllers", "crates", "docs", "hack", "manifests", "tests"];
    for (path, text) in outside()? {
        for (index, line) in text.lines().enumerate() {
            for span in code_spans(line) {
                let named = span.split([' ', ':', '#']).next().unwrap_or_default();
                let is_path = named.split_once('/').is_some_and(|(top, _)| folders.contains(&top));
                ensure!(
                    !is_path || named.contains(['*', '{']) || project().join(named).exists(),
                    "{path}:{}: `{named}` does not exist",
                    index + 1
                );
            }
        }
    }
    Ok(())
}
