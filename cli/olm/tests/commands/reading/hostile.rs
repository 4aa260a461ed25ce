//! Catalogs with control characters in names and texts.

use olm_api::text::is_hidden;
use serde_json::json;

use crate::fixture::{Ran, olm_in};

/// Two sequences that clear a terminal, a right-to-left override, and DEL.
const HOSTILE: &str = "\u{1b}[2J\u{9b}2J\u{202e}\u{7f}";

#[test]
fn hostile_names_and_descriptions_are_escaped_in_every_output() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = folder.path().join("catalog");
    std::fs::create_dir(&catalog).unwrap();
    let name = format!("lamp{HOSTILE}");
    let bundle = format!("{name}.v1.0.0");
    let metas = [
        json!({"schema": "olm.package", "name": name, "defaultChannel": HOSTILE, "description": HOSTILE}),
        json!({"schema": "olm.channel", "package": name, "name": HOSTILE, "entries": [{"name": bundle}]}),
        json!({"schema": "olm.bundle", "package": name, "name": bundle, "image": "r.example/lamp:v1", "properties": [
            {"type": "olm.package", "value": {"packageName": name, "version": "1.0.0"}}]}),
    ];
    std::fs::write(catalog.join(format!("{HOSTILE}.json")), metas.map(|meta| meta.to_string()).join("\n"))
        .unwrap();
    let commands: &[&[&str]] = &[
        &["catalog", "ls", "catalog"],
        &["catalog", "ls", "catalog", "-o", "json"],
        &["catalog", "ls", "catalog", "-o", "yaml"],
        &["catalog", "show", "catalog", &name],
        &["catalog", "show", "catalog", &name, "-o", "yaml"],
        &["catalog", "bundles", "catalog", &name],
        &["catalog", "channels", "catalog", &name, "-o", "yaml"],
        &["catalog", "graph", "catalog", &name],
        &["catalog", "graph", "catalog", &name, "--format", "mermaid"],
        &["catalog", "graph", "catalog", &name, "--format", "svg"],
        &["catalog", "render", "catalog"],
        &["catalog", "render", "catalog", "-o", "yaml"],
        &["validate", "catalog"],
        &["validate", "catalog", "-o", "json"],
        &["resolve", &name, "--catalog", "catalog", "--explain"],
    ];
    let said = |args: &[&str]| -> String {
        let ran: Ran = olm_in(folder.path(), args).output().unwrap().into();
        let said = ran.stdout + &ran.stderr;
        assert!(!said.is_empty() && !said.contains(is_hidden), "{args:?}: {said:?}");
        said
    };
    for args in commands {
        said(args);
    }
    std::fs::write(catalog.join(format!("{HOSTILE}.json")), "[").unwrap();
    for args in [["catalog", "ls", "catalog"], ["catalog", "render", "catalog"]] {
        assert!(said(&args).contains("\\u{1b}[2J\\u{9b}2J\\u{202e}\\u{7f}.json:"), "{args:?}");
    }
}
