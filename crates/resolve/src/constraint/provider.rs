//! What can meet a requirement: bundles, and APIs that are served without one.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use olm_fbc::Property;
use olm_version::VersionRelease;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value as Json, json};

use super::decode::decode;
use super::predicate::Predicate;
use super::{GVK_REQUIRED, Gvk, RequirementFault};

/// One bundle with what it offers.
#[derive(Debug, Clone)]
pub struct Provider {
    extension: Option<String>,
    bundle: String,
    pub(super) external: bool,
    packages: Vec<(String, Option<VersionRelease>)>,
    gvks: BTreeSet<Gvk>,
    properties: Vec<Property>,
    /// The properties as rules see them; made when a rule first asks.
    facts: OnceLock<Arc<Json>>,
}

impl Provider {
    /// A bundle with its properties. Its identity comes from `olm.package`, its APIs from `olm.gvk`; properties that
    /// cannot be read offer nothing. `extension` is the name of the ClusterExtension that installed it, if one did.
    pub fn new(extension: Option<String>, bundle: String, properties: Vec<Property>) -> Self {
        let read = |kind| properties.iter().filter(move |property| property.kind == kind);
        let packages = read("olm.package").filter_map(package).collect();
        let gvks = read("olm.gvk").filter_map(gvk).collect();
        Self { extension, bundle, external: false, packages, gvks, properties, facts: OnceLock::new() }
    }

    /// An API that is served although no known bundle provides it. Shown as `group: …, version: …, kind: …`.
    pub fn external(gvk: Gvk) -> Self {
        let property = Property {
            kind: "olm.gvk".to_owned(),
            value: to_raw_value(&gvk).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        };
        Self { external: true, ..Self::new(None, gvk.to_string(), vec![property]) }
    }

    /// The name of the extension that installed the bundle.
    pub fn extension(&self) -> Option<&str> {
        self.extension.as_deref()
    }

    /// The bundle's name.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The package of the bundle.
    pub fn package(&self) -> Option<&str> {
        self.packages.first().map(|(name, _)| name.as_str())
    }

    /// The version of the bundle, unless it has none that can be read.
    pub fn version(&self) -> Option<&VersionRelease> {
        self.packages.first()?.1.as_ref()
    }

    /// The APIs of the bundle.
    pub fn gvks(&self) -> impl Iterator<Item = &Gvk> {
        self.gvks.iter()
    }

    /// The properties of the bundle.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// Names and versions of `olm.package` properties; a bundle has one.
    pub(super) fn packages(&self) -> &[(String, Option<VersionRelease>)] {
        &self.packages
    }

    pub(super) fn provides(&self, gvk: &Gvk) -> bool {
        self.gvks.contains(gvk)
    }

    /// The properties as rules see them: a list of `{type, value}`. One whose value is no JSON is an empty object, and so
    /// is one nested deeper than anything that is meant to be read.
    pub(super) fn facts(&self) -> &Json {
        self.facts.get_or_init(|| {
            let fact = |property: &Property| match property.parse::<Json>() {
                Ok(value) => json!({ "type": property.kind, "value": value }),
                Err(_) => json!({}),
            };
            Arc::new(Json::Array(self.properties.iter().map(fact).collect()))
        })
    }

    /// The name by which a user knows it.
    fn name(&self) -> &str {
        self.extension.as_deref().unwrap_or(&self.bundle)
    }
}

/// The identity in an `olm.package` property. An invalid release leaves the version usable: ranges ignore releases.
fn package(property: &Property) -> Option<(String, Option<VersionRelease>)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Package {
        package_name: String,
        #[serde(default)]
        version: Option<String>,
        #[serde(default)]
        release: Option<String>,
    }
    let Package { package_name, version, release } = property.parse().ok()?;
    let version = version.unwrap_or_default();
    let version = VersionRelease::parse(&version, release.as_deref())
        .or_else(|_| VersionRelease::parse(&version, None))
        .ok();
    Some((package_name, version))
}

/// The API in an `olm.gvk` property, which is written like one that is required.
fn gvk(property: &Property) -> Option<Gvk> {
    decode(GVK_REQUIRED, property.value.get()).ok()?.into_iter().next()?.gvk
}

/// What is there to meet requirements.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The installed bundles.
    pub providers: Vec<Provider>,
    /// The APIs that the API server serves by other means than these bundles. Those of the extension that is resolved
    /// must not be among them: an upgrade that drops one would go unnoticed.
    pub served: BTreeSet<Gvk>,
}

/// What is to be said of a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Something meets it.
    Met {
        /// Name of the extension, of the bundle where no extension is known, or the API where `external`.
        by: String,
        /// True if it is an API whose life nobody here manages.
        external: bool,
    },
    /// Nothing meets it.
    Unmet {
        /// True if several bundles together would, were each member of `all` met by some bundle and each member of
        /// `not` by none: what the product's prose can be read to say (docs/design/resolution.md#judged-dependencies).
        wide: bool,
    },
    /// It cannot be used.
    Invalid(RequirementFault),
}

impl Surroundings {
    pub(super) fn verdict(&self, predicate: &Predicate) -> Verdict {
        // Each is tested against the whole tree, so one that is named often must not be there often.
        let named: BTreeSet<&Gvk> = predicate.gvks().filter(|gvk| self.served.contains(*gvk)).collect();
        let external: Vec<_> = named.into_iter().cloned().map(Provider::external).collect();
        let mut providers: Vec<&Provider> = self.providers.iter().chain(&external).collect();
        providers.sort_by_key(|provider| (provider.external, provider.name()));
        let mut together = vec![false; predicate.size()];
        for provider in providers {
            let values = predicate.values(provider);
            together.iter_mut().zip(&values).for_each(|(any, one)| *any |= one);
            if predicate.holds(values) {
                return Verdict::Met { by: provider.name().to_owned(), external: provider.external };
            }
        }
        Verdict::Unmet { wide: predicate.holds(together) }
    }
}
