//! Builders of catalogs and requests, and checks for every resolution.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "a test; each file uses a part of it")]

use std::sync::Arc;

use olm_fbc::PackageContent;
use olm_resolve::{
    Catalog, CatalogError, Explanation, Fate, Indexing, Installed, PackageIndex, Request, ResolveError,
    Resolved, Rules, UpgradePolicy, explain, resolve,
};
use serde_json::{Value, json};

/// Objects of package `demo`. Bundles are named `demo.v<version>`.
#[derive(Clone, Default)]
pub(crate) struct Content(Vec<Value>);

impl Content {
    /// Adds a channel and, for entries with more than a name, their bundles.
    pub(crate) fn channel(mut self, name: &str, entries: &[Value]) -> Self {
        for entry in entries {
            let name = entry["name"].as_str().unwrap();
            self = self.bundle(name.strip_prefix("demo.v").unwrap(), &[]);
        }
        self.object(json!({"schema": "olm.channel", "package": "demo", "name": name, "entries": entries}))
    }

    /// Adds a bundle with property types beyond its version.
    pub(crate) fn bundle(self, version: &str, properties: &[&str]) -> Self {
        self.bundle_with(version, properties.iter().map(|kind| (*kind, json!({}))))
    }

    /// Adds a bundle with properties beyond its version. Of several with the same version the last is used.
    pub(crate) fn bundle_with<'a>(
        self,
        version: &str,
        properties: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Self {
        let mut all =
            vec![json!({"type": "olm.package", "value": {"packageName": "demo", "version": version}})];
        all.extend(properties.into_iter().map(|(kind, value)| json!({"type": kind, "value": value})));
        let name = format!("demo.v{version}");
        let image = format!("reg.example/{name}");
        self.object(
            json!({"schema": "olm.bundle", "package": "demo", "name": name, "image": image, "properties": all}),
        )
    }

    pub(crate) fn deprecated(self, versions: &[&str]) -> Self {
        let entry = |version: &&str| json!({"reference": {"schema": "olm.bundle", "name": format!("demo.v{version}")}, "message": "old"});
        let entries: Vec<_> = versions.iter().map(entry).collect();
        self.object(json!({"schema": "olm.deprecations", "package": "demo", "entries": entries}))
    }

    pub(crate) fn default_channel(self, name: &str) -> Self {
        self.object(json!({"schema": "olm.package", "name": "demo", "defaultChannel": name}))
    }

    pub(crate) fn object(mut self, object: Value) -> Self {
        self.0.push(object);
        self
    }

    pub(crate) fn index(&self, indexing: Indexing) -> Option<Arc<PackageIndex>> {
        let lines: Vec<_> = self.0.iter().map(|object| object.to_string().into_bytes()).collect();
        let content = PackageContent::from_metas("demo", lines.iter().map(Vec::as_slice)).unwrap();
        (!content.is_empty()).then(|| Arc::new(PackageIndex::new(&content, indexing)))
    }

    pub(crate) fn at(&self, name: &str, priority: i32) -> Catalog {
        let indexing = Indexing { properties: true, ..Indexing::default() };
        Catalog { name: name.to_owned(), priority, package: Ok(self.index(indexing)) }
    }
}

/// Content with one bundle without a channel.
pub(crate) fn one(version: &str) -> Content {
    Content::default().bundle(version, &[])
}

/// Unavailable catalog.
pub(crate) fn down(name: &str, priority: i32) -> Catalog {
    Catalog { name: name.to_owned(), priority, package: Err(CatalogError::NotServing(name.to_owned())) }
}

pub(crate) fn entry(version: &str) -> Value {
    json!({"name": format!("demo.v{version}")})
}

pub(crate) fn replacing(version: &str, replaced: &str) -> Value {
    json!({"name": format!("demo.v{version}"), "replaces": format!("demo.v{replaced}")})
}

pub(crate) fn skipping(version: &str, range: &str) -> Value {
    json!({"name": format!("demo.v{version}"), "skipRange": range})
}

/// Request: version, channels, installed version, policy, rules.
#[derive(Default, Clone)]
pub(crate) struct Wish<'a> {
    version: Option<&'a str>,
    channels: Vec<String>,
    installed: Option<&'a str>,
    self_certified: bool,
    rules: Rules<'a>,
}

pub(crate) fn wish<'a>() -> Wish<'a> {
    Wish::default()
}

impl<'a> Wish<'a> {
    pub(crate) fn version(mut self, version: &'a str) -> Self {
        self.version = Some(version);
        self
    }

    pub(crate) fn channels(mut self, channels: &[&str]) -> Self {
        self.channels = channels.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    pub(crate) fn installed(mut self, version: &'a str) -> Self {
        self.installed = Some(version);
        self
    }

    pub(crate) fn self_certified(mut self) -> Self {
        self.self_certified = true;
        self
    }

    pub(crate) fn rules(mut self, rules: Rules<'a>) -> Self {
        self.rules = rules;
        self
    }

    pub(crate) fn on<T>(&self, act: impl FnOnce(&Request<'_>) -> T) -> T {
        let name = self.installed.map(|version| format!("demo.v{version}"));
        act(&Request {
            package: "demo",
            channels: &self.channels,
            version: self.version,
            policy: if self.self_certified { UpgradePolicy::SelfCertified } else { UpgradePolicy::default() },
            installed: name.as_deref().zip(self.installed).map(|(name, version)| Installed {
                name,
                version,
                release: None,
            }),
            rules: self.rules,
        })
    }

    /// Result of the resolution. Checks that it does not depend on the order of the catalogs and is explained.
    pub(crate) fn resolve(&self, catalogs: &[Catalog]) -> Result<Resolved, ResolveError> {
        self.on(|request| {
            let result = resolve(request, catalogs);
            let reversed: Vec<_> = catalogs.iter().rev().cloned().collect();
            assert_eq!(
                answer(&result),
                answer(&resolve(request, &reversed)),
                "the order of catalogs must not matter"
            );
            check_explanation(request, catalogs, &result);
            result
        })
    }

    pub(crate) fn explain(&self, catalogs: &[Catalog]) -> Explanation {
        self.on(|request| explain(request, catalogs))
    }

    /// `<version> from <catalog>`, or the error.
    pub(crate) fn of(&self, catalogs: &[Catalog]) -> String {
        answer(&self.resolve(catalogs))
    }

    /// The version, or the error.
    pub(crate) fn from(&self, content: &Content) -> String {
        let answer = self.of(&[content.at("main", 0)]);
        answer.strip_suffix(" from main").unwrap_or(&answer).to_owned()
    }
}

fn answer(result: &Result<Resolved, ResolveError>) -> String {
    match result {
        Ok(resolved) => format!("{} from {}", resolved.version.shown(false).0, resolved.catalog),
        Err(error) => error.to_string(),
    }
}

/// Checks that the explanation agrees with the resolution: the same result, every bundle of every catalog once, and
/// one chosen bundle if there is a choice. Also checks that it does not depend on the order of the catalogs.
pub(crate) fn check_explanation(
    request: &Request<'_>,
    catalogs: &[Catalog],
    result: &Result<Resolved, ResolveError>,
) {
    let explanation = explain(request, catalogs);
    let chosen = explanation.chosen.as_ref().map(|chosen| (&chosen.catalog, &chosen.bundle, &chosen.image));
    assert_eq!(
        chosen,
        result.as_ref().ok().map(|resolved| (&resolved.catalog, &resolved.bundle, &resolved.image))
    );
    assert_eq!(explanation.error, result.as_ref().err().map(ToString::to_string));

    let mut all_chosen = Vec::new();
    for catalog in catalogs {
        let explained = explanation.catalogs.iter().find(|explained| explained.name == catalog.name).unwrap();
        let offers = catalog.package.iter().flatten().flat_map(|package| package.offers());
        let names: Vec<_> = explained.bundles.iter().map(|bundle| bundle.bundle.as_str()).collect();
        assert_eq!(names, offers.map(olm_resolve::Offer::name).collect::<Vec<_>>());
        let is_chosen = |bundle: &&olm_resolve::OfferExplanation| bundle.fate == Fate::Chosen;
        all_chosen
            .extend(explained.bundles.iter().filter(is_chosen).map(|bundle| (&catalog.name, &bundle.bundle)));
    }
    assert_eq!(explanation.catalogs.len(), catalogs.len());
    assert_eq!(
        all_chosen,
        chosen.map(|(catalog, bundle, _)| (catalog, bundle)).into_iter().collect::<Vec<_>>()
    );

    let held = result.as_ref().map_or_else(ResolveError::held, |resolved| &resolved.held);
    for held in held {
        let mut bundles =
            explanation.catalogs.iter().filter(|c| c.name == held.catalog).flat_map(|c| &c.bundles);
        let bundle = bundles.find(|bundle| bundle.bundle == held.bundle).unwrap();
        assert_eq!(bundle.to_string(), held.to_string());
    }
    let reversed: Vec<_> = catalogs.iter().rev().cloned().collect();
    let text = |explanation: &Explanation| serde_json::to_string(explanation).unwrap();
    assert_eq!(text(&explanation), text(&explain(request, &reversed)));
}
