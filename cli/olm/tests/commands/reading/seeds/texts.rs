//! The documents, and changes of their examples that do not depend on what these mean.

use std::fs;
use std::path::{Path, PathBuf};

use olm_require::Need;
use regex::{Captures, Regex};

/// Folder of the documents. `None` if the test is skipped.
pub(super) fn seeds() -> Option<PathBuf> {
    let folder = olm_require::field_data()?.join("../seeds");
    if folder.is_dir() {
        return Some(folder);
    }
    olm_require::report(Need::Field, "there is no folder seeds beside OLM_FIELD_DATA");
    None
}

/// Lines of the document whose file name begins with these digits.
pub(super) fn document(seeds: &Path, digits: &str) -> Vec<String> {
    let mut files = seeds.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let is_meant = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(digits);
    let text = fs::read_to_string(files.find(is_meant).unwrap()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Document, first and last line of a place such as `000:84-101`.
pub(super) fn place(at: &str) -> (&str, usize, usize) {
    let (digits, lines) = at.split_once(':').unwrap();
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    (digits, first.parse().unwrap(), last.parse().unwrap())
}

/// Lines of a document without their common indentation.
pub(super) fn cut(seeds: &Path, at: &str) -> String {
    let (digits, first, last) = place(at);
    let lines = document(seeds, digits);
    let lines = &lines[first - 1..last];
    let filled = lines.iter().filter(|line| !line.trim().is_empty());
    let margin = filled.map(|line| indent(line)).min().unwrap();
    lines.iter().map(|line| format!("{}\n", line.get(margin..).unwrap_or_default())).collect()
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches('(').trim_end_matches(')');
    (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) fn printed(text: &str) -> String {
    text.to_owned()
}

/// Without lines `...`, which stand for content, and without call-outs: a number alone in a line with the empty line
/// after it, a number after a value, a number between a name and the deeper lines that belong to it.
pub(super) fn cleaned(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut kept = String::new();
    for (at, &line) in lines.iter().enumerate() {
        let follows_number = at.checked_sub(1).is_some_and(|above| is_number(lines[above].trim()));
        if is_number(line.trim()) || line.trim() == "..." || (follows_number && line.is_empty()) {
            continue;
        }
        let next = lines.get(at + 1).map_or(0, |next| indent(next));
        let line = match line.rsplit_once(' ') {
            Some((rest, last)) if is_number(last) && (!rest.ends_with(':') || next > indent(line)) => rest,
            _ => line,
        };
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// [`cleaned`], with a value in place of each `<name>`.
pub(super) fn filled(text: &str) -> String {
    let value = |name: &Captures<'_>| match &name[1] {
        "cluster_version" => "4.18",
        "version_or_version_range" => "1.14.0",
        "semver_range" => "<1.2.0",
        "channel_name" => "latest",
        _ => "example",
    };
    Regex::new("<([a-z_]+)>").unwrap().replace_all(&cleaned(text), value).into_owned()
}

/// [`cleaned`], with the first line in the column of the second.
pub(super) fn aligned(text: &str) -> String {
    let text = cleaned(text);
    let (first, rest) = text.split_once('\n').unwrap();
    format!("{}{first}\n{rest}", " ".repeat(indent(rest)))
}

pub(super) fn completed(text: &str) -> String {
    filled(&aligned(text))
}

/// [`completed`], with the second of the three versions that the document proposes.
pub(super) fn completed_with_patches(text: &str) -> String {
    completed(text).replace("1.14.0", "1.14.x")
}

/// [`completed`], with the third.
pub(super) fn completed_with_minimum(text: &str) -> String {
    completed(text).replace("1.14.0", ">=1.16")
}

/// [`completed_with_minimum`], quoted.
pub(super) fn completed_with_quoted_minimum(text: &str) -> String {
    completed(text).replace("1.14.0", "\">=1.16\"")
}

/// [`cleaned`], with the text of blocks deeper than their names.
pub(super) fn indented(text: &str) -> String {
    let mut result = String::new();
    let mut is_in_block = false;
    for line in cleaned(text).lines() {
        is_in_block &= !line.trim_start().starts_with("- ");
        result.push_str(if is_in_block { "  " } else { "" });
        result.push_str(line);
        result.push('\n');
        is_in_block |= line.ends_with(": |");
    }
    result
}

/// Entries as an object of a catalog.
pub(super) fn entries(text: &str) -> String {
    format!("schema: olm.channel\npackage: steps\nname: stable\nentries:\n{text}")
}

pub(super) fn quoted_entries(text: &str) -> String {
    Regex::new("(skipRange: )(.*)").unwrap().replace(&entries(text), "${1}'${2}'").into_owned()
}

/// A property as an entry of `dependencies.yaml`.
pub(super) fn dependency(text: &str) -> String {
    format!("dependencies:\n- {}\n", text.trim_end().replace('\n', "\n  "))
}

/// An annotation as part of an object.
pub(super) fn annotation(text: &str) -> String {
    format!("metadata:\n  annotations:\n    {text}")
}

pub(super) fn filled_annotation(text: &str) -> String {
    filled(&annotation(text))
}

/// A package in a constraint by its right name.
pub(super) fn renamed(text: &str) -> String {
    text.replace("name: blue", "packageName: blue")
}

/// [`renamed`], with the fields after `value:` inside it.
pub(super) fn in_value(text: &str) -> String {
    let text = renamed(text);
    let (head, fields) = text.split_once("  value:\n").unwrap();
    let fields: String = fields.lines().map(|line| format!("  {line}\n")).collect();
    format!("{head}  value:\n{fields}")
}

/// With images of a registry that does not answer.
pub(super) fn unserved(text: &str) -> String {
    text.replace("quay.io", "127.0.0.1:1")
}

/// Files of a drawn tree, below its root.
pub(super) fn drawn_files(tree: &str) -> Vec<String> {
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for line in tree.lines().skip(1) {
        let (lines, name) = line.split_once("── ").unwrap();
        folders.truncate(lines.chars().count() / 4);
        folders.push(name);
        if name.contains('.') {
            files.push(folders.join("/"));
        }
    }
    files
}
