//! Builder of catalogs of bundles in the registry.

use serde_json::{Value, json};

use crate::Bundle;

/// Bundle whose image is in the registry.
#[derive(Clone, Debug)]
pub struct Published {
    /// Name of the package.
    pub package: String,
    /// Name of the bundle.
    pub name: String,
    /// Version of the bundle.
    pub version: String,
    /// Image reference by digest.
    pub image: String,
}

impl Published {
    pub(crate) fn new(bundle: &Bundle, image: String) -> Self {
        let (package, version) = (bundle.package.clone(), bundle.version.clone());
        Self { package, name: bundle.name(), version, image }
    }
}

/// Content of a catalog.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    metas: Vec<Value>,
}

impl Catalog {
    /// Adds a package with these bundles in a single channel `stable`, where each replaces the previous one.
    #[must_use]
    pub fn chain(self, bundles: &[Published]) -> Self {
        let Some(first) = bundles.first() else { return self };
        let before = std::iter::once(None).chain(bundles.iter().map(Some));
        let entry = |(bundle, before): (&Published, Option<&Published>)| match before {
            Some(before) => json!({"name": bundle.name, "replaces": before.name}),
            None => json!({"name": bundle.name}),
        };
        let entries = bundles.iter().zip(before).map(entry).collect();
        let start = self.package(&first.package).channel(&first.package, "stable", entries);
        bundles.iter().fold(start, Self::bundle)
    }

    /// Adds a package whose default channel is `stable`.
    #[must_use]
    pub fn package(mut self, name: &str) -> Self {
        self.metas.push(json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"}));
        self
    }

    /// Adds a channel. `entries` have the format of `olm.channel`.
    #[must_use]
    pub fn channel(mut self, package: &str, name: &str, entries: Vec<Value>) -> Self {
        self.metas
            .push(json!({"schema": "olm.channel", "package": package, "name": name, "entries": entries}));
        self
    }

    /// Adds a bundle to its package.
    #[must_use]
    pub fn bundle(self, bundle: &Published) -> Self {
        let package = json!({"packageName": bundle.package, "version": bundle.version});
        self.meta(json!({"schema": "olm.bundle", "package": bundle.package, "name": bundle.name,
            "image": bundle.image, "properties": [{"type": "olm.package", "value": package}]}))
    }

    /// Adds any other object, such as `olm.deprecations`.
    #[must_use]
    pub fn meta(mut self, meta: Value) -> Self {
        self.metas.push(meta);
        self
    }

    /// Content as text, one JSON object per line.
    #[must_use]
    pub fn text(&self) -> String {
        self.metas.iter().map(|meta| format!("{meta}\n")).collect()
    }
}
