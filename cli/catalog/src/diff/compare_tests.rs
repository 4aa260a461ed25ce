use olm_resolve::Indexing;

use super::super::text::table;
use super::*;

/// Package `p` with these channels, each `name: entry, entry`. An entry is `version<replaced!skipped?range`. Bundles
/// are those of the entries, unless `without` names their version.
fn packages(default: &str, channels: &[&str], without: &[&str], more: &[&str]) -> Packages {
    let mut lines = vec![format!(r#"{{"schema":"olm.package","name":"p","defaultChannel":"{default}"}}"#)];
    let mut versions = BTreeSet::new();
    for channel in channels {
        let (name, entries) = channel.split_once(": ").unwrap();
        let entries: Vec<_> = entries
            .split(", ")
            .map(|text| {
                let (text, range) = text.split_once('?').unwrap_or((text, ""));
                let mut parts = text.split('!');
                let (version, replaces) = parts.next().map(|t| t.split_once('<').unwrap_or((t, ""))).unwrap();
                versions.insert(version);
                let named =
                    |version: &str| if version.is_empty() { String::new() } else { format!("p.v{version}") };
                let skips: Vec<_> = parts.map(named).collect();
                serde_json::json!({
                    "name": named(version), "replaces": named(replaces), "skips": skips, "skipRange": range,
                })
            })
            .collect();
        let channel =
            serde_json::json!({ "schema": "olm.channel", "package": "p", "name": name, "entries": entries });
        lines.push(channel.to_string());
    }
    for version in versions.into_iter().filter(|version| !without.contains(version)) {
        lines.push(bundle(version, &format!("r.example/p:{version}"), &[]));
    }
    lines.extend(more.iter().map(ToString::to_string));
    let lines: Vec<_> = lines.into_iter().map(String::into_bytes).collect();
    let package = CatalogPackage::new("c", "p", &lines, Indexing::default()).unwrap();
    Packages::from([("p".to_owned(), package)])
}

fn bundle(version: &str, image: &str, related: &[&str]) -> String {
    let related: Vec<_> =
        related.iter().map(|image| serde_json::json!({ "name": "", "image": image })).collect();
    serde_json::json!({
        "schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": image,
        "properties": [{ "type": "olm.package", "value": { "packageName": "p", "version": version } }],
        "relatedImages": related,
    })
    .to_string()
}

fn deprecations(entries: &[(&str, &str)]) -> String {
    let entries: Vec<_> = entries
        .iter()
        .map(|(schema, message)| serde_json::json!({ "reference": { "schema": schema }, "message": message }))
        .collect();
    serde_json::json!({ "schema": "olm.deprecations", "package": "p", "entries": entries }).to_string()
}

/// Rows of the table without the package, with single blanks.
fn rows(old: &Packages, new: &Packages) -> Vec<String> {
    let text = table(&compare(("a", old), ("b", new)));
    let row = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    text.lines().skip(1).map(row).collect()
}

fn simple(channels: &[&str]) -> Packages {
    packages("c", channels, &[], &[])
}

#[test]
fn equal_catalogs_have_no_differences() {
    let one = simple(&["c: 1.0.0, 1.1.0<1.0.0"]);
    let diff = compare(("a", &one), ("b", &one));
    assert!(diff.empty);
    assert_eq!(table(&diff), "no differences\n");
    // A changed order of entries changes nothing.
    let other = simple(&["c: 1.1.0<1.0.0, 1.0.0"]);
    assert!(compare(("a", &one), ("b", &other)).empty);
}

#[test]
fn package_of_one_catalog_is_added_or_removed() {
    let one = simple(&["c: 1.0.0"]);
    assert_eq!(rows(&Packages::new(), &one), ["added package p -"]);
    assert_eq!(rows(&one, &Packages::new()), ["removed package p -"]);
}

#[test]
fn bundles_channels_entries_and_edges_are_compared() {
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (
            &["c: 1.0.0"],
            &["c: 1.0.0, 1.1.0<1.0.0"],
            &["added bundle p.v1.1.0 1.1.0", "added edges - 1 of added bundles"],
        ),
        (&["c: 1.0.0"], &["c: 1.0.0", "d: 1.0.0"], &["added channel d -"]),
        (
            &["c: 1.0.0, 1.1.0", "d: 1.0.0"],
            &["c: 1.0.0, 1.1.0", "d: 1.0.0, 1.1.0"],
            &["added entry p.v1.1.0 d"],
        ),
        (&["c: 1.0.0, 1.1.0"], &["c: 1.0.0, 1.1.0<1.0.0"], &["added edge p.v1.0.0 -> p.v1.1.0"]),
        // The edge is of another field. What an extension may do is the same.
        (&["c: 1.0.0, 1.1.0<1.0.0"], &["c: 1.0.0, 1.1.0?>=1.0.0 <1.1.0"], &[]),
        (
            &["c: 1.0.0, 1.1.0!1.0.0, 1.2.0<1.1.0!1.0.0"],
            &["c: 1.0.0, 1.1.0!1.0.0, 1.2.0<1.1.0"],
            &["removed edge p.v1.0.0 -> p.v1.2.0"],
        ),
    ];
    for (old, new, expected) in cases {
        assert_eq!(rows(&simple(old), &simple(new)), expected, "{old:?} {new:?}");
    }
}

#[test]
fn catalog_diff_reports_bundle_without_upgrade_as_stranded() {
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        // The edge is lost, and the bundle is still offered.
        (&["c: 1.0.0, 1.1.0<1.0.0"], &["c: 1.0.0, 1.1.0"], &["p.v1.0.0 no upgrade; before: p.v1.1.0"]),
        // Neither offered, nor followed.
        (
            &["c: 1.0.0, 1.1.0<1.0.0"],
            &["c: 1.1.0"],
            &["p.v1.0.0 no upgrade, and not offered; before: p.v1.1.0"],
        ),
        // The newest bundle is withdrawn.
        (
            &["c: 1.0.0, 1.1.0<1.0.0"],
            &["c: 1.0.0"],
            &["p.v1.0.0 no upgrade; before: p.v1.1.0", "p.v1.1.0 no upgrade, and not offered"],
        ),
        // No longer offered, but followed by a lower version.
        (&["c: 1.0.0, 1.1.0<1.0.0"], &["c: 1.0.0!1.1.0"], &["p.v1.0.0 no upgrade; before: p.v1.1.0"]),
        // A removed bundle that another one follows is fine.
        (&["c: 1.0.0, 1.1.0<1.0.0"], &["c: 1.1.0<1.0.0"], &[]),
        (&["c: 1.0.0, 1.1.0<1.0.0"], &["c: 1.1.0?<1.1.0"], &[]),
    ];
    for (old, new, expected) in cases {
        let mut rows = rows(&simple(old), &simple(new));
        rows.retain(|row| row.starts_with("stranded bundle "));
        let mut found: Vec<_> = rows.iter().map(|row| row.replace("stranded bundle ", "")).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{old:?} {new:?}");
    }
}

#[test]
fn changed_bundle_default_channel_and_deprecation_are_reported() {
    let with = |default: &str, more: &[&str]| packages(default, &["c: 1.0.0"], &["1.0.0"], more);
    let old = with("c", &[&bundle("1.0.0", "r.example/p@sha256:1", &["r.example/x:1"])]);
    let new = with(
        "d",
        &[
            &bundle("1.0.0", "r.example/p@sha256:2", &["r.example/x:2"]),
            &deprecations(&[("olm.package", "use q\ninstead")]),
        ],
    );
    assert_eq!(
        rows(&old, &new),
        [
            "changed default channel - c -> d",
            "changed image p.v1.0.0 r.example/p@sha256:1 -> r.example/p@sha256:2",
            "changed relatedImages p.v1.0.0 r.example/x:1 -> r.example/x:2",
            "added deprecation p use q instead",
        ]
    );
    assert_eq!(rows(&new, &old)[3], "removed deprecation p use q instead");
}
