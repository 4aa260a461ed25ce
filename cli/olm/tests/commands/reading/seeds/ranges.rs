//! Version ranges: the tables of document 002, and ranges in sentences.

use serde_json::{Value, json};

use super::folder::{package, run, write_package};
use super::texts::{document, seeds};

/// Line of document 002, versions that it admits, others. The last row is a ClusterExtension, the others are all rows
/// of the four tables.
const EXTENSIONS: [(usize, &str, &str); 25] = [
    (48, "1.11.1", "1.11.0 1.11.2"),
    (52, "1.11.0 1.11.2", "1.11.1"),
    (56, "1.11.2 2.0.0", "1.11.0 1.11.1"),
    (60, "0.1.0 1.11.0", "1.11.1 1.11.2"),
    (64, "1.11.1 2.0.0", "1.11.0"),
    (68, "0.1.0 1.11.1", "1.11.2"),
    (94, "1.11.0 1.11.9", "1.10.9 1.12.0"),
    (98, "1.12.0 2.0.0", "1.11.9"),
    (102, "0.1.0 2.9.0", "3.0.0"),
    (106, "0.0.0 2.0.0", "2.1.0-rc.1"),
    (115, "1.11.0 1.11.9", "1.10.9 1.12.0"),
    (119, "1.0.0 1.12.0", "0.9.0 2.0.0"),
    (123, "1.12.0 1.12.9", "1.11.9 1.13.0"),
    (127, "1.12.0 1.12.9", "1.11.9 1.13.0"),
    (131, "1.0.0 1.12.0", "0.9.0 2.0.0"),
    (140, "0.0.0 0.9.0", "1.0.0"),
    (144, "0.0.0 0.0.9", "0.1.0"),
    (148, "0.0.3", "0.0.2 0.0.4"),
    (152, "0.2.0 0.2.9", "0.1.9 0.3.0"),
    (156, "0.2.3 0.2.9", "0.2.2 0.3.0"),
    (160, "1.2.0 1.9.0", "1.1.9 2.0.0"),
    (164, "1.2.3 1.9.0", "1.2.2 2.0.0"),
    (168, "2.0.0 2.9.0", "1.9.9 3.0.0"),
    (172, "2.3.0 2.9.0", "2.2.9 3.0.0"),
    (87, "1.11.0 1.12.4", "1.10.9 1.13.0"),
];

/// Ranges of authors: place, text, versions that it contains, others.
const AUTHORS: [(&str, &str, &str, &str); 6] = [
    ("000:127", "0.5.2", "0.5.2", "0.5.1 0.5.3"),
    ("000:127", ">0.5.1", "0.5.2 1.0.0", "0.5.1"),
    ("001:718", ">0.5.1", "0.5.2 1.0.0", "0.5.1"),
    ("001:986", ">1.0.0 <2.0.0", "1.0.1 1.9.9", "1.0.0 2.0.0"),
    ("001:994", "> 1.0.0 !1.2.1", "1.2.0 1.2.2", "1.0.0 1.2.1"),
    ("001:1004", ">1.1.0", "1.1.1", "1.1.0"),
];

fn versions(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// Text of a line of the tables, or of a quoted value. An operator alone stands before a version.
fn range(line: &str) -> String {
    let text = line.split('"').nth(1).unwrap_or_else(|| line.trim());
    let is_operator = !text.contains(|c: char| c.is_ascii_digit() || c == '*');
    format!("{text}{}", if is_operator { "1.11.1" } else { "" })
}

#[test]
fn rows_of_the_tables_choose_their_versions() {
    let Some(seeds) = seeds() else { return };
    let lines = document(&seeds, "002");
    for (line, admitted, others) in EXTENSIONS {
        let (admitted, others) = (versions(admitted), versions(others));
        let folder = tempfile::tempdir().unwrap();
        let all = [&admitted[..], &others].concat();
        write_package(folder.path(), &package(["all", "all", "stable"], &all, &[]));
        write_package(folder.path(), &package(["others", "others", "stable"], &others, &[]));
        // An example has its meaning two lines below.
        let last = if (94..=172).contains(&line) { line + 2 } else { line };
        for text in [line, last].map(|line| range(&lines[line - 1])) {
            let args =
                ["resolve", "all", "--catalog", "catalog", "--version", &text, "--explain", "-o", "json"];
            let (code, output) = run(folder.path(), &args);
            assert_eq!(code, 0, "line {line}: {text}: {output}");
            let printed: Value = serde_json::from_str(&output).unwrap();
            let resolution = &printed["items"][0];
            let bundles = resolution["explanation"]["catalogs"][0]["bundles"].as_array().unwrap();
            let found = bundles.iter().filter(|bundle| bundle["fate"] != "version");
            // The highest version is the first.
            let found: Vec<&str> = found.rev().map(|bundle| bundle["version"].as_str().unwrap()).collect();
            assert_eq!(found, admitted, "line {line}: {text}");
            assert_eq!(resolution["chosen"]["version"], admitted[admitted.len() - 1], "line {line}: {text}");
        }
        let text = range(&lines[line - 1]);
        let args = ["resolve", "others", "--catalog", "catalog", "--version", &text];
        let (code, output) = run(folder.path(), &args);
        let refusal = format!("error: no bundles found for package \"others\" matching version \"{text}\"\n");
        assert!(code == 4 && output.starts_with(&refusal), "line {line}: {code}: {output}");
    }
}

#[test]
fn ranges_of_authors_choose_their_versions() {
    let Some(seeds) = seeds() else { return };
    for (at, text, contained, others) in AUTHORS {
        let (digits, line) = at.split_once(':').unwrap();
        let lines = document(&seeds, digits);
        assert!(lines[line.parse::<usize>().unwrap() - 1].contains(text), "{at} lacks {text}");
        let (contained, others) = (versions(contained), versions(others));
        let required = |package: &str| json!({ "type": "olm.package.required", "value": { "packageName": package, "versionRange": text } });
        let folder = tempfile::tempdir().unwrap();
        let all = [&contained[..], &others].concat();
        for objects in [
            package(["all", "all", "stable"], &all, &[]),
            package(["others", "others", "stable"], &others, &[]),
            package(["met", "met", "stable"], &["1.0.0"], &[required("all")]),
            package(["unmet", "unmet", "stable"], &["1.0.0"], &[required("others")]),
        ] {
            write_package(folder.path(), &objects);
        }
        let solve =
            |package: &str| run(folder.path(), &["resolve", package, "--catalog", "catalog", "--solve"]);
        let (code, output) = solve("met");
        let expected = format!("1. install all {} ", contained[contained.len() - 1]);
        assert!(code == 0 && output.starts_with(&expected), "{at}: {text}: {code}: {output}");
        let (code, output) = solve("unmet");
        let expected = format!("and with version in range: {text}\n");
        assert!(code == 4 && output.contains(&expected), "{at}: {text}: {code}: {output}");
    }
}
