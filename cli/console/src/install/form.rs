//! Fields of the form, and the ClusterExtension that they describe. Pure.

use std::collections::BTreeMap;

use olm_api::ClusterExtension;
use olm_api::cluster_extension::CatalogFilter;
use olm_cli_core::error::CliError;
use olm_cli_core::manifest;
use olm_cli_core::version_expression;
use olm_cli_lifecycle::config::{Configurable, Explained};
use olm_cli_lifecycle::install::{of_catalog, of_package};
use serde_json::{Map, Value, json};

use super::follow::Choice;

/// Values by field name.
pub(super) type Values = BTreeMap<String, String>;
/// Errors by field name. Those of the whole form have an empty name.
pub(super) type Errors = BTreeMap<String, Vec<String>>;

/// Hidden field with the digest of what the preview showed.
pub(super) const PREVIEWED: &str = "previewed";
/// Hidden field with the name of the bundle that the preview showed.
pub(super) const BUNDLE: &str = "bundle";
/// Controls of every form.
const CONTROLS: [&str; 8] =
    ["name", "namespace", "create_namespace", "channel", "follow", "range", "version", "preview"];
/// Fields that only the form of a write has.
const OF_WRITE: [&str; 3] = [PREVIEWED, BUNDLE, "csrf"];

/// Field of `spec.config.inline`.
#[derive(Debug, PartialEq)]
pub(super) struct Field {
    /// Path, such as `deploymentConfig.env`. It is also the name of the control.
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) help: String,
    /// Type in the notation of `olm config explain`.
    pub(super) notation: String,
}

/// Control of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One name.
    Name,
    /// Names, separated by commas or white space.
    Names,
    Yaml,
}

/// Fields that the configuration schema of a bundle has.
pub(super) fn config_fields(bundle: &Configurable) -> Vec<Field> {
    bundle.explained(&["deploymentConfig"]).into_iter().map(field).collect()
}

fn field(explained: Explained) -> Field {
    let kind = match explained.path.as_str() {
        "watchNamespace" => Kind::Name,
        "watchNamespaces" => Kind::Names,
        _ => Kind::Yaml,
    };
    Field { path: explained.path, kind, help: explained.help, notation: explained.kind }
}

/// Fields for the values that the form has no field for, such as when the bundle cannot be read. Without them, the
/// values would get lost without notice.
pub(super) fn orphans(values: &Values, fields: &[Field]) -> Vec<Field> {
    let is_known = |name: &str| {
        CONTROLS.contains(&name) || OF_WRITE.contains(&name) || fields.iter().any(|field| field.path == name)
    };
    let names = values.keys().filter(|name| !is_known(name) && !value(values, name).is_empty());
    let orphan = |name: &String| Field {
        path: name.clone(),
        kind: Kind::Yaml,
        help: "This value is not used.".to_owned(),
        notation: "any".to_owned(),
    };
    names.map(orphan).collect()
}

/// Values of the form itself, without what a write adds.
pub(super) fn kept(values: &Values) -> impl Iterator<Item = (&String, &String)> {
    values.iter().filter(|(name, _)| !OF_WRITE.contains(&name.as_str()))
}

/// Trimmed value of a field. Empty if it is not set.
pub(super) fn value<'a>(values: &'a Values, name: &str) -> &'a str {
    values.get(name).map_or("", |value| value.trim())
}

/// Builds the extension, and validates it as the API server does. `suggested` is its namespace unless the user names one.
pub(super) fn extension(
    catalog: Option<&str>,
    package: &str,
    suggested: &str,
    choice: &Choice,
    values: &Values,
    fields: &[Field],
) -> (ClusterExtension, Errors) {
    let mut errors = Errors::new();
    let optional = |name| Some(value(values, name)).filter(|text| !text.is_empty()).map(str::to_owned);
    let filter = CatalogFilter {
        package_name: package.to_owned(),
        version: choice.version().map(str::to_owned),
        channels: choice.channel().map(str::to_owned).into_iter().collect(),
        selector: catalog.map(of_catalog),
        upgrade_constraint_policy: None,
    };
    choice.check(&mut errors);
    let of_version = choice.follow.as_str();
    if let Some(Err(error)) = filter.version.as_deref().map(version_expression::check) {
        errors.entry(of_version.to_owned()).or_default().push(error.to_string());
    }
    let config = config(values, fields, &mut errors);
    for orphan in orphans(values, fields) {
        let why =
            "the bundle has no such field, or cannot be read: remove the value, or choose another version";
        errors.entry(orphan.path).or_default().push(why.to_owned());
    }
    let name = optional("name").unwrap_or_else(|| package.to_owned());
    let namespace = optional("namespace").unwrap_or_else(|| suggested.to_owned());
    let extension = of_package(&name, &namespace, filter, config);
    // An extension always serializes.
    let object = serde_json::to_value(&extension).unwrap_or_default();
    for error in manifest::validation_errors(&object) {
        let (path, text) = error.split_once(": ").unwrap_or(("", &error));
        let field = match field_of(path) {
            "version" => of_version,
            field => field,
        };
        let texts = errors.entry(field.to_owned()).or_default();
        texts.push(in_words(field, text));
        texts.dedup();
    }
    (extension, errors)
}

/// Field of the form for a path of the object.
fn field_of(path: &str) -> &'static str {
    let known = [
        ("metadata.name", "name"),
        ("spec.namespace", "namespace"),
        ("spec.source.catalog.version", "version"),
        ("spec.source.catalog.channels", "channel"),
    ];
    known.iter().find(|(known, _)| path.starts_with(known)).map_or("", |(_, name)| name)
}

/// Error of the API server in words that fit beside the field.
fn in_words(field: &str, text: &str) -> String {
    let rule = "lower-case letters, digits and hyphens, and begins and ends with a letter or digit";
    match field {
        "namespace" if text.contains("DNS1123") => format!("A namespace has {rule}."),
        "name" if text.contains("DNS1123") => format!("A name has dots, {rule}."),
        _ => text.to_owned(),
    }
}

fn config(values: &Values, fields: &[Field], errors: &mut Errors) -> Option<Map<String, Value>> {
    let mut config = Map::new();
    for field in fields {
        let text = value(values, &field.path);
        if text.is_empty() {
            continue;
        }
        match parsed(field.kind, text) {
            Ok(value) => insert(&mut config, &field.path, value),
            Err(error) => errors.entry(field.path.clone()).or_default().push(error.to_string()),
        }
    }
    (!config.is_empty()).then_some(config)
}

fn parsed(kind: Kind, text: &str) -> Result<Value, CliError> {
    match kind {
        Kind::Name => Ok(json!(text)),
        Kind::Names => {
            let names = text.split([',', ' ', '\n', '\t', '\r']).filter(|name| !name.is_empty());
            Ok(json!(names.collect::<Vec<_>>()))
        }
        Kind::Yaml => olm_cli_lifecycle::rendering::inline(text),
    }
}

/// Sets the value at a path of one or two names.
fn insert(config: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(config.insert(path.to_owned(), value)),
        Some((outer, inner)) => {
            let outer = config.entry(outer).or_insert_with(|| json!({}));
            outer[inner] = value;
        }
    }
}

/// Places an error of the renderer at the field that it names, the longest if there are several.
pub(super) fn place(text: &str, fields: &[Field]) -> String {
    let word = |path: &str| {
        let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        text.match_indices(path).any(|(at, _)| {
            ends(text[..at].chars().next_back()) && ends(text[at + path.len()..].chars().next())
        })
    };
    let named = fields.iter().filter(|field| word(&field.path));
    named.map(|field| field.path.clone()).max_by_key(String::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use olm_cli_catalog::package::CatalogPackage;
    use olm_resolve::Indexing;

    use super::*;

    fn fields() -> Vec<Field> {
        let field = |path: &str, kind| Field {
            path: path.to_owned(),
            kind,
            help: String::new(),
            notation: String::new(),
        };
        vec![
            field("watchNamespace", Kind::Name),
            field("watchNamespaces", Kind::Names),
            field("deploymentConfig.env", Kind::Yaml),
            field("deploymentConfig.nodeSelector", Kind::Yaml),
        ]
    }

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Package with channel `stable` and version 1.0.0.
    fn choice(values: &Values) -> Choice {
        let metas = [
            json!({"schema": "olm.package", "name": "pipe", "defaultChannel": "stable"}),
            json!({"schema": "olm.channel", "package": "pipe", "name": "stable", "entries": [{"name": "pipe.v1.0.0"}]}),
            json!({"schema": "olm.bundle", "package": "pipe", "name": "pipe.v1.0.0", "image": "i", "properties": [
                {"type": "olm.package", "value": {"packageName": "pipe", "version": "1.0.0"}}]}),
        ];
        let lines: Vec<Vec<u8>> = metas.iter().map(|meta| meta.to_string().into_bytes()).collect();
        let package = CatalogPackage::new("hub", "pipe", &lines, Indexing::default()).unwrap();
        Choice::new(&package, values)
    }

    #[test]
    fn extension_follows_the_default_channel_unless_asked_otherwise() {
        for (form, version, channels) in [
            (&[][..], None, &["stable"][..]),
            (&[("channel", "")], None, &[]),
            (&[("version", "1.0.0")], Some("1.0.0"), &["stable"]),
            (&[("version", "1.x")], Some("1.x"), &["stable"]),
            (&[("follow", "channel"), ("version", "1.0.0")], None, &["stable"]),
            (&[("follow", "range"), ("version", "1.0.0"), ("range", "1.x")], Some("1.x"), &["stable"]),
            (&[("follow", "version"), ("version", "1.0.0"), ("channel", "")], Some("1.0.0"), &[]),
        ] {
            let values = values(&[form, &[("namespace", "ns")]].concat());
            let (extension, errors) = extension(None, "pipe", "pipe-system", &choice(&values), &values, &[]);
            assert_eq!(errors, Errors::new(), "{form:?}");
            let catalog = extension.spec.unwrap().source.catalog.unwrap();
            assert_eq!(
                (catalog.version.as_deref(), catalog.channels),
                (version, channels.iter().map(|one| (*one).to_owned()).collect()),
                "{form:?}"
            );
        }
        // A range is neither missing nor dropped.
        for form in [&[("follow", "range")][..], &[("follow", "channel"), ("range", "1.x")]] {
            let values = values(form);
            let (_, errors) = extension(None, "pipe", "pipe-system", &choice(&values), &values, &[]);
            assert_eq!(errors.keys().collect::<Vec<_>>(), ["range"], "{form:?}");
        }
    }

    #[test]
    fn form_becomes_the_extension_of_olm_install() {
        let values = values(&[
            ("namespace", " ns "),
            ("version", "1.x"),
            ("channel", "stable"),
            ("watchNamespaces", "a, b"),
            ("deploymentConfig.nodeSelector", "disk: ssd"),
            ("deploymentConfig.env", "- name: A\n  value: b"),
            ("unknown", " "),
            ("create_namespace", "yes"),
            ("preview", "yes"),
            ("previewed", "sha256:0"),
        ]);
        let (extension, errors) =
            extension(Some("hub"), "pipe", "pipe-system", &choice(&values), &values, &fields());
        assert_eq!(errors, Errors::new());
        let object = serde_json::to_value(&extension).unwrap();
        assert_eq!(object["metadata"]["name"], "pipe");
        let expected = json!({
            "namespace": "ns",
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "pipe", "version": "1.x", "channels": ["stable"],
                "selector": {"matchLabels": {"olm.operatorframework.io/metadata.name": "hub"}}}},
            "config": {"configType": "Inline", "inline": {"watchNamespaces": ["a", "b"], "deploymentConfig": {
                "nodeSelector": {"disk": "ssd"}, "env": [{"name": "A", "value": "b"}]}}},
        });
        assert_eq!(object["spec"], expected);
    }

    #[test]
    fn value_without_a_field_is_an_error_and_stays_visible() {
        let values = values(&[("namespace", "ns"), ("watchNamespace", "a"), ("csrf", "x"), ("bundle", "x")]);
        let (_, errors) = extension(None, "pipe", "pipe-system", &choice(&values), &values, &[]);
        assert_eq!(errors.keys().collect::<Vec<_>>(), ["watchNamespace"]);
        let orphans = orphans(&values, &[]);
        assert_eq!(orphans.iter().map(|field| field.path.as_str()).collect::<Vec<_>>(), ["watchNamespace"]);
        assert_eq!(
            extension(None, "pipe", "pipe-system", &choice(&values), &values, &fields()).1,
            Errors::new()
        );
    }

    #[test]
    fn errors_are_placed_at_their_field() {
        let values = values(&[
            ("name", "Pipe"),
            ("namespace", "N_S"),
            ("version", "1.*.x y"),
            ("deploymentConfig.env", "[a"),
        ]);
        let (_, errors) = extension(None, "pipe", "pipe-system", &choice(&values), &values, &fields());
        let names: Vec<&str> = errors.keys().map(String::as_str).collect();
        assert_eq!(names, ["deploymentConfig.env", "name", "namespace", "range"], "{errors:?}");
    }

    #[test]
    fn error_of_the_renderer_is_placed_at_the_most_exact_field() {
        let place = |text: &str| place(text, &fields());
        assert_eq!(place("invalid value for watchNamespaces: …"), "watchNamespaces");
        assert_eq!(place("deploymentConfig.env.0: unknown field"), "deploymentConfig.env");
        assert_eq!(place("watchNamespace \"x\" is invalid"), "watchNamespace");
        assert_eq!(place("the bundle has no CRD"), "");
    }
}
