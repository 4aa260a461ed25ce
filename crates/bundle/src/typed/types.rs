//! Parser of `types.txt`. The head of that file documents its syntax.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Number,
    Quantity,
    IntOrString,
    /// RFC 3339 time or null.
    Time,
    /// Any value, not converted.
    Json,
    /// Tolerant semantic version (`spec.version` of a CSV).
    Version,
    /// Schema or boolean.
    SchemaOrBool,
    /// Schema or list of schemas.
    SchemaOrList,
    /// Schema or list of strings.
    SchemaOrStrings,
    List(Box<Type>),
    Map(Box<Type>),
    Struct(&'static str),
}

/// Condition for including a field in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Included unless zero.
    NonZero,
    /// Included if present, even with a zero value.
    Given,
    /// Always included. An absent field gets the zero value of its type.
    Always,
    /// Always included. An absent field becomes null.
    AlwaysOrNull,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) presence: Presence,
    /// `true` if the JSON schema of the type requires the field.
    pub(crate) required: bool,
    /// Go name of the type, if it does not follow from `kind`. For a list of strings, the name of the element type.
    pub(crate) go_name: Option<&'static str>,
    /// Index in the declaration order of the type.
    pub(crate) position: usize,
}

/// All types of the table by name.
pub(crate) struct Types(HashMap<&'static str, Vec<Field>>);

impl Types {
    /// Fields of a type, sorted by name. Empty for an unknown type.
    pub(crate) fn fields(&self, name: &str) -> &[Field] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    fn parse(table: &'static str) -> Self {
        let mut types: HashMap<&'static str, Vec<Field>> = HashMap::new();
        let mut current = "";
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut rest = line;
            if !line.starts_with(' ')
                && let Some((name, fields)) = line.split_once(':')
            {
                (current, rest) = (name, fields);
            }
            let fields = types.entry(current).or_default();
            for text in rest.split_whitespace() {
                fields.push(field(text, fields.len()));
            }
        }
        for fields in types.values_mut() {
            fields.sort_by_key(|field| field.name);
        }
        Self(types)
    }
}

/// Field of this name among the `fields` of a type.
pub(super) fn field_of<'a>(fields: &'a [Field], name: &str) -> Option<&'a Field> {
    let index = fields.binary_search_by(|field| field.name.cmp(name)).ok()?;
    fields.get(index)
}

/// Table compiled into the crate.
pub(crate) fn types() -> &'static Types {
    static TYPES: LazyLock<Types> = LazyLock::new(|| Types::parse(include_str!("types.txt")));
    &TYPES
}

fn field(text: &'static str, position: usize) -> Field {
    let (text, go_name) = text.split_once('/').map_or((text, None), |(text, name)| (text, Some(name)));
    let (marked, kind) =
        text.split_once(':').map_or((text, Type::String), |(name, kind)| (name, kind_of(kind)));
    let name = marked.trim_end_matches(['!', '=', '*', '~', '?']);
    let has = |mark| marked[name.len()..].contains(mark);
    let presence = match (has('!') || has('='), has('~'), has('?')) {
        (true, true, _) => Presence::AlwaysOrNull,
        (true, false, _) => Presence::Always,
        (false, _, true) => Presence::Given,
        (false, _, false) => Presence::NonZero,
    };
    Field { name, kind, presence, required: has('!') || has('*'), go_name, position }
}

fn kind_of(text: &'static str) -> Type {
    let inner = |open, close| text.strip_prefix(open).and_then(|rest: &str| rest.strip_suffix(close));
    if let Some(element) = inner('[', ']') {
        return Type::List(Box::new(kind_of(element)));
    }
    if let Some(element) = inner('{', '}') {
        return Type::Map(Box::new(kind_of(element)));
    }
    match text {
        "s" => Type::String,
        "b" => Type::Bool,
        "i" => Type::Int32,
        "l" => Type::Int64,
        "n" => Type::Number,
        "Q" => Type::Quantity,
        "IntOrString" => Type::IntOrString,
        "Time" => Type::Time,
        "JSON" | "FieldsV1" => Type::Json,
        "Version" => Type::Version,
        "JSONSchemaPropsOrBool" => Type::SchemaOrBool,
        "JSONSchemaPropsOrArray" => Type::SchemaOrList,
        "JSONSchemaPropsOrStringArray" => Type::SchemaOrStrings,
        name => Type::Struct(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_referenced_type_is_defined() {
        fn check(kind: &Type, place: &str) {
            match kind {
                Type::List(element) | Type::Map(element) => check(element, place),
                Type::Struct(name) => assert!(types().0.contains_key(name), "{place} is a {name}"),
                _ => {}
            }
        }
        for (name, fields) in &types().0 {
            for field in fields {
                check(&field.kind, &format!("{name}.{}", field.name));
            }
        }
    }

    #[test]
    fn field_marks_set_presence_and_required() {
        let field = |owner: &str, name: &str| {
            let field = types().fields(owner).iter().find(|field| field.name == name).unwrap();
            (field.presence, field.required)
        };
        assert_eq!(field("Container", "name"), (Presence::Always, true));
        assert_eq!(field("Container", "resources"), (Presence::Always, false));
        assert_eq!(field("Container", "tty"), (Presence::NonZero, false));
        assert_eq!(field("SecurityContext", "runAsUser"), (Presence::Given, false));
        assert_eq!(field("DeploymentSpec", "selector"), (Presence::AlwaysOrNull, true));
        assert_eq!(field("PodCertificateProjection", "keyType"), (Presence::NonZero, true));
        assert_eq!(types().fields("JSONSchemaProps")[0].name, "$ref");
    }
}
