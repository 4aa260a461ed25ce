//! `registries.conf` version 2: sources of an image, their order, and blocked registries
//! (docs/design/images.md#registry-configuration).
//!
//! Search registries and short-name settings are accepted without effect, since every reference names its registry.
//! Credential helpers are never run. [`files`] finds and reads the files. The rest is pure.

mod files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::{Reference, Selector};

/// Merged configuration of all files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registries {
    /// Registries by prefix.
    registries: BTreeMap<String, Registry>,
    /// Files in the order in which they were read.
    files: Vec<PathBuf>,
}

/// Table `[[registry]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Registry {
    /// If empty, that is `location`.
    prefix: String,
    /// Replaces the prefix. Empty to keep the name.
    location: String,
    insecure: bool,
    blocked: bool,
    mirror_by_digest_only: bool,
    /// Not allowed here.
    pull_from_mirror: Option<String>,
    #[serde(rename = "mirror")]
    mirrors: Vec<Mirror>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Mirror {
    location: String,
    insecure: bool,
    pull_from_mirror: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// Name of the image at this source.
    pub(crate) reference: Reference,
    /// `true` if plain HTTP and any certificate are accepted.
    pub(crate) insecure: bool,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    registry: Vec<Registry>,
    /// Tables of version 1.
    registries: Option<IgnoredAny>,
}

impl Registries {
    /// Adds a file. Its registries replace earlier ones of the same prefix.
    ///
    /// # Errors
    /// The text is not valid. The error names the line or the table.
    pub(crate) fn add(&mut self, path: &Path, text: &str) -> Result<(), String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            format!("line {line}: {}", error.message().lines().collect::<Vec<_>>().join(", "))
        })?;
        if file.registries.is_some() {
            return Err("registries.conf must be in v2 format but is in v1".to_owned());
        }
        let mut added = BTreeMap::new();
        for table in file.registry {
            let registry = table.validated()?;
            if let Some(earlier) = added.get(&registry.prefix) {
                check_duplicate(earlier, &registry)?;
            }
            added.insert(registry.prefix.clone(), registry);
        }
        self.registries.append(&mut added);
        self.files.push(path.to_owned());
        Ok(())
    }

    /// Sources of `reference` in order, mirrors first. Without configuration, `reference` itself.
    ///
    /// # Errors
    /// The registry is blocked, or a location does not yield a valid name.
    pub(crate) fn sources(&self, reference: &Reference) -> Result<Vec<Source>, String> {
        let name = reference.to_string();
        let found = self.registries.values();
        let found = found.filter_map(|registry| Some((registry, matching(&name, &registry.prefix)?)));
        let Some((registry, matched)) = found.max_by_key(|(registry, _)| registry.prefix.len()) else {
            return Ok(vec![Source { reference: reference.clone(), insecure: false }]);
        };
        if registry.blocked {
            let files: Vec<String> =
                self.files.iter().map(|file| format!("{:?}", file.display().to_string())).collect();
            return Err(format!("registry {} is blocked in one of [{}]", registry.prefix, files.join(" ")));
        }
        let rewritten = |location: &str, insecure| {
            if location.is_empty() {
                return Ok(Source { reference: reference.clone(), insecure });
            }
            let name = format!("{location}{}", &name[matched..]);
            let reference = name.parse().map_err(|error| format!("rewriting reference: {error}"))?;
            Ok(Source { reference, insecure })
        };
        registry
            .mirrors(matches!(reference.selector(), Selector::Digest(_)))
            .map(|mirror| rewritten(&mirror.location, mirror.insecure))
            .chain([rewritten(&registry.location, registry.insecure)])
            .collect()
    }
}

/// Length of the part of `name` that `prefix` matches, if it does. A host without a port also matches with any
/// port, as in containers/image.
fn matching(name: &str, prefix: &str) -> Option<usize> {
    let is_border = |end: &usize| name[*end..].chars().next().is_none_or(|c| matches!(c, ':' | '/' | '@'));
    match prefix.strip_prefix('*') {
        None => name.starts_with(prefix).then_some(prefix.len()).filter(is_border),
        Some(domain) => {
            let in_host = name.match_indices(domain).take_while(|(start, _)| !name[..*start].contains('/'));
            in_host.map(|(start, _)| start + domain.len()).find(is_border)
        }
    }
}

impl Registry {
    /// Checks the table and normalizes its locations.
    fn validated(mut self) -> Result<Self, String> {
        let named = if self.prefix.is_empty() { &self.location } else { &self.prefix };
        let prefix = location(named).map_err(|why| format!("registry {named:?}: {why}"))?;
        let within = |why: String| format!("registry {prefix:?}: {why}");
        let is_wildcard = prefix.contains('*');
        if is_wildcard && (!prefix.starts_with("*.") || prefix[1..].contains(['*', '/'])) {
            return Err(within("a prefix with * must be of the form *.example.com".to_owned()));
        }
        if !self.location.is_empty() {
            self.location = location(&self.location).map_err(within)?;
        } else if !is_wildcard {
            return Err(within(
                "location is unset and prefix is not in the format: *.example.com".to_owned(),
            ));
        }
        if self.pull_from_mirror.is_some() {
            return Err(within("pull-from-mirror is for mirrors only".to_owned()));
        }
        for mirror in &mut self.mirrors {
            let within = |why: String| within(format!("mirror {:?}: {why}", mirror.location));
            let location = location(&mirror.location).map_err(within)?;
            match mirror.pull_from_mirror.as_str() {
                "" => {}
                _ if self.mirror_by_digest_only => {
                    let why = "pull-from-mirror cannot be set together with mirror-by-digest-only";
                    return Err(within(why.to_owned()));
                }
                "all" | "digest-only" | "tag-only" => {}
                _ => {
                    return Err(within("pull-from-mirror must be all, digest-only or tag-only".to_owned()));
                }
            }
            mirror.location = location;
        }
        Ok(Self { prefix, ..self })
    }

    /// Mirrors for references by digest or by tag.
    fn mirrors(&self, by_digest: bool) -> impl Iterator<Item = &Mirror> {
        self.mirrors.iter().filter(move |mirror| match mirror.pull_from_mirror.as_str() {
            "" => by_digest || !self.mirror_by_digest_only,
            "digest-only" => by_digest,
            "tag-only" => !by_digest,
            _ => true,
        })
    }
}

/// Validates `host[:port][/path]` and removes trailing slashes.
fn location(text: &str) -> Result<String, String> {
    let trimmed = text.trim_end_matches('/');
    if trimmed.is_empty() {
        return Err("location cannot be empty".to_owned());
    }
    if trimmed.starts_with("http://") || trimmed.starts_with("https://") {
        return Err(format!("invalid location {text:?}: URI schemes are not supported"));
    }
    Ok(trimmed.to_owned())
}

fn check_duplicate(one: &Registry, other: &Registry) -> Result<(), String> {
    let key = match (one.insecure == other.insecure, one.blocked == other.blocked) {
        (false, _) => "insecure",
        (true, false) => "blocked",
        (true, true) => return Ok(()),
    };
    Err(format!("registry {:?} is defined multiple times with conflicting '{key}' setting", one.prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(texts: &[&str]) -> Result<Registries, String> {
        let mut registries = Registries::default();
        for (number, text) in texts.iter().enumerate() {
            registries.add(Path::new(&format!("/{number}.conf")), text)?;
        }
        Ok(registries)
    }

    fn sources(texts: &[&str], reference: &str) -> Result<Vec<String>, String> {
        let sources = load(texts)?.sources(&reference.parse().unwrap())?;
        let show = |source: &Source| {
            format!("{}{}", source.reference, if source.insecure { " insecure" } else { "" })
        };
        Ok(sources.iter().map(show).collect())
    }

    const ZEROS: &str = "@sha256:0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn longest_prefix_determines_sources() {
        let config = r#"
            unqualified-search-registries = ["docker.io"]
            short-name-mode = "enforcing"
            credential-helpers = ["x"]
            [aliases]
            "busybox" = "docker.io/library/busybox"
            [[registry]]
            location = "r.example.com"
            [[registry.mirror]]
            location = "one.test/deep/"
            [[registry.mirror]]
            location = "two.test:5000"
            insecure = true
            [[registry]]
            prefix = "r.example.com/team"
            location = "moved.test/x"
            insecure = true
            [[registry]]
            prefix = "*.wild.test"
            [[registry.mirror]]
            location = "mirror.test"
            [[registry]]
            prefix = "*.moved.test"
            location = "other.test"
        "#;
        for (reference, expected) in [
            (
                "r.example.com/a/b:v1",
                &["one.test/deep/a/b:v1", "two.test:5000/a/b:v1 insecure", "r.example.com/a/b:v1"][..],
            ),
            ("r.example.com/team/b:v1", &["moved.test/x/b:v1 insecure"]),
            (
                "r.example.com/teams/b:v1",
                &[
                    "one.test/deep/teams/b:v1",
                    "two.test:5000/teams/b:v1 insecure",
                    "r.example.com/teams/b:v1",
                ],
            ),
            ("r.example.com/team:v1", &["moved.test/x:v1 insecure"]),
            ("r.example.commerce.test/a:v1", &["r.example.commerce.test/a:v1"]),
            ("a.b.wild.test/x:v1", &["mirror.test/x:v1", "a.b.wild.test/x:v1"]),
            ("wild.test/x:v1", &["wild.test/x:v1"]),
            ("x.test/a.wild.test/y:v1", &["x.test/a.wild.test/y:v1"]),
            ("a.moved.test/x:v1", &["other.test/x:v1"]),
            ("a.moved.test.b.moved.test/x:v1", &["other.test/x:v1"]),
        ] {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            assert_eq!(sources(&[config], reference), Ok(expected), "{reference}");
        }
    }

    #[test]
    fn mirror_can_be_limited_to_tags_or_digests() {
        let config = |by_digest: bool| {
            let pull =
                |kind: &str| if by_digest { String::new() } else { format!("pull-from-mirror = \"{kind}\"") };
            format!(
                "[[registry]]\nlocation = \"r.test\"\nmirror-by-digest-only = {by_digest}\n\
                 [[registry.mirror]]\nlocation = \"d.test\"\n{}\n[[registry.mirror]]\nlocation = \"t.test\"\n{}\n",
                pull("digest-only"),
                pull("tag-only")
            )
        };
        let names =
            |hosts: &[&str], rest: &str| Ok(hosts.iter().map(|host| format!("{host}/a{rest}")).collect());
        for (by_digest, rest, expected) in [
            (false, ":v1", &["t.test", "r.test"][..]),
            (false, ZEROS, &["d.test", "r.test"]),
            (true, ":v1", &["r.test"]),
            (true, ZEROS, &["d.test", "t.test", "r.test"]),
        ] {
            assert_eq!(sources(&[&config(by_digest)], &format!("r.test/a{rest}")), names(expected, rest));
        }
    }

    #[test]
    fn later_file_replaces_same_prefix() {
        let first = "[[registry]]\nlocation = \"r.test\"\nblocked = true\n[[registry]]\nlocation = \"s.test\"\nblocked = true";
        let second = "[[registry]]\nprefix = \"r.test\"\nlocation = \"new.test\"";
        assert_eq!(sources(&[first, second], "r.test/a:v1"), Ok(vec!["new.test/a:v1".to_owned()]));
        assert_eq!(
            sources(&[first, second], "s.test/a:v1"),
            Err("registry s.test is blocked in one of [\"/0.conf\" \"/1.conf\"]".to_owned())
        );
    }

    #[test]
    fn invalid_configuration_names_line_or_table() {
        for (text, expected) in [
            (
                "[registries.search]\nregistries = [\"a\"]",
                "registries.conf must be in v2 format but is in v1",
            ),
            ("[[registry]]\nblocked = \"yes\"", "line 2: invalid type: string \"yes\", expected a boolean"),
            ("[[registry]]", "registry \"\": location cannot be empty"),
            (
                "[[registry]]\nprefix = \"a.test\"",
                "registry \"a.test\": location is unset and prefix is not in the format: *.example.com",
            ),
            (
                "[[registry]]\nprefix = \"a.*.test\"",
                "registry \"a.*.test\": a prefix with * must be of the form *.example.com",
            ),
            (
                "[[registry]]\nlocation = \"https://a.test\"",
                "registry \"https://a.test\": invalid location \"https://a.test\": URI schemes are not supported",
            ),
            (
                "[[registry]]\nlocation = \"a.test\"\n[[registry.mirror]]\nlocation = \"b.test\"\npull-from-mirror = \"x\"",
                "registry \"a.test\": mirror \"b.test\": pull-from-mirror must be all, digest-only or tag-only",
            ),
            (
                "[[registry]]\nlocation = \"a.test\"\nmirror-by-digest-only = true\n[[registry.mirror]]\nlocation = \"b.test\"\npull-from-mirror = \"all\"",
                "registry \"a.test\": mirror \"b.test\": pull-from-mirror cannot be set together with mirror-by-digest-only",
            ),
            (
                "[[registry]]\nlocation = \"a.test\"\npull-from-mirror = \"all\"",
                "registry \"a.test\": pull-from-mirror is for mirrors only",
            ),
            (
                "[[registry]]\nlocation = \"a.test\"\n[[registry]]\nprefix = \"a.test\"\nlocation = \"a.test\"\nblocked = true",
                "registry \"a.test\" is defined multiple times with conflicting 'blocked' setting",
            ),
        ] {
            assert_eq!(load(&[text]).unwrap_err(), expected, "{text}");
        }
        let error = load(&["[[registry]\nx"]).unwrap_err();
        assert!(error.starts_with("line 1: "), "{error}");
        let short = "[[registry]]\nprefix = \"a.test\"\nlocation = \"short\"";
        let error = sources(&[short], "a.test/x:v1").unwrap_err();
        assert!(
            error.starts_with("rewriting reference: error parsing image reference \"short/x:v1\": "),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "(\\[\\[registry\\]\\]\n)?(prefix|location|blocked)? ?=? ?.{0,40}") {
            let _ = load(&[&text]);
        }

        #[test]
        fn prefix_match_ends_at_segment_border(name in "[a.]{1,6}(:5)?/[a/]{1,4}:v", prefix in "(\\*\\.)?[a.:5/]{1,8}") {
            if let Some(end) = matching(&name, &prefix) {
                prop_assert!(end == name.len() || name[end..].starts_with([':', '/', '@']));
            }
        }
    }
}
