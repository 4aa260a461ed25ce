//! Providers that can meet a requirement: bundles, and APIs that are served without one.

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

/// Bundle with its package, version, APIs and properties.
#[derive(Debug, Clone)]
pub struct Provider {
    extension: Option<String>,
    bundle: String,
    pub(super) external: bool,
    packages: Vec<(String, Option<VersionRelease>)>,
    gvks: BTreeSet<Gvk>,
    properties: Vec<Property>,
    /// Properties as input of rules, created on first use.
    facts: OnceLock<Arc<Json>>,
}

impl Provider {
    /// Creates a provider from the properties of a bundle. Its identity comes from `olm.package`, its APIs from
    /// `olm.gvk`. Unreadable properties are ignored. `extension` is the name of the ClusterExtension that installed
    /// it, if any.
    pub fn new(extension: Option<String>, bundle: String, properties: Vec<Property>) -> Self {
        let read = |kind| properties.iter().filter(move |property| property.kind == kind);
        let packages = read("olm.package").filter_map(package).collect();
        let gvks = read("olm.gvk").filter_map(gvk).collect();
        Self { extension, bundle, external: false, packages, gvks, properties, facts: OnceLock::new() }
    }

    /// Creates a provider for an API that is served although no known bundle provides it. Displayed as `group: …,
    /// version: …, kind: …`.
    pub fn external(gvk: Gvk) -> Self {
        let property = Property {
            kind: "olm.gvk".to_owned(),
            value: to_raw_value(&gvk).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        };
        Self { external: true, ..Self::new(None, gvk.to_string(), vec![property]) }
    }

    /// Name of the extension that installed the bundle.
    pub fn extension(&self) -> Option<&str> {
        self.extension.as_deref()
    }

    /// Name of the bundle.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// Package of the bundle.
    pub fn package(&self) -> Option<&str> {
        self.packages.first().map(|(name, _)| name.as_str())
    }

    /// Version of the bundle. `None` if it is missing or unreadable.
    pub fn version(&self) -> Option<&VersionRelease> {
        self.packages.first()?.1.as_ref()
    }

    /// APIs of the bundle.
    pub fn gvks(&self) -> impl Iterator<Item = &Gvk> {
        self.gvks.iter()
    }

    /// Properties of the bundle.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// Names and versions of `olm.package` properties. A valid bundle has one.
    pub(super) fn packages(&self) -> &[(String, Option<VersionRelease>)] {
        &self.packages
    }

    pub(super) fn provides(&self, gvk: &Gvk) -> bool {
        self.gvks.contains(gvk)
    }

    /// Properties as input of rules: a list of `{type, value}`. A property whose value is not JSON, or is nested too
    /// deep, is an empty object.
    pub(super) fn facts(&self) -> &Json {
        self.facts.get_or_init(|| {
            let fact = |property: &Property| match property.parse::<Json>() {
                Ok(value) => json!({ "type": property.kind, "value": value }),
                Err(_) => json!({}),
            };
            Arc::new(Json::Array(self.properties.iter().map(fact).collect()))
        })
    }

    /// Name for users.
    fn name(&self) -> &str {
        self.extension.as_deref().unwrap_or(&self.bundle)
    }
}

/// Package and version in an `olm.package` property. An invalid release leaves the version usable: ranges ignore
/// releases.
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

/// API in an `olm.gvk` property, which has the format of a required one.
fn gvk(property: &Property) -> Option<Gvk> {
    decode(GVK_REQUIRED, property.value.get()).ok()?.first_mut()?.take_gvk()
}

/// Installed bundles and served APIs that can meet requirements.
#[derive(Debug, Clone, Default)]
pub struct AvailableProviders {
    /// Installed bundles.
    pub providers: Vec<Provider>,
    /// APIs that the API server serves without these bundles. Must not contain those of the extension to resolve: an
    /// upgrade that drops one would go unnoticed.
    pub served: BTreeSet<Gvk>,
}

/// Result of the evaluation of a requirement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequirementVerdict {
    /// A provider meets it.
    Met {
        /// Name of the extension, of the bundle where no extension is known, or of the API where `external`.
        by: String,
        /// `true` for an API that no managed extension defines.
        external: bool,
    },
    /// No provider meets it.
    Unmet {
        /// `true` if several bundles together would meet it, with each member of `all` met by some bundle and each
        /// member of `not` by none. The product's documentation allows this reading
        /// (docs/design/resolution.md#judged-dependencies).
        wide: bool,
    },
    /// The requirement is invalid.
    Invalid(RequirementFault),
}

impl AvailableProviders {
    pub(super) fn verdict(&self, predicate: &Predicate) -> RequirementVerdict {
        // Each API is tested against the whole tree, so repeated ones are tested once.
        let named: BTreeSet<&Gvk> = predicate.gvks().filter(|gvk| self.served.contains(*gvk)).collect();
        let external: Vec<_> = named.into_iter().cloned().map(Provider::external).collect();
        let mut providers: Vec<&Provider> = self.providers.iter().chain(&external).collect();
        providers.sort_by_key(|provider| (provider.external, provider.name()));
        let mut together = vec![false; predicate.size()];
        for provider in providers {
            let values = predicate.values(provider);
            together.iter_mut().zip(&values).for_each(|(any, one)| *any |= one);
            if predicate.holds(values) {
                return RequirementVerdict::Met {
                    by: provider.name().to_owned(),
                    external: provider.external,
                };
            }
        }
        RequirementVerdict::Unmet { wide: predicate.holds(together) }
    }
}
