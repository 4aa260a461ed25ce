//! Bill of materials of an image that runs one of the programs, as a CycloneDX document: the crates of the program,
//! and every file of the image with its digest. Equal content yields equal documents, so that they contain no time.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{LayerEntry, digest_of};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
    license: String,
}

/// Returns the bill of materials of an image with these files, whose program `name` was built from the crates in
/// `tree`, the output of `cargo tree --prefix none --format '{p}|{l}'`. It contains no paths of the build machine.
///
/// # Errors
/// A line does not have this format, or the program's own crate is not listed.
pub fn bill_of_materials(name: &str, tree: &str, files: &BTreeMap<String, LayerEntry>) -> Result<Value> {
    let lines = tree.lines().filter(|line| !line.trim().is_empty());
    let crates: BTreeSet<Crate> = lines.map(listed).collect::<Result<_>>()?;
    let program = crates.iter().find(|one| one.name == name);
    let program = program.with_context(|| format!("the crate {name} is not listed"))?;
    let libraries = crates.iter().filter(|one| *one != program).map(|one| {
        let Crate { name, version, license } = one;
        let mut library = json!({"type": "library", "name": name, "version": version, "purl": url(one)});
        if !license.is_empty() {
            library["licenses"] = json!([{"expression": license}]);
        }
        library
    });
    let files = files.iter().filter_map(|(path, entry)| match entry {
        LayerEntry::File { content, .. } => {
            let digest = digest_of(content);
            let digest = digest.trim_start_matches("sha256:");
            Some(json!({"type": "file", "name": format!("/{path}"),
                "hashes": [{"alg": "SHA-256", "content": digest}]}))
        }
        LayerEntry::Dir { .. } => None,
    });
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": program.version,
            "licenses": [{"expression": program.license}]}},
        "components": libraries.chain(files).collect::<Vec<_>>(),
    }))
}

/// Parses a line such as `serde v1.0.0 (proc-macro)|MIT/Apache-2.0 (*)`.
fn listed(line: &str) -> Result<Crate> {
    let parsed = || {
        let (package, license) = line.split_once('|')?;
        let mut words = package.split_whitespace();
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        // Older crates separate alternatives with a slash.
        let license = license.trim_end_matches(" (*)").trim().replace('/', " OR ");
        Some(Crate { name: name.to_owned(), version: version.to_owned(), license })
    };
    parsed().with_context(|| format!("no line of cargo tree --format '{{p}}|{{l}}': {line:?}"))
}

fn url(Crate { name, version, .. }: &Crate) -> String {
    format!("pkg:cargo/{name}@{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "catalogd v0.1.0 (/somewhere/catalogd)|Apache-2.0\nserde v1.0.2|MIT OR Apache-2.0\n\
        serde_derive v1.0.2 (proc-macro)|MIT/Apache-2.0\nserde v1.0.2|MIT OR Apache-2.0 (*)\n";

    #[test]
    fn bill_lists_crates_and_files_once() {
        let files = BTreeMap::from([
            ("catalogd".to_owned(), LayerEntry::File { mode: 0o755, content: b"elf".to_vec() }),
            ("tmp".to_owned(), LayerEntry::Dir { mode: 0o1777 }),
        ]);
        let bill = bill_of_materials("catalogd", TREE, &files).unwrap();
        let library = |name: &str, license: &str| {
            json!({"type": "library", "name": name, "version": "1.0.2", "purl": format!("pkg:cargo/{name}@1.0.2"),
                "licenses": [{"expression": license}]})
        };
        assert_eq!(
            bill,
            json!({
                "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
                "metadata": {"component": {"type": "application", "name": "catalogd", "version": "0.1.0",
                    "licenses": [{"expression": "Apache-2.0"}]}},
                "components": [
                    library("serde", "MIT OR Apache-2.0"),
                    library("serde_derive", "MIT OR Apache-2.0"),
                    {"type": "file", "name": "/catalogd", "hashes": [{"alg": "SHA-256",
                        "content": "780d84b20d7ae7e6292919399348bdbf96025270136198083fc8a4da398b5ca9"}]},
                ],
            })
        );
    }

    #[test]
    fn invalid_crate_listing_is_rejected() {
        let refused =
            |name: &str, tree: &str| bill_of_materials(name, tree, &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(refused("olm", TREE), "the crate olm is not listed");
        let line = "no line of cargo tree --format '{p}|{l}': \"serde 1.0\"";
        assert_eq!(refused("catalogd", "serde 1.0"), line);
    }
}
