//! Compares the reference pages with the programs and the API in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_bundle::{KINDS, Scope};
use olm_docs::{Section, code_spans, document, documents, project, rows, sections};

/// Content of a source file of the project.
fn source(path: &str) -> Result<String> {
    fs::read_to_string(project().join(path)).with_context(|| format!("reading {path}"))
}

/// Concatenated source of the servers.
fn servers_source() -> Result<String> {
    let mut text = String::new();
    let folders = [
        "catalogd/src",
        "controllers/src",
        "controllers/certificates/src",
        "controllers/core/src",
        "controllers/extension/src",
        "controllers/revision/src",
        "crates/catalog-server/src",
        "crates/runtime/src",
        "crates/serving/src",
    ];
    let mut folders: Vec<PathBuf> = folders.map(|path| project().join(path)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                text += &fs::read_to_string(path)?;
            }
        }
    }
    Ok(text)
}

/// Standard output of a program of this build.
fn printed(program: &str, arguments: &[&str]) -> Result<String> {
    let tests = std::env::current_exe()?;
    let folder = tests.parent().and_then(|deps| deps.parent()).context("no folder of programs")?;
    let path =
        std::env::var_os("OLM_PROGRAMS").map_or_else(|| folder.to_owned(), PathBuf::from).join(program);
    let output = Command::new(&path).args(arguments).output();
    let output = output.with_context(|| format!("{}: build it with `cargo build`", path.display()))?;
    ensure!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Options in a help text with their defaults.
fn options(help: &str) -> BTreeMap<String, String> {
    let (mut found, mut last) = (BTreeMap::new(), String::new());
    // A long default begins on the next line.
    let help = help.replace("[default:\n          ", "[default: ");
    for line in help.lines() {
        let text = line.trim_start();
        let is_option = (2..=6).contains(&(line.len() - text.len())) && text.starts_with('-');
        let long = text.find("--").map(|at| &text[at..]).filter(|_| is_option);
        if let Some(long) = long {
            last = long
                .split(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c))
                .next()
                .unwrap_or("")
                .to_owned();
            found.insert(last.clone(), String::new());
        }
        if let (Some(default), Some(of)) = (text.strip_prefix("[default: "), found.get_mut(&last)) {
            *of = default.trim_end_matches(']').to_owned();
        }
    }
    found.remove("--help");
    found
}

/// Options in the first column of a section's tables, with the second column.
fn documented(section: &Section<'_>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for row in rows(&section.lines) {
        let first = row.first().copied().unwrap_or_default();
        let names = code_spans(first).into_iter().filter_map(|span| span.split_whitespace().next());
        for name in names.filter(|name| name.starts_with("--")) {
            found.insert(
                name.to_owned(),
                row.get(1).copied().unwrap_or_default().trim_matches('`').to_owned(),
            );
        }
    }
    found
}

fn section<'a, 'b>(sections: &'b [Section<'a>], heading: &str) -> Result<&'b Section<'a>> {
    sections
        .iter()
        .find(|section| section.heading == heading)
        .with_context(|| format!("no section {heading:?}"))
}

/// Values of the string constants of a source, from `begin` up to the next closing brace in the first column.
fn constants(source: &str, begin: &str) -> BTreeSet<String> {
    let from = source.find(begin).map_or("", |at| &source[at..]);
    let block = from.split("\n}\n").next().unwrap_or_default();
    // rustfmt moves a long value to its own line.
    let values = block.split(": &str =").skip(1);
    values
        .filter_map(|rest| Some(rest.trim_start().strip_prefix('"')?.split_once("\";")?.0.to_owned()))
        .collect()
}

#[test]
fn flags_and_defaults_match_the_reference_page() -> Result<()> {
    let page = document("reference/flags.md")?;
    let sections = sections(&page.text);
    for program in ["catalogd", "operator-controller"] {
        let mut here = documented(section(&sections, "Both servers")?);
        here.extend(documented(section(&sections, program)?));
        let there = options(&printed(program, &["--help"])?);
        let differs: Vec<_> =
            there.iter().filter(|(name, default)| here.get(*name) != Some(default)).collect();
        let invented: Vec<_> = here.keys().filter(|name| !there.contains_key(*name)).collect();
        ensure!(
            differs.is_empty() && invented.is_empty(),
            "docs/reference/flags.md: {program} has {differs:?}, and has not {invented:?}"
        );
    }
    Ok(())
}

#[test]
fn feature_gates_match_the_reference_page() -> Result<()> {
    let page = document("reference/flags.md")?;
    let sections = sections(&page.text);
    let documented = |heading: &str| -> Result<BTreeMap<String, String>> {
        let rows = rows(&section(&sections, heading)?.lines);
        let gate =
            |row: &Vec<&str>| Some((code_spans(row.first()?).first()?.to_string(), row.get(1)?.to_string()));
        Ok(rows.iter().filter_map(gate).collect())
    };
    for (heading, path) in [
        ("Gates of catalogd", "catalogd/src/flags.rs"),
        ("Gates of operator-controller", "controllers/src/gates.rs"),
    ] {
        let text = source(path)?;
        let mut there = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("Gate { name: ")) {
            let (name, rest) = line.split_once(", default: ").with_context(|| line.to_owned())?;
            let constant =
                text.split_once(&format!("const {name}: &str = \"")).with_context(|| name.to_owned())?.1;
            let value = constant.split('"').next().unwrap_or_default();
            there.insert(value.to_owned(), rest.split(',').next().unwrap_or_default().to_owned());
        }
        ensure!(!there.is_empty(), "{path} has no gates");
        let here = documented(heading)?;
        ensure!(here == there, "docs/reference/flags.md, {heading}: {here:?}\n{path}: {there:?}");
    }
    Ok(())
}

/// Commands of `olm` without subcommands, with their help texts.
fn commands(path: &[&str]) -> Result<Vec<(String, String)>> {
    let help = printed("olm", &[path, &["--help"]].concat())?;
    let Some((_, listed)) = help.split_once("\nCommands:\n") else {
        return Ok(vec![([&["olm"], path].concat().join(" "), help)]);
    };
    let mut found = Vec::new();
    for line in listed.lines().take_while(|line| !line.is_empty()) {
        let name = line
            .split_whitespace()
            .next()
            .filter(|name| *name != "help" && line.as_bytes().get(2) != Some(&b' '));
        if let Some(name) = name {
            found.extend(commands(&[path, &[name]].concat())?);
        }
    }
    Ok(found)
}

#[test]
fn cli_commands_match_the_reference_page() -> Result<()> {
    let page = document("reference/cli.md")?;
    let sections = sections(&page.text);
    let there = commands(&[])?;
    ensure!(there.len() > 20, "only {} commands", there.len());
    for (command, help) in &there {
        let own = section(&sections, command).context("docs/reference/cli.md")?;
        let mut here = documented(own);
        for group in olm_docs::links(&own.lines.join("\n")) {
            let group = sections.iter().find(|section| olm_docs::anchor(section.heading) == group[1..]);
            here.extend(documented(group.with_context(|| format!("{command}: link to a missing section"))?));
        }
        let (here, there): (BTreeSet<_>, BTreeSet<_>) =
            (here.into_keys().collect(), options(help).into_keys().collect());
        ensure!(here == there, "docs/reference/cli.md, {command}:\n{here:?}\nits --help:\n{there:?}");
    }
    let there: Vec<&str> = there.iter().map(|(command, _)| command.as_str()).collect();
    let mut here: Vec<&str> = sections.iter().map(|section| section.heading).collect();
    here.retain(|heading| heading.starts_with("olm "));
    ensure!(here == there, "docs/reference/cli.md: {here:?}\nin the order of --help: {there:?}");
    Ok(())
}

#[test]
fn commands_in_sentences_exist() -> Result<()> {
    let known = commands(&[])?;
    for document in documents()? {
        let mut fenced = false;
        for (index, line) in document.text.lines().enumerate() {
            fenced ^= line.starts_with("```");
            for span in code_spans(line).into_iter().filter(|_| !fenced) {
                let here = format!("docs/{}:{}: `{span}`", document.path, index + 1);
                ensure!(
                    !span.starts_with("kubectl ") || span == "kubectl olm",
                    "{here} runs in no test; make it a block"
                );
                let exists = |(command, help): &(String, String)| {
                    let options = options(help);
                    span.starts_with(command)
                        && span
                            .split([' ', '='])
                            .all(|word| !word.starts_with("--") || options.contains_key(word))
                };
                ensure!(
                    !span.starts_with("olm ") || span.contains('…') || known.iter().any(exists),
                    "{here} does not exist"
                );
            }
        }
    }
    Ok(())
}

/// Commands of opm, including those for SQLite that it no longer has.
const OPM: [&str; 32] = [
    "init",
    "render",
    "migrate",
    "validate",
    "generate dockerfile",
    "serve",
    "version",
    "completion",
    "alpha list packages",
    "alpha list channels",
    "alpha list bundles",
    "alpha render-graph",
    "alpha render-template",
    "alpha convert-template",
    "alpha bundle generate",
    "alpha bundle build",
    "alpha bundle validate",
    "alpha bundle unpack",
    "alpha bundle extract",
    "index add",
    "index rm",
    "index prune",
    "index prune-stranded",
    "index deprecatetruncate",
    "index export",
    "registry add",
    "registry rm",
    "registry prune",
    "registry prune-stranded",
    "registry deprecatetruncate",
    "registry mirror",
    "registry serve",
];

/// `commands_in_sentences_exist` checks the commands of olm in these rows.
#[test]
fn each_opm_command_has_a_row() -> Result<()> {
    let page = document("authors/opm.md")?;
    let sections = sections(&page.text);
    let rows: Vec<_> = sections.iter().flat_map(|section| rows(&section.lines)).collect();
    let mut here = BTreeSet::new();
    for row in &rows {
        let [opm, olm, why] = row[..] else { anyhow::bail!("docs/authors/opm.md: {row:?}") };
        let command = code_spans(opm).first().and_then(|span| span.strip_prefix("opm "));
        here.insert(command.with_context(|| format!("docs/authors/opm.md: {opm}"))?);
        let is_named = code_spans(olm).first().is_some_and(|span| span.starts_with("olm "));
        ensure!(is_named || olm == "none" && !why.is_empty(), "docs/authors/opm.md: {row:?}");
    }
    ensure!(here == BTreeSet::from(OPM), "docs/authors/opm.md: {here:?}\nopm: {OPM:?}");
    Ok(())
}

#[test]
fn condition_types_and_reasons_match_the_reference_page() -> Result<()> {
    let text = source("api/src/conditions.rs")?;
    let (types, reasons) = (constants(&text, "pub mod types"), constants(&text, "pub mod reasons"));
    ensure!(types.len() > 10 && reasons.len() > 30, "{types:?} {reasons:?}");
    let page = document("reference/conditions.md")?;
    let mut seen = (BTreeSet::new(), BTreeSet::new());
    for section in sections(&page.text) {
        for row in rows(&section.lines).into_iter().filter(|row| row.len() == 4) {
            seen.0.extend(code_spans(row[0]).into_iter().map(str::to_owned));
            let reasons =
                code_spans(row[1]).into_iter().filter_map(|span| Some(span.split_once('/')?.1.to_owned()));
            seen.1.extend(reasons);
        }
    }
    ensure!(seen.0 == types, "types in docs/reference/conditions.md: {:?}\nin api/: {types:?}", seen.0);
    ensure!(seen.1 == reasons, "reasons in docs/reference/conditions.md: {:?}\nin api/: {reasons:?}", seen.1);
    Ok(())
}

#[test]
fn event_reasons_match_the_reference_page() -> Result<()> {
    let mut there = BTreeSet::new();
    for path in ["events.rs", "rollout_events.rs"] {
        there.extend(constants(&source(&format!("controllers/extension/src/controller/{path}"))?, ""));
    }
    ensure!(there.len() > 10, "{there:?}");
    let page = document("reference/conditions.md")?;
    let sections = sections(&page.text);
    let rows = rows(&section(&sections, "Events")?.lines);
    let here: BTreeSet<&str> = rows.iter().flat_map(|row| row[0].split(", ")).collect();
    let missing: Vec<_> = there.iter().filter(|reason| !here.contains(reason.as_str())).collect();
    ensure!(missing.is_empty(), "docs/reference/conditions.md, Events: without {missing:?}");
    let text = servers_source()?;
    let invented: Vec<_> = here.iter().filter(|reason| !text.contains(&format!("\"{reason}\""))).collect();
    ensure!(invented.is_empty(), "docs/reference/conditions.md, Events: {invented:?}");
    Ok(())
}

#[test]
fn annotations_match_the_reference_page() -> Result<()> {
    let there: BTreeSet<String> = constants(&source("api/src/annotations.rs")?, "")
        .into_iter()
        .filter(|key| key.len() > EXT.len() && key.starts_with(EXT))
        .collect();
    let page = document("reference/annotations.md")?;
    let sections = sections(&page.text);
    let mut here = BTreeSet::new();
    for row in sections.iter().flat_map(|section| rows(&section.lines)) {
        here.extend(code_spans(row[0]).into_iter().map(|key| format!("{EXT}{key}")));
    }
    ensure!(here == there, "docs/reference/annotations.md: {here:?}\napi/: {there:?}");
    Ok(())
}

/// Prefix of the annotations of this implementation.
const EXT: &str = "ext.olm.operatorframework.io/";

#[test]
fn documented_metrics_exist_in_the_source() -> Result<()> {
    let text = servers_source()?;
    let page = document("reference/metrics.md")?;
    let mut count = 0;
    for row in sections(&page.text).iter().flat_map(|section| rows(&section.lines)) {
        for name in code_spans(row[0]) {
            // Names are registered without `_total`, some composed of several strings.
            let registered = name.strip_suffix("_total").unwrap_or(name);
            let mut ends =
                registered.match_indices('_').map(|(at, _)| &registered[at + 1..]).chain([registered]);
            let is_there = ends.any(|end| text.contains(&format!("\"{end}\"")));
            ensure!(is_there, "docs/reference/metrics.md: {name} is not in the source");
            count += 1;
        }
    }
    ensure!(count > 20, "only {count} metrics");
    Ok(())
}

/// Terms of classic OLM, one on each line: kinds, fields, annotations, reasons, metrics.
const CLASSIC_TERMS: &str = include_str!("classic_terms.txt");

#[test]
fn each_term_of_classic_olm_has_a_row() -> Result<()> {
    let page = document("from-classic.md")?;
    let mut here = BTreeSet::new();
    for section in sections(&page.text) {
        for row in rows(&section.lines) {
            let [classic, v1] = row[..] else { anyhow::bail!("docs/from-classic.md: {row:?}") };
            // A term without counterpart has a reason, and perhaps something instead.
            let is_reasoned = v1.strip_prefix("none").is_none_or(|rest| rest.len() > ", because".len());
            ensure!(is_reasoned && !v1.is_empty(), "docs/from-classic.md: {row:?}");
            here.extend(code_spans(classic));
        }
    }
    let there: BTreeSet<&str> = CLASSIC_TERMS.lines().collect();
    ensure!(there.len() > 100, "{there:?}");
    let missing: Vec<_> = there.difference(&here).collect();
    ensure!(missing.is_empty(), "docs/from-classic.md: without {missing:?}");
    Ok(())
}

#[test]
fn kinds_of_bundles_match_the_reference_page() -> Result<()> {
    let page = document("reference/bundle-files.md")?;
    let sections = sections(&page.text);
    let mut here = BTreeSet::new();
    for row in rows(&section(&sections, "Kinds of objects")?.lines) {
        let [kind, groups, namespace] = row[..] else { anyhow::bail!("{row:?}") };
        let groups =
            groups.split(", ").map(|group| if group == "core" { "" } else { group.trim_matches('`') });
        here.extend(groups.map(|group| (group, kind, namespace)));
    }
    let shipped = KINDS.iter().filter(|row| row.shipped);
    let there: BTreeSet<_> = shipped
        .map(|row| {
            let namespace = match row.scope {
                Scope::Cluster => "none",
                Scope::InstallNamespace => "install namespace",
                Scope::AuthoredNamespace => "as written",
            };
            (row.group, row.kind, namespace)
        })
        .collect();
    ensure!(here == there, "docs/reference/bundle-files.md: {here:?}\ncrates/bundle: {there:?}");
    Ok(())
}

/// Number of blocks in all documents that no test runs.
const NOT_RUN: usize = 36;

#[test]
fn all_commands_run_in_a_test() -> Result<()> {
    let (mut not_run, mut steps) = (Vec::new(), 0);
    for document in documents()? {
        let script = document.script()?;
        let allowed = ["", "nothing", "catalog", "installed", "mirrored", "servers"];
        ensure!(
            allowed.contains(&script.fixture.as_str()),
            "docs/{}: unknown fixture {:?}",
            document.path,
            script.fixture
        );
        not_run.extend(
            script.not_run.into_iter().map(|(line, why)| format!("docs/{}:{line}: {why}", document.path)),
        );
        steps += script.steps.len();
    }
    ensure!(not_run.len() == NOT_RUN && steps > 40, "{steps} blocks run; these do not: {not_run:#?}");
    Ok(())
}
