//! Table of the differences between two catalogs.

use std::collections::BTreeSet;

use olm_cli_core::output::Table;

use super::compare::{CatalogDiff, Delta, Edge, PackageDiff};

/// One row per difference. Edges of bundles that one catalog lacks are counted.
pub(super) fn table(diff: &CatalogDiff) -> String {
    if diff.empty {
        return "no differences\n".to_owned();
    }
    let mut rows = Rows(Table::new(&["PACKAGE", "CHANGE", "KIND", "NAME", "DETAIL"]));
    for (change, names) in sides(&diff.names) {
        names.iter().for_each(|name| rows.add(name, change, "package", name, ""));
    }
    diff.changed_packages.iter().for_each(|package| rows.add_package(package));
    rows.0.text()
}

/// Both sides of `delta`, with the word for each.
fn sides<T>(delta: &Delta<T>) -> [(&'static str, &[T]); 2] {
    [("added", &delta.added), ("removed", &delta.removed)]
}

struct Rows(Table);

impl Rows {
    fn add(&mut self, package: &str, change: &str, kind: &str, name: &str, detail: &str) {
        self.0.row([package, change, kind, name, detail]);
    }

    fn add_package(&mut self, package: &PackageDiff) {
        let name = package.name.as_str();
        for stranded in &package.stranded {
            let offer = if stranded.offered { "no upgrade" } else { "no upgrade, and not offered" };
            let next = stranded.next.as_deref().map(|next| format!("; before: {next}")).unwrap_or_default();
            self.add(name, "stranded", "bundle", &stranded.bundle, &format!("{offer}{next}"));
        }
        if let Some(change) = &package.default_channel {
            let detail = format!("{} -> {}", change.old, change.new);
            self.add(name, "changed", "default channel", "", &detail);
        }
        for (change, channels) in sides(&package.channels) {
            channels.iter().for_each(|channel| self.add(name, change, "channel", channel, ""));
        }
        for (change, bundles) in sides(&package.bundles) {
            for bundle in bundles {
                self.add(name, change, "bundle", &bundle.name, bundle.version.as_deref().unwrap_or_default());
            }
        }
        for changed in &package.changed_bundles {
            let shown = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
            let detail = format!("{} -> {}", shown(&changed.change.old), shown(&changed.change.new));
            self.add(name, "changed", changed.field, &changed.name, &detail);
        }
        for (change, entries) in sides(&package.entries) {
            entries.iter().for_each(|entry| self.add(name, change, "entry", &entry.bundle, &entry.channel));
        }
        self.add_edges(package);
        for (change, deprecations) in sides(&package.deprecations) {
            for deprecated in deprecations {
                let of = if deprecated.name.is_empty() { name } else { &deprecated.name };
                self.add(name, change, "deprecation", of, &deprecated.message);
            }
        }
    }

    fn add_edges(&mut self, package: &PackageDiff) {
        let single: BTreeSet<_> =
            package.bundles.added.iter().chain(&package.bundles.removed).map(|bundle| &bundle.name).collect();
        let is_shared = |edge: &&Edge| !single.contains(&edge.from) && !single.contains(&edge.to);
        for (change, edges) in sides(&package.edges) {
            for edge in edges.iter().filter(is_shared) {
                self.add(&package.name, change, "edge", &edge.from, &format!("-> {}", edge.to));
            }
            let rest = edges.len() - edges.iter().filter(is_shared).count();
            if rest > 0 {
                let detail = format!("{rest} of {change} bundles");
                self.add(&package.name, change, "edges", "", &detail);
            }
        }
    }
}
