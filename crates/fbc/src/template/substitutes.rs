//! `olm.template.substitutes`: a catalog, and images of bundles that take the place of others in its upgrade graph
//! (docs/design/cli.md#catalog-templates).

use std::collections::{BTreeMap, BTreeSet};

use olm_version::{Release, Version, VersionRelease, quote};
use serde_json::{json, value::RawValue};

use super::TemplateError;
use crate::{
    Channel, ChannelEntry, Meta, PROPERTY_CSV_METADATA, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE,
    json::{self, item_fields, text_field},
    migrate::bundled_csv,
    shape::{Shape, Structure, always, if_any, structure},
    validate::{Fault, check_metas},
};

pub(super) const SCHEMA: &str = "olm.template.substitutes";
/// Annotation of bundles whose version has its release in the build metadata.
const SUBSTITUTES_FOR: &str = "olm.substitutesFor";

const SUBSTITUTION: Structure =
    structure("substitutes.Substitute", &[if_any(&["name", "base"], Shape::Text)]);

const TEMPLATE: Structure = structure(
    "substitutes.SubstitutesTemplateData",
    &[
        always(&["schema"], Shape::Text),
        always(&["entries"], Shape::List(&Shape::Any)),
        always(&["substitutions"], Shape::Objects(&SUBSTITUTION)),
    ],
);

/// Parsed template.
///
/// ```
/// use olm_fbc::template::SubstitutesTemplate;
///
/// let text = "schema: olm.template.substitutes\nentries: []\n\
///             substitutions: [{name: 'registry.example/demo:v1-2', base: demo.v1}]\n";
/// let template = SubstitutesTemplate::parse(text.as_bytes())?;
/// assert!(template.images().contains("registry.example/demo:v1-2"));
/// # Ok::<(), olm_fbc::template::TemplateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubstitutesTemplate {
    entries: Vec<Meta>,
    substitutions: Vec<Substitution>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Substitution {
    /// Image of the bundle that takes the place of `base`.
    image: String,
    /// Name of a bundle.
    base: String,
}

impl SubstitutesTemplate {
    /// Parses a template from YAML or JSON.
    ///
    /// # Errors
    /// The text is not such a template, its entries are not a valid catalog, or a substitution is incomplete or repeats
    /// another.
    pub fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let refused = |problem: String| TemplateError::Substitutes(problem);
        let not_read = |problem: String| refused(format!("unable to parse template: {problem}"));
        let value = super::document(text, &TEMPLATE, SCHEMA).map_err(not_read)?;
        let members = json::members(&value).unwrap_or_default();
        let entries = super::entries(&members).map_err(not_read)?;
        check_metas(&entries).map_err(|fault| {
            refused(match fault {
                Fault::Load(why) => format!("unable to create declarative config from entries: {why}"),
                Fault::Model(why) => format!("entries are not valid FBC: {why}"),
            })
        })?;
        let substitution = |value: &RawValue| {
            let members = json::members(value).unwrap_or_default();
            Substitution { image: text_field(&members, "name"), base: text_field(&members, "base") }
        };
        let substitutions: Vec<_> = item_fields(&members, "substitutions").map(substitution).collect();
        check_substitutions(&substitutions).map_err(refused)?;
        Ok(Self { entries, substitutions })
    }

    /// Images of the substitutes, sorted and unique.
    pub fn images(&self) -> BTreeSet<&str> {
        self.substitutions.iter().map(|substitution| substitution.image.as_str()).collect()
    }

    /// Expands the template to a catalog. `bundles` holds the `olm.bundle` object of each image of the template.
    ///
    /// In every channel with the base, the substitute gets the edges of the base and skips it. Entries that replaced
    /// or skipped the base then replace or skip the substitute.
    ///
    /// # Errors
    /// An image is missing in `bundles`, a base does not exist or is not lower than its substitute, or the result is
    /// no valid catalog.
    pub fn expand(&self, bundles: &BTreeMap<String, Meta>) -> Result<Vec<Meta>, TemplateError> {
        let mut metas = self.entries.clone();
        for substitution in &self.substitutions {
            substitution
                .apply(&mut metas, bundles)
                .map_err(|problem| TemplateError::Substitutes(substitution.failed(&problem)))?;
        }
        Ok(metas)
    }
}

/// Checks everything about the substitutions that needs no bundle.
fn check_substitutions(substitutions: &[Substitution]) -> Result<(), String> {
    let mut bases: BTreeSet<&str> = BTreeSet::new();
    let mut images: BTreeMap<&str, &str> = BTreeMap::new();
    for substitution in substitutions {
        let Substitution { image, base } = substitution;
        if !bases.insert(base) {
            return Err(format!("cannot reuse the same substitution base {}", quote(base)));
        }
        if let Some(other) = images.insert(image, base) {
            let (image, other, base) = (quote(image), quote(other), quote(base));
            return Err(format!(
                "cannot reuse the same substitution {image} for different bases ({other} and {base})"
            ));
        }
        let fault = match (image.as_str(), base.as_str()) {
            ("", _) => "substitution name cannot be empty",
            (_, "") => "substitution base cannot be empty",
            (image, base) if image == base => "substitution name and base cannot be the same",
            _ => continue,
        };
        return Err(substitution.failed(fault));
    }
    Ok(())
}

impl Substitution {
    fn failed(&self, problem: &str) -> String {
        let (base, image) = (quote(&self.base), quote(&self.image));
        format!("error processing substitution {base} -> {image}: {problem}")
    }

    fn apply(&self, metas: &mut Vec<Meta>, bundles: &BTreeMap<String, Meta>) -> Result<(), String> {
        let substitute = super::rendered(&self.image, bundles)?;
        let (image, base) = (quote(&self.image), quote(&self.base));
        let of_substitute = version_release(substitute).map_err(|problem| {
            format!("failed to get VersionRelease for substitute bundle {image}: {problem}")
        })?;
        let is_base = |meta: &&Meta| meta.schema == SCHEMA_BUNDLE && meta.name == self.base;
        let found = metas
            .iter()
            .find(is_base)
            .ok_or_else(|| format!("base bundle {base} does not exist in catalog"))?;
        let of_base = version_release(found)
            .map_err(|problem| format!("failed to get VersionRelease for base bundle {base}: {problem}"))?;
        if of_base >= of_substitute {
            return Err(format!("base bundle {base} is not less than substitute bundle {image}"));
        }
        let package = found.package.clone();
        for meta in metas.iter_mut().filter(|meta| meta.schema == SCHEMA_CHANNEL && meta.package == package) {
            let channel: Channel =
                serde_json::from_slice(&meta.blob).map_err(|problem| format!("parse channel: {problem}"))?;
            let entries = substituted(channel.entries, &self.base, &substitute.name);
            let changed = meta.with_field("entries", &json!(entries).to_string());
            *meta = changed.map_err(|problem| format!("write channel: {problem}"))?;
        }
        metas.push(substitute.clone());
        check_metas(metas).map_err(|fault| {
            let (Fault::Load(why) | Fault::Model(why)) = fault;
            format!("resulting config is not valid FBC: {why}")
        })
    }
}

/// Entries of a channel after `substitute` took the place of `base`.
fn substituted(mut entries: Vec<ChannelEntry>, base: &str, substitute: &str) -> Vec<ChannelEntry> {
    let mut added = Vec::new();
    for entry in entries.iter_mut().filter(|entry| entry.name == base) {
        let bare = ChannelEntry { name: base.to_owned(), ..ChannelEntry::default() };
        let mut new = std::mem::replace(entry, bare);
        substitute.clone_into(&mut new.name);
        new.skips.push(base.to_owned());
        added.push(new);
    }
    for entry in &mut entries {
        if entry.replaces == base {
            substitute.clone_into(&mut entry.replaces);
            entry.skips.push(base.to_owned());
        } else if entry.skips.iter().any(|skip| skip == base) {
            entry.skips.retain(|skip| skip != base);
            entry.skips.push(substitute.to_owned());
        }
    }
    entries.extend(added);
    entries
}

/// Version and release of a bundle. If the property has no release, the build metadata of a bundle with the annotation
/// `olm.substitutesFor` is its release.
fn version_release(bundle: &Meta) -> Result<VersionRelease, String> {
    let value: &RawValue = serde_json::from_slice(&bundle.blob).map_err(|problem| problem.to_string())?;
    let members = json::members(value).unwrap_or_default();
    let property = |property: &'_ RawValue| {
        let members = json::members(property).unwrap_or_default();
        let value = json::field(&members, "value").and_then(json::members)?;
        let text = |name| text_field(&value, name);
        (text_field(&members, "type") == SCHEMA_PACKAGE).then(|| (text("version"), text("release")))
    };
    let mut packages = item_fields(&members, "properties").filter_map(property);
    let name = quote(&bundle.name);
    let Some((version, release)) = packages.next() else {
        return Err(format!("no \"olm.package\" property found for bundle {name}"));
    };
    if packages.next().is_some() {
        return Err("must be exactly one property of type \"olm.package\"".to_owned());
    }
    let parsed = Version::parse(&version).map_err(|problem| {
        let version = quote(&version);
        format!("invalid semver version {version} in \"olm.package\" property for bundle {name}: {problem}")
    })?;
    Release::parse(&release).map_err(|problem| {
        let release = quote(&release);
        format!("invalid release {release} in \"olm.package\" property for bundle {name}: {problem}")
    })?;
    let in_build = release.is_empty() && !parsed.build().is_empty() && substitutes_another(bundle, value);
    if in_build {
        Release::parse(parsed.build()).map_err(|problem| {
            format!("unable to convert build metadata to release for bundle {name}: {problem}")
        })?;
    }
    let release = Some(release.as_str()).filter(|_| !in_build);
    VersionRelease::parse(&version, release).map_err(|problem| problem.to_string())
}

/// Reports whether the ClusterServiceVersion of a bundle has the annotation.
fn substitutes_another(bundle: &Meta, value: &RawValue) -> bool {
    let annotation = |metadata: &serde_json::Value| {
        metadata["annotations"][SUBSTITUTES_FOR].as_str().is_some_and(|name| !name.is_empty())
    };
    if let Some(csv) = bundled_csv(bundle) {
        return annotation(&csv["metadata"]);
    }
    let members = json::members(value).unwrap_or_default();
    item_fields(&members, "properties").any(|property| {
        let members = json::members(property).unwrap_or_default();
        let value =
            json::field(&members, "value").filter(|_| text_field(&members, "type") == PROPERTY_CSV_METADATA);
        value.and_then(|value| serde_json::from_str(value.get()).ok()).is_some_and(|value| annotation(&value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries from lines `name < replaced - skipped …`.
    fn entries(lines: &[&str]) -> Vec<ChannelEntry> {
        let entry = |line: &&str| {
            let (line, skips) = line.split_once(" - ").unwrap_or((line, ""));
            let (name, replaces) = line.split_once(" < ").unwrap_or((line, ""));
            ChannelEntry {
                name: name.to_owned(),
                replaces: replaces.to_owned(),
                skips: skips.split_whitespace().map(str::to_owned).collect(),
                ..ChannelEntry::default()
            }
        };
        lines.iter().map(entry).collect()
    }

    #[test]
    fn substitute_takes_the_edges_of_its_base() {
        for (before, after) in [
            (&["a", "b < a"][..], &["a", "b < s - a", "s - a"][..]),
            (&["z", "a < z - y", "b < a - x"], &["z", "a", "b < s - x a", "s < z - y a"]),
            (&["a", "b < z - a y"], &["a", "b < z - y s", "s - a"]),
            (&["b", "c < b"], &["b", "c < b"]),
            // An entry that replaces a bundle which only the edges name.
            (&["b < a"], &["b < s - a"]),
        ] {
            assert_eq!(substituted(entries(before), "a", "s"), entries(after), "{before:?}");
        }
        let mut ranged = entries(&["a"]);
        ranged[0].skip_range = "<1.0.0".to_owned();
        let after = substituted(ranged, "a", "s");
        assert_eq!((after[0].skip_range.as_str(), after[1].skip_range.as_str()), ("", "<1.0.0"));
    }

    #[test]
    fn build_metadata_is_release_of_bundle_that_substitutes_another() {
        let bundle = |package: &str, metadata: &str| {
            let text = format!(
                r#"{{"schema":"olm.bundle","name":"b","properties":[{package},{{"type":"olm.csv.metadata","value":{metadata}}}]}}"#
            );
            Meta::from_json(text.as_bytes()).unwrap()
        };
        let property = |value: &str| format!(r#"{{"type":"olm.package","value":{value}}}"#);
        let legacy = r#"{"annotations":{"olm.substitutesFor":"a"}}"#;
        let release = |package: &str, metadata| {
            version_release(&bundle(package, metadata))
                .map(|found| found.release().map(ToString::to_string).unwrap_or_default())
        };
        let built = property(r#"{"version":"1.0.0+2"}"#);
        let both = property(r#"{"version":"1.0.0+2","release":"3"}"#);
        for (package, metadata, expected) in [
            (&built, "{}", Ok("")),
            (&built, legacy, Ok("2")),
            (&both, legacy, Ok("3")),
            (
                &property(r#"{"version":"1.0.0+02"}"#),
                legacy,
                Err("unable to convert build metadata to release for bundle \"b\": invalid release \"02\": "),
            ),
            (
                &property(r#"{"version":"1"}"#),
                "{}",
                Err("invalid semver version \"1\" in \"olm.package\" property for bundle \"b\": "),
            ),
            (
                &property(r#"{"version":"1.0.0","release":"é"}"#),
                "{}",
                Err("invalid release \"é\" in \"olm.package\" property for bundle \"b\": "),
            ),
            (&format!("{built},{built}"), "{}", Err("must be exactly one property of type \"olm.package\"")),
            (&r#"{"type":"x"}"#.to_owned(), "{}", Err("no \"olm.package\" property found for bundle \"b\"")),
        ] {
            match (release(package, metadata), expected) {
                (Ok(found), expected) => assert_eq!(Ok(found.as_str()), expected, "{package}"),
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                (Err(found), _) => panic!("{package}: {found}"),
            }
        }
    }
}
