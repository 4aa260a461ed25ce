//! Names of mirrored images, and the configuration that leads there. Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::names::GROUP;
use olm_cli_core::error::CliError;
use olm_cli_core::output::yaml;
use olm_fbc::{Meta, PackageContent};
use olm_oci::{Reference, ReferenceError, Selector};
use olm_version::quote;
use serde_json::{Value, json};

/// File with the source and target of each image of a run.
pub(super) const MAPPING: &str = "mapping.txt";

/// Registry of the mirror, with a path below which the repositories are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetRegistry(String);

impl TargetRegistry {
    /// Parses `REGISTRY[/PREFIX]`.
    ///
    /// # Errors
    /// The text does not begin references.
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        let registry = text.trim_end_matches('/');
        let parsed = format!("{registry}/x:x").parse::<Reference>();
        parsed.map(|_| Self(registry.to_owned())).map_err(|error| {
            let why = format!("expected a registry and a path, such as registry.example.com/mirror: {error}");
            CliError::usage(format!("--to {}: {why}", quote(text)))
        })
    }

    /// Reference of the copy of an image: the repository below this registry, with the same tag or digest.
    pub(super) fn target(&self, source: &Reference) -> Result<Reference, ReferenceError> {
        let (separator, selector) = match source.selector() {
            Selector::Tag(tag) => (':', tag.as_str()),
            Selector::Digest(digest) => ('@', digest.as_str()),
        };
        format!("{}/{}{separator}{selector}", self.0, source.path()).parse()
    }

    /// Prefix of source references, and the one that replaces it: of the namespace of the repository, such as
    /// `quay.io/operatorhubio`, or of a repository without namespace.
    fn prefix(&self, source: &Reference) -> (String, String) {
        let scope = source.path().split('/').next().unwrap_or_default();
        (format!("{}/{scope}", source.host()), format!("{}/{scope}", self.0))
    }
}

/// Tags of the mirror that may move to another image.
#[derive(Debug, Default)]
pub(super) struct MovableTags {
    /// [`MAPPING`] of an earlier run.
    pub(super) mapping: String,
    /// `true` if all tags may move.
    pub(super) all: bool,
}

impl MovableTags {
    /// `true` if the tag `target` may move to the image `source`: the earlier run copied it from there, or it is the
    /// catalog of this run and the earlier run did not copy it from elsewhere. Names in the mirror have no host, so tags
    /// of different sources can be the same.
    pub(super) fn may_move(&self, source: &Reference, target: &Reference, is_catalog: bool) -> bool {
        let (source, target) = (source.to_string(), target.to_string());
        let lines = self.mapping.lines().filter_map(|line| line.split_once('='));
        let mut sources = lines.filter(|(_, known)| *known == target).map(|(known, _)| known).peekable();
        self.all || (is_catalog && sources.peek().is_none()) || sources.any(|known| known == source)
    }

    /// [`MAPPING`] of this run, without images that only failed to be copied.
    pub(super) fn recorded(&self, mapping: &str, failures: &BTreeMap<String, String>) -> String {
        let is_copied = |line: &&str| {
            let source = line.split_once('=').map_or(*line, |(source, _)| source);
            !failures.contains_key(source) || self.mapping.lines().any(|known| known == *line)
        };
        mapping.lines().filter(is_copied).flat_map(|line| [line, "\n"]).collect()
    }
}

/// Images that the bundles of a catalog name.
#[derive(Default)]
pub(super) struct Images {
    pub(super) references: BTreeSet<Reference>,
    /// Texts that are not references, with the reason.
    pub(super) invalid: BTreeMap<String, String>,
}

/// Images of the bundles, and with `with_related` their related images.
///
/// # Errors
/// An object does not match its schema.
pub(super) fn images(metas: &[Meta], with_related: bool) -> Result<Images, CliError> {
    let mut lines: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
    for meta in metas {
        lines.entry(meta.owner()).or_default().push(&meta.blob);
    }
    lines.remove("");
    let mut images = Images::default();
    for (package, lines) in lines {
        let content = PackageContent::from_metas(package, lines)
            .map_err(|error| CliError::operational(format!("package {}: {error}", quote(package))))?;
        for bundle in &content.bundles {
            let related = bundle.related_images.iter().filter(|_| with_related).map(|related| &related.image);
            for text in [&bundle.image].into_iter().chain(related).filter(|text| !text.is_empty()) {
                match reference(text) {
                    Ok(reference) => {
                        images.references.insert(reference);
                    }
                    Err(error) => {
                        images.invalid.insert(text.clone(), error.to_string());
                    }
                }
            }
        }
    }
    Ok(images)
}

/// Parses a reference as container runtimes do: a digest wins over a tag, and the default tag is `latest`.
fn reference(text: &str) -> Result<Reference, ReferenceError> {
    match text.parse() {
        Err(ReferenceError::TagAndDigest) => {
            let (name, digest) = text.split_once('@').unwrap_or((text, ""));
            let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
            format!("{name}@{digest}").parse()
        }
        Err(ReferenceError::Bare(_)) => format!("{text}:latest").parse(),
        parsed => parsed,
    }
}

/// First two references by tag that would overwrite each other in the mirror.
pub(super) fn conflict<'a>(
    registry: &TargetRegistry,
    sources: impl Iterator<Item = &'a Reference>,
) -> Option<(&'a Reference, &'a Reference)> {
    let mut targets: BTreeMap<Reference, &Reference> = BTreeMap::new();
    for source in sources.filter(|source| matches!(source.selector(), Selector::Tag(_))) {
        if let Some(other) = targets.insert(registry.target(source).ok()?, source)
            && other != source
        {
            return Some((other, source));
        }
    }
    None
}

/// First of the copied `catalogs` whose target is itself, or the image `origin` that it is made of.
pub(super) fn overwritten<'a>(
    registry: &TargetRegistry,
    catalogs: impl Iterator<Item = &'a Reference>,
    origin: Option<&Reference>,
) -> Option<Reference> {
    let targets = catalogs.filter_map(|source| Some((source, registry.target(source).ok()?)));
    let is_overwritten =
        |(source, target): &(&Reference, Reference)| target == *source || Some(target) == origin;
    targets.into_iter().find(is_overwritten).map(|(_, target)| target)
}

/// Names of ClusterCatalogs with their images. A name that occurs again gets a number.
pub(super) fn unique(catalogs: impl Iterator<Item = (String, Reference)>) -> BTreeMap<String, Reference> {
    let mut named = BTreeMap::new();
    for (name, image) in catalogs {
        let numbers = (2_u32..).map(|number| format!("{name}-{number}"));
        let mut names = [name.clone()].into_iter().chain(numbers);
        if let Some(name) = names.find(|name| !named.contains_key(name)) {
            named.insert(name, image);
        }
    }
    named
}

/// Files that lead clients to the mirror, by name.
///
/// # Errors
/// A file cannot be written as YAML.
pub(super) fn files(
    registry: &TargetRegistry,
    mapping: &BTreeMap<Reference, Reference>,
    catalogs: &BTreeMap<String, Reference>,
) -> Result<BTreeMap<&'static str, String>, CliError> {
    let prefixes = |is_selected: &dyn Fn(&Selector) -> bool| -> BTreeMap<String, String> {
        let sources = mapping.keys().filter(|source| is_selected(source.selector()));
        sources.map(|source| registry.prefix(source)).filter(|(source, target)| source != target).collect()
    };
    let by_digest = prefixes(&|selector| matches!(selector, Selector::Digest(_)));
    let by_tag = prefixes(&|selector| matches!(selector, Selector::Tag(_)));
    let all = prefixes(&|_| true);
    let registries: String = all
        .iter()
        .map(|(source, target)| {
            format!("[[registry]]\nlocation = \"{source}\"\n[[registry.mirror]]\nlocation = \"{target}\"\n\n")
        })
        .collect();
    let mapped: String = mapping.iter().map(|(source, target)| format!("{source}={target}\n")).collect();
    // Sets of several mirrors must not replace each other in a cluster.
    let name =
        [&["olm-mirror"], &*catalogs.keys().map(String::as_str).collect::<Vec<_>>()].concat().join("-");
    let catalogs = catalogs.iter().map(|(name, image)| {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterCatalog", "metadata": { "name": name },
            "spec": { "source": { "type": "Image", "image": { "ref": image.to_string() } } },
        })
    });
    let sets = [
        mirror_set("ImageDigestMirrorSet", &name, "imageDigestMirrors", &by_digest),
        mirror_set("ImageTagMirrorSet", &name, "imageTagMirrors", &by_tag),
    ];
    Ok(BTreeMap::from([
        ("registries.conf", registries),
        (MAPPING, mapped),
        ("cluster-catalog.yaml", documents(catalogs)?),
        ("image-mirror-sets.yaml", documents(sets.into_iter().flatten())?),
    ]))
}

/// Mirror configuration of OpenShift. `None` without mirrors.
fn mirror_set(kind: &str, name: &str, field: &str, mirrors: &BTreeMap<String, String>) -> Option<Value> {
    let mirrors: Vec<Value> =
        mirrors.iter().map(|(source, target)| json!({ "source": source, "mirrors": [target] })).collect();
    (!mirrors.is_empty()).then(|| {
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": { "name": name },
            "spec": { field: mirrors },
        })
    })
}

/// YAML documents.
fn documents(values: impl Iterator<Item = Value>) -> Result<String, CliError> {
    values.map(|value| Ok(format!("---\n{}", yaml(&value)?))).collect()
}

/// Name of the ClusterCatalog of an image: the last part of its repository.
pub(super) fn catalog_name(image: &Reference) -> String {
    let last = image.path().rsplit('/').next().unwrap_or_default();
    let name: String =
        last.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "catalog".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Reference {
        reference(text).unwrap()
    }

    #[test]
    fn mirrored_image_keeps_repository_and_tag_or_digest() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (registry, source, expected) in [
            ("r.example", "quay.io/a/b:v1".to_owned(), "r.example/a/b:v1".to_owned()),
            (
                "r.example:5000/m/n/",
                format!("quay.io/a/b@{digest}"),
                format!("r.example:5000/m/n/a/b@{digest}"),
            ),
            ("r.example/m", format!("quay.io/b:v1@{digest}"), format!("r.example/m/b@{digest}")),
            ("r.example/m", "quay.io/a/b".to_owned(), "r.example/m/a/b:latest".to_owned()),
        ] {
            let target = TargetRegistry::parse(registry).unwrap().target(&parsed(&source)).unwrap();
            assert_eq!(target.to_string(), expected);
        }
        for text in ["", "r.example/x:v1", "https://r.example"] {
            let error = TargetRegistry::parse(text).unwrap_err().to_string();
            assert!(error.contains("expected a registry and a path"), "{error}");
        }
    }

    #[test]
    fn tags_of_two_registries_conflict_only_in_the_same_repository() {
        let registry = TargetRegistry::parse("r.example").unwrap();
        let sources = ["a.example/x:v1", "b.example/x:v2", "b.example/y:v1", "b.example/x:v1"].map(parsed);
        let found = conflict(&registry, sources.iter()).map(|(a, b)| (a.to_string(), b.to_string()));
        assert_eq!(found, Some(("a.example/x:v1".to_owned(), "b.example/x:v1".to_owned())));
        assert_eq!(conflict(&registry, sources[..3].iter()), None);
    }

    #[test]
    fn tag_moves_only_for_the_source_that_it_was_copied_from_or_the_catalog_of_the_run() {
        let (source, other, target) = ("a.example/x:v1", "b.example/x:v1", "r.example/m/x:v1");
        let of = |known: &str| format!("a.example/y:v1=r.example/m/y:v1\n{known}={target}\n");
        for (mapping, all, is_catalog, expected) in [
            (String::new(), false, false, false),
            (String::new(), false, true, true),
            (String::new(), true, false, true),
            (of(source), false, false, true),
            (of(other), false, false, false),
            (of(other), false, true, false),
            (of(other), true, false, true),
        ] {
            let tags = MovableTags { mapping, all };
            assert_eq!(tags.may_move(&parsed(source), &parsed(target), is_catalog), expected, "{tags:?}");
        }
    }

    #[test]
    fn catalog_whose_target_is_its_source_is_overwritten() {
        for (registry, catalog, origin, expected) in [
            ("r.example", "r.example/a/c:v1", None, Some("r.example/a/c:v1")),
            ("r.example/m", "r.example/a/c:v1", None, None),
            ("r.example", "q.example/a/c:v1", Some("q.example/a/c:v1"), None),
            ("r.example", "q.example/a/c:v1", Some("r.example/a/c:v1"), Some("r.example/a/c:v1")),
        ] {
            let registry = TargetRegistry::parse(registry).unwrap();
            let found = overwritten(&registry, [parsed(catalog)].iter(), origin.map(parsed).as_ref());
            assert_eq!(found, expected.map(parsed), "{catalog}");
        }
    }

    #[test]
    fn configuration_redirects_namespaces_to_the_mirror() {
        let registry = TargetRegistry::parse("r.example/m").unwrap();
        let digest = format!("sha256:{}", "a".repeat(64));
        let sources = [
            format!("quay.io/a/b@{digest}"),
            "quay.io/a/c:v1".to_owned(),
            format!("x.example:5000/d@{digest}"),
            format!("r.example/m@{digest}"),
        ];
        let sources = sources.iter().map(|text| parsed(text));
        let mapping = sources.map(|source| (source.clone(), registry.target(&source).unwrap())).collect();
        let catalogs = BTreeMap::from([("c".to_owned(), parsed("r.example/m/a/c:v1"))]);
        let files = files(&registry, &mapping, &catalogs).unwrap();
        let registry = |source: &str, target: &str| {
            format!("[[registry]]\nlocation = \"{source}\"\n[[registry.mirror]]\nlocation = \"{target}\"\n\n")
        };
        let expected = [
            registry("quay.io/a", "r.example/m/a"),
            registry("r.example/m", "r.example/m/m"),
            registry("x.example:5000/d", "r.example/m/d"),
        ];
        assert_eq!(files["registries.conf"], expected.concat());
        assert!(files["mapping.txt"].contains("quay.io/a/c:v1=r.example/m/a/c:v1\n"));
        let sets = olm_yaml::all_from_slice(files["image-mirror-sets.yaml"].as_bytes()).unwrap();
        assert_eq!(sets.len(), 2);
        assert_eq!(sets[1]["kind"], "ImageTagMirrorSet");
        assert_eq!(sets[1]["metadata"]["name"], "olm-mirror-c");
        let expected = json!([{ "source": "quay.io/a", "mirrors": ["r.example/m/a"] }]);
        assert_eq!(sets[1]["spec"]["imageTagMirrors"], expected);
    }

    #[test]
    fn catalogs_with_the_same_name_or_one_like_a_number_have_distinct_names_that_are_strings() {
        let registry = TargetRegistry::parse("r.example/m").unwrap();
        let images = ["r.example/m/a/123:v1", "r.example/m/b/123:v1", "r.example/m/on:v1"].map(parsed);
        let catalogs = unique(images.iter().map(|image| (catalog_name(image), image.clone())));
        let files = files(&registry, &BTreeMap::new(), &catalogs).unwrap();
        let catalogs = olm_yaml::all_from_slice(files["cluster-catalog.yaml"].as_bytes()).unwrap();
        let named = catalogs.iter().map(|catalog| (&catalog["metadata"]["name"], &catalog["spec"]["source"]));
        let expected = ["123", "123-2", "on"].into_iter().zip(&images).map(|(name, image)| {
            (json!(name), json!({ "type": "Image", "image": { "ref": image.to_string() } }))
        });
        assert!(named.eq(expected.collect::<Vec<_>>().iter().map(|(name, source)| (name, source))));
    }

    #[test]
    fn catalog_name_is_the_last_part_of_the_repository() {
        for (image, expected) in
            [("a.example/x/my-catalog:v1", "my-catalog"), ("a.example/x/My_C.2:v1", "my-c-2")]
        {
            assert_eq!(catalog_name(&image.to_lowercase().parse().unwrap()), expected);
        }
    }
}
