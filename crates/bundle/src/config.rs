//! Inline configuration of a ClusterExtension: validation against the bundle, and error messages
//! (docs/design/bundles.md#inline-configuration).
//!
//! `jsonschema` evaluates the schema. Wording, order and selection of the errors are ours
//! (docs/design/bundles.md#configuration-errors). Unlike in the reference, null means unset everywhere.

mod schema;
mod selector;
mod warnings;

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use jsonschema::{Draft, PatternOptions};
use olm_version::quote;
use serde_json::{Map, Value};

use crate::bundle::BundleContent;
use crate::csv::InstallMode;
use crate::deployment_config::DeploymentConfig;
use crate::error::RenderError;
use crate::options::RenderOptions;
use crate::typed::{Type, types};
use schema::{
    DEPLOYMENT_CONFIG, MULTI_NAMESPACE, OWN_NAMESPACE, SINGLE_NAMESPACE, WATCH_NAMESPACE, WATCH_NAMESPACES,
    WATCH_SELECTOR,
};

pub use schema::config_schema;
pub use warnings::config_warnings;

/// Parsed configuration.
#[derive(Debug, Default)]
pub(crate) struct Configuration {
    /// Namespaces to watch, sorted. `None` selects the default of the bundle.
    pub(crate) watched: Option<Vec<String>>,
    pub(crate) deployments: Option<DeploymentConfig>,
}

impl Configuration {
    /// Reads the configuration of the options. An absent configuration equals `{}`.
    ///
    /// # Errors
    /// The configuration is invalid for the bundle.
    pub(crate) fn read(bundle: &BundleContent, options: &RenderOptions<'_>) -> Result<Self, RenderError> {
        let choice_needed = options.single_own_namespace || options.takes_several_namespaces(bundle);
        if options.config.is_none() && !choice_needed {
            return Ok(Self::default());
        }
        let mut config = options.config.cloned().unwrap_or_else(|| Value::Object(Map::new()));
        let has_deployments = config.get(DEPLOYMENT_CONFIG).is_some();
        let schema = config_schema(
            bundle,
            options.deployment_config && has_deployments,
            options.multi_watch_namespaces,
        );
        drop_unset(&mut config, &schema);
        check(&config, &schema, &Operator::new(bundle, options))?;
        let deployments = config.get(DEPLOYMENT_CONFIG).map(DeploymentConfig::read).transpose();
        let watched = match config.get(WATCH_SELECTOR) {
            Some(one) => Some(selector::selected(one, &bundle.install_modes(), options)?),
            None => watched(&config),
        };
        Ok(Self { watched, deployments: deployments.map_err(RenderError::DeploymentConfig)? })
    }
}

fn watched(config: &Value) -> Option<Vec<String>> {
    let strings = |value: &Value| value.as_str().map(str::to_string);
    if let Some(one) = config.get(WATCH_NAMESPACE).and_then(strings) {
        return Some(vec![one]);
    }
    let list = config.get(WATCH_NAMESPACES)?.as_array()?;
    let mut several: Vec<String> = list.iter().filter_map(strings).collect();
    several.sort_unstable();
    Some(several)
}

/// Removes known fields that are null. Null list items and values of free keys are kept and fail validation.
fn drop_unset(config: &mut Value, schema: &Value) {
    let Some(fields) = config.as_object_mut() else {
        return;
    };
    fields.retain(|name, value| !value.is_null() || schema["properties"].get(name).is_none());
    if let Some(deployments) = fields.get_mut(DEPLOYMENT_CONFIG) {
        drop_nulls(deployments, &Type::Struct("DeploymentConfig"));
    }
}

fn drop_nulls(value: &mut Value, kind: &Type) {
    match (value, kind) {
        (Value::Object(entries), Type::Struct(name)) => {
            for field in types().fields(name) {
                match entries.get_mut(field.name) {
                    Some(Value::Null) => {
                        entries.remove(field.name);
                    }
                    Some(value) => drop_nulls(value, &field.kind),
                    None => {}
                }
            }
        }
        (Value::Object(entries), Type::Map(element)) => {
            entries.values_mut().for_each(|value| drop_nulls(value, element));
        }
        (Value::Array(items), Type::List(element)) => {
            items.iter_mut().for_each(|item| drop_nulls(item, element));
        }
        _ => {}
    }
}

/// Facts about the operator for error messages.
struct Operator<'a> {
    install_namespace: &'a str,
    /// `true` if `watchNamespace` must be the install namespace.
    own_only: bool,
}

impl<'a> Operator<'a> {
    fn new(bundle: &BundleContent, options: &RenderOptions<'a>) -> Self {
        let modes = bundle.install_modes();
        let own_only =
            modes.contains(&InstallMode::OwnNamespace) && !modes.contains(&InstallMode::SingleNamespace);
        Self { install_namespace: options.install_namespace, own_only }
    }

    /// Reason why only the install namespace is allowed.
    fn own_rule(&self) -> String {
        format!(
            "must be {} (the namespace where the operator is installed) because this operator only supports \
             OwnNamespace install mode",
            quote(self.install_namespace)
        )
    }
}

/// Validates the configuration against the schema of the bundle.
fn check(config: &Value, schema: &Value, operator: &Operator<'_>) -> Result<(), RenderError> {
    let is_install_namespace = |equal: bool| {
        let namespace = operator.install_namespace.to_string();
        move |value: &str| namespace.is_empty() || (value == namespace) == equal
    };
    let validator = jsonschema::options()
        .with_draft(Draft::Draft7)
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .with_format(OWN_NAMESPACE, is_install_namespace(true))
        .with_format(SINGLE_NAMESPACE, is_install_namespace(false))
        .with_format(MULTI_NAMESPACE, is_install_namespace(false))
        .build(schema)
        .map_err(|error| RenderError::Configuration(format!("error compiling schema: {error}")))?;
    let mut errors = Vec::new();
    for error in validator.iter_errors(config) {
        collect(&error, operator, &mut errors);
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(RenderError::Configuration(format!("invalid configuration: {}", joined(errors))))
}

/// Error with its sort key: parents before children, unknown fields last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ConfigError {
    key: Vec<SortKey>,
    text: String,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    /// Keyword about the value itself. The rank orders several keywords.
    Keyword(u8),
    Item(usize),
    Field(String),
    Unknown,
}

fn joined(mut errors: Vec<ConfigError>) -> String {
    errors.sort();
    // After a format error, errors of higher rank about the same value, which follow it, are dropped.
    errors.dedup_by(|next, kept| match (next.key.split_last(), kept.key.split_last()) {
        (Some((SortKey::Keyword(rank), value)), Some((SortKey::Keyword(FORMAT), misformatted))) => {
            *rank > FORMAT && value == misformatted
        }
        _ => false,
    });
    if let [only] = errors.as_slice() {
        return only.text.clone();
    }
    let more = errors.len().saturating_sub(MOST_ERRORS);
    let mut lines: String =
        errors.iter().take(MOST_ERRORS).map(|error| format!("\n  - {}", error.text)).collect();
    if more > 0 {
        lines.push_str(&format!("\n  - and {more} more"));
    }
    format!("multiple errors found:{lines}")
}

/// Maximum number of errors in a message. Further ones are only counted.
const MOST_ERRORS: usize = 100;

/// Rank of the keyword `format` among the errors about one value.
const FORMAT: u8 = 2;

fn collect(error: &ValidationError<'_>, operator: &Operator<'_>, errors: &mut Vec<ConfigError>) {
    let pointer = error.instance_path().to_string();
    // The first branch only allows null, so its error is not helpful.
    if let Kind::AnyOf { context } = error.kind()
        && !pointer.is_empty()
    {
        for error in context.last().into_iter().flatten() {
            collect(error, operator, errors);
        }
        return;
    }
    let path = pointer.strip_prefix('/').unwrap_or_default().replace('/', ".");
    let mut add = |last, text| {
        let mut key = sort_key(&pointer);
        key.push(last);
        errors.push(ConfigError { key, text });
    };
    if let Kind::AdditionalProperties { unexpected } = error.kind() {
        for name in unexpected {
            let text = selector::unknown_field(&path, name);
            add(SortKey::Unknown, text.unwrap_or_else(|| format!("unknown field {}", quote(name))));
        }
    } else {
        let (rank, text) = keyword_error(error.kind(), &path, error.instance(), operator);
        add(SortKey::Keyword(rank), text);
    }
}

/// Rank and text of an error about one value (docs/design/bundles.md#configuration-errors).
fn keyword_error(kind: &Kind, path: &str, value: &Value, operator: &Operator<'_>) -> (u8, String) {
    let field = quote(path);
    let length = value.as_str().unwrap_or_default().chars().count();
    let items = value.as_array().map_or(0, Vec::len);
    match kind {
        Kind::Required { property } => (1, missing(path, property.as_str().unwrap_or_default(), operator)),
        // At the root only: no or several selections of namespaces are present.
        Kind::AnyOf { context } => (1, no_selection(context.iter().flatten())),
        Kind::Not { .. } => {
            (1, format!("fields {} are mutually exclusive", listed(&selections(value), "and")))
        }
        Kind::Type { kind } => (0, wrong_type(path, value, &expected(kind))),
        Kind::OneOfNotValid { .. } => (0, wrong_type(path, value, "string or number")),
        Kind::Format { format } => (FORMAT, wrong_format(path, value, format, operator)),
        Kind::MinLength { limit } => {
            (3, format!("field {field} must have minimum length of {limit} (len={length})"))
        }
        Kind::MaxLength { limit } => {
            (4, format!("field {field} must have maximum length of {limit} (len={length})"))
        }
        Kind::Pattern { pattern } => (5, format!("field {field} must match pattern {}", quote(pattern))),
        Kind::MinItems { limit } => {
            (3, format!("field {field} must have at least {limit} item (len={items})"))
        }
        Kind::MaxItems { limit } => {
            (4, format!("field {field} must have at most {limit} items (len={items})"))
        }
        Kind::MinProperties { limit } => (3, format!("field {field} must have at least {limit} entry")),
        Kind::Enum { options } => (5, format!("field {field} must be one of {}", choices(options))),
        Kind::PropertyNames { error } => {
            (5, format!("key {} of field {field} is not a valid label key", error.instance()))
        }
        Kind::UniqueItems => (5, format!("field {field} must not name a namespace twice")),
        _ => (6, format!("invalid value for field {field}")),
    }
}

/// Fields of the configuration that select namespaces, quoted.
fn selections(config: &Value) -> Vec<String> {
    let all = [WATCH_NAMESPACE, WATCH_NAMESPACES, WATCH_SELECTOR];
    all.into_iter().filter(|field| config.get(field).is_some()).map(quote).collect()
}

/// Error about a missing selection, from the errors of all alternatives.
fn no_selection<'a>(errors: impl Iterator<Item = &'a ValidationError<'a>>) -> String {
    let fields: Vec<String> = errors
        .filter_map(|error| match error.kind() {
            Kind::Required { property } => property.as_str().map(quote),
            _ => None,
        })
        .collect();
    let (first, others) = fields.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let others: Vec<String> = std::iter::once("it".to_owned()).chain(others.iter().cloned()).collect();
    format!("required field {first} is missing: {} must be given", listed(&others, "or"))
}

/// Joins names: `a, b and c`.
fn listed(names: &[String], word: &str) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} {word} {last}", first.join(", ")),
        names => names.join(", "),
    }
}

fn choices(options: &Value) -> String {
    let options = options.as_array().into_iter().flatten().filter_map(Value::as_str);
    options.collect::<Vec<_>>().join(", ")
}

fn missing(path: &str, name: &str, operator: &Operator<'_>) -> String {
    let field = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
    let text = format!("required field {} is missing", quote(&field));
    if field == WATCH_NAMESPACE && operator.own_only && !operator.install_namespace.is_empty() {
        return format!("{text}: {}", operator.own_rule());
    }
    text
}

fn sort_key(pointer: &str) -> Vec<SortKey> {
    let segments = pointer.split('/').skip(1);
    segments
        .map(|segment| segment.parse().map_or_else(|_| SortKey::Field(segment.into()), SortKey::Item))
        .collect()
}

fn expected(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(several) => {
            several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> String {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match (path, value) {
        ("", _) => format!("invalid type: got {got}, want {expected}"),
        (_, Value::Null) => format!("required field {} is missing", quote(path)),
        _ => format!("invalid type for field {}: got {got}, want {expected}", quote(path)),
    }
}

fn wrong_format(path: &str, value: &Value, format: &str, operator: &Operator<'_>) -> String {
    let value = quote(value.as_str().unwrap_or_default());
    let namespace = quote(operator.install_namespace);
    let detail = match format {
        OWN_NAMESPACE => format!(": invalid value {value}: {}", operator.own_rule()),
        SINGLE_NAMESPACE => format!(
            ": invalid value {value}: must be different from {namespace} (the install namespace) because this \
             operator uses SingleNamespace install mode to watch a different namespace"
        ),
        MULTI_NAMESPACE => format!(
            ": invalid value {value}: must be different from {namespace} (the install namespace) because this \
             operator does not support OwnNamespace install mode"
        ),
        _ => String::new(),
    };
    let inner = &value[1..value.len() - 1];
    let inner = inner.replace("\\\"", "\"").replace('\'', "\\'");
    format!("invalid format for field {}: '{inner}' is not valid {format}{detail}", quote(path))
}
