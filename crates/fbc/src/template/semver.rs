//! `olm.semver`: channels and upgrade edges derived from the versions of the bundles
//! (docs/design/cli.md#catalog-templates).

use std::collections::{BTreeMap, BTreeSet};

use olm_version::{Version, aggregate, quote};
use serde_json::{json, value::RawValue};

use super::TemplateError;
use crate::{
    ChannelEntry, Meta, SCHEMA_CHANNEL, SCHEMA_PACKAGE, json,
    shape::{Shape, Structure, if_any, structure},
};

pub(super) const SCHEMA: &str = "olm.semver";

const ENTRY: Structure = structure("semver.bundleEntry", &[if_any(&["image"], Shape::Text)]);
const STREAM: Structure = structure("semver.channelBundles", &[if_any(&["bundles"], Shape::Objects(&ENTRY))]);

const TEMPLATE: Structure = structure(
    "semver.SemverTemplateData",
    &[
        if_any(&["schema", "defaultChannelTypePreference"], Shape::Text),
        if_any(&["generateMajorChannels", "generateMinorChannels"], Shape::Truth),
        if_any(&["candidate", "fast", "stable"], Shape::Object(&STREAM)),
    ],
);

/// Properties of the bundle in an image that the expansion needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemverBundle {
    /// Package of the bundle.
    pub package: String,
    /// Name of the bundle.
    pub name: String,
    /// Version of the bundle.
    pub version: String,
}

/// Stability level of a list of images, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stream {
    Candidate,
    Fast,
    Stable,
}

impl Stream {
    const ALL: [Self; 3] = [Self::Candidate, Self::Fast, Self::Stable];

    fn name(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Fast => "fast",
            Self::Stable => "stable",
        }
    }
}

/// Version that a channel covers: major or minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChannelType {
    Major,
    Minor,
}

impl ChannelType {
    fn channel(self, stream: Stream, version: &Version) -> String {
        let (stream, major) = (stream.name(), version.major());
        match self {
            Self::Major => format!("{stream}-v{major}"),
            Self::Minor => format!("{stream}-v{major}.{}", version.minor()),
        }
    }
}

/// Parsed template.
///
/// ```
/// use olm_fbc::template::SemverTemplate;
///
/// let text = "schema: olm.semver\nstable: {bundles: [{image: registry.example/demo:v1}]}\n";
/// let template = SemverTemplate::parse(text.as_bytes())?;
/// assert!(template.images().contains("registry.example/demo:v1"));
/// # Ok::<(), olm_fbc::template::TemplateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemverTemplate {
    /// Kinds of channels to generate.
    kinds: Vec<ChannelType>,
    /// Type of the default channel if both are candidates.
    preferred: ChannelType,
    /// Images in the order of the template.
    streams: BTreeMap<Stream, Vec<String>>,
}

/// Channel under construction: its entries with their edges, and the lowest version.
#[derive(Debug)]
struct Draft {
    stream: Stream,
    kind: ChannelType,
    first: Version,
    entries: Vec<ChannelEntry>,
}

impl SemverTemplate {
    /// Parses a template from YAML or JSON. Keys are case-insensitive. Unknown and duplicate keys are rejected.
    ///
    /// # Errors
    /// The text is not such a template, or prefers channels that are not generated.
    pub fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let refused = |problem: String| TemplateError::Read(problem);
        let json = olm_yaml::to_json(text, &olm_yaml::Limits::default())
            .map_err(|problem| refused(problem.to_string()))?;
        let decoded =
            |problem: String| refused(format!("error unmarshaling JSON: while decoding JSON: {problem}"));
        let value: &RawValue =
            serde_json::from_slice(&json).map_err(|problem| decoded(problem.to_string()))?;
        TEMPLATE.check(value, true).map_err(decoded)?;
        let members = json::members(value).unwrap_or_default();
        let text = |name| json::text_field(&members, name);
        let truth = |name| json::field(&members, name).is_some_and(|value| value.get() == "true");
        if text("schema") != SCHEMA {
            return Err(refused(format!(
                "readFile: input file has unknown schema, should be {}",
                quote(SCHEMA)
            )));
        }
        let major = truth("generateMajorChannels");
        let minor = truth("generateMinorChannels") || !major;
        let preferred = preferred(&text("defaultChannelTypePreference"), major, minor).map_err(refused)?;
        let kinds = [(ChannelType::Major, major), (ChannelType::Minor, minor)];
        let images = |stream: Stream| {
            let stream_members =
                json::field(&members, stream.name()).and_then(json::members).unwrap_or_default();
            let image = |bundle| json::text_field(&json::members(bundle).unwrap_or_default(), "image");
            (stream, json::item_fields(&stream_members, "bundles").map(image).collect())
        };
        Ok(Self {
            kinds: kinds.into_iter().filter(|(_, made)| *made).map(|(kind, _)| kind).collect(),
            preferred,
            streams: Stream::ALL.map(images).into(),
        })
    }

    /// Images of the template, sorted and unique.
    pub fn images(&self) -> BTreeSet<&str> {
        self.streams.values().flatten().map(String::as_str).collect()
    }

    /// Expands the template to its package and channels, sorted by name. `bundles` holds the identity of the bundle
    /// in each image of the template.
    ///
    /// In a channel the highest version of each minor version replaces that of the previous minor version, within
    /// the same major version, and skips all other lower ones. The default channel is the most stable one, then the
    /// one with the highest version, then the one of the preferred kind.
    ///
    /// # Errors
    /// Images without bundle, bundles of several packages, equal names or versions without an order in one stream.
    pub fn expand(&self, bundles: &BTreeMap<String, SemverBundle>) -> Result<Vec<Meta>, TemplateError> {
        if self.images().is_empty() {
            return Err(TemplateError::NoBundles);
        }
        let mut package = "";
        let mut channels: BTreeMap<String, Draft> = BTreeMap::new();
        for (&stream, images) in &self.streams {
            let mut versions = read_stream(images, bundles, &mut package).map_err(TemplateError::Bundles)?;
            versions.sort_by(|a, b| a.1.cmp(&b.1));
            for &kind in &self.kinds {
                add_channels(stream, kind, &versions, &mut channels);
            }
        }
        let default = channels.iter().max_by(|(_, a), (_, b)| {
            let rank = |draft: &Draft| (draft.kind == self.preferred, draft.kind);
            (a.stream, &a.first).cmp(&(b.stream, &b.first)).then_with(|| rank(a).cmp(&rank(b)))
        });
        let default = default.map_or("", |(name, _)| name.as_str());
        let mut metas = vec![json!({"schema": SCHEMA_PACKAGE, "name": package, "defaultChannel": default})];
        metas.extend(channels.iter().map(|(name, draft)| {
            json!({"schema": SCHEMA_CHANNEL, "package": package, "name": name, "entries": draft.entries})
        }));
        let metas = metas.iter().map(|meta| Meta::from_json(meta.to_string().as_bytes()));
        metas.collect::<Result<_, _>>().map_err(|problem| TemplateError::Bundles(problem.to_string()))
    }
}

fn preferred(text: &str, major: bool, minor: bool) -> Result<ChannelType, String> {
    let (kind, made) = match text {
        "" => return Ok(if minor { ChannelType::Minor } else { ChannelType::Major }),
        "minor" => (ChannelType::Minor, minor),
        "major" => (ChannelType::Major, major),
        other => {
            let other = quote(other);
            return Err(format!(
                "unknown DefaultChannelTypePreference: {other}\nValid values are 'major' or 'minor'"
            ));
        }
    };
    if !made {
        return Err(format!(
            "schema attribute mismatch: DefaultChannelTypePreference set to '{text}' doesn't make sense if not \
             generating {text}-version channels"
        ));
    }
    Ok(kind)
}

/// Names and versions of the bundles of a stream. `package` is that of earlier bundles, or initially empty.
fn read_stream<'a>(
    images: &[String],
    bundles: &'a BTreeMap<String, SemverBundle>,
    package: &mut &'a str,
) -> Result<Vec<(&'a str, Version)>, String> {
    let mut versions: Vec<(&str, Version)> = Vec::new();
    for image in images {
        let Some(bundle) = bundles.get(image) else {
            return Err(format!(
                "supplied bundle image name {} not found in rendered bundle images",
                quote(image)
            ));
        };
        let name = quote(&bundle.name);
        let version = Version::parse(&bundle.version).map_err(|problem| {
            format!("bundle {name} has invalid version {}: {problem}", quote(&bundle.version))
        })?;
        if package.is_empty() {
            *package = &bundle.package;
        } else if *package != bundle.package {
            let other = quote(&bundle.package);
            return Err(format!("bundle {other} does not belong to this package: {}", quote(package)));
        }
        if versions.iter().any(|(other, _)| *other == bundle.name) {
            return Err(format!("duplicate bundle name {name}"));
        }
        versions.push((&bundle.name, version));
    }
    unordered(&versions).map_or(Ok(versions), Err)
}

/// Error about versions that differ only in build metadata.
fn unordered(versions: &[(&str, Version)]) -> Option<String> {
    let without_build = |version: &Version| {
        let text = version.to_string();
        text.split('+').next().unwrap_or_default().to_owned()
    };
    let mut seen = BTreeSet::new();
    let problems = versions.iter().filter_map(|(_, version)| {
        let plain = without_build(version);
        let problem =
            format!("bundle version {} cannot be compared to {}", quote(&version.to_string()), quote(&plain));
        (!seen.insert(plain)).then_some(problem)
    });
    let problems: Vec<String> = problems.collect();
    let shown = aggregate(&problems)?;
    Some(format!(
        "encountered bundle versions which differ only by build metadata, which cannot be ordered: {shown}"
    ))
}

/// Adds the channels of one kind for the bundles of a stream, which must be in ascending order.
fn add_channels(
    stream: Stream,
    kind: ChannelType,
    versions: &[(&str, Version)],
    channels: &mut BTreeMap<String, Draft>,
) {
    // Candidates for the edges of a bundle: all lower versions of its major version, and the highest of the
    // previous minor version.
    let mut lower: BTreeSet<String> = BTreeSet::new();
    let mut previous_minor = String::new();
    for (index, (name, version)) in versions.iter().enumerate() {
        let before = index.checked_sub(1).map(|index| &versions[index]);
        match before {
            Some((name, before)) if before.major() == version.major() => {
                if before.minor() != version.minor() {
                    (*name).clone_into(&mut previous_minor);
                }
                lower.insert((*name).to_owned());
            }
            _ => {
                lower.clear();
                previous_minor.clear();
            }
        }
        let mut entry = ChannelEntry { name: (*name).to_owned(), ..ChannelEntry::default() };
        let minor = |version: &Version| (version.major(), version.minor());
        let is_highest = versions.get(index + 1).is_none_or(|(_, next)| minor(next) != minor(version));
        if is_highest {
            entry.replaces.clone_from(&previous_minor);
            entry.skips = lower.iter().filter(|name| **name != previous_minor).cloned().collect();
        }
        let draft = channels.entry(kind.channel(stream, version)).or_insert_with(|| Draft {
            stream,
            kind,
            first: version.clone(),
            entries: Vec::new(),
        });
        draft.entries.push(entry);
    }
}
