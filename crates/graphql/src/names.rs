//! Mapping of names in a catalog to GraphQL names (docs/design/catalogd.md#graphql-names,
//! docs/design/catalogd.md#graphql-requests).

/// Type of the objects of a schema, or of the elements of a field: `olm.bundle` becomes `OlmBundle`.
pub(crate) fn type_name(name: &str) -> String {
    let name = name.trim_start_matches(|character: char| character.is_ascii_digit());
    let words = name.split(|character: char| !character.is_ascii_alphanumeric());
    match words.map(capitalised).collect::<String>() {
        empty if empty.is_empty() => "Unknown".to_owned(),
        name => name,
    }
}

/// Root field that lists the objects of `schema`: `olm.bundle` becomes `olmbundles`.
pub(crate) fn query_field(schema: &str) -> String {
    let letters = schema.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).chain(['s']).collect()
}

/// Field of a JSON member: `package-name` becomes `packageName`.
pub(crate) fn field_name(member: &str) -> String {
    if member.is_empty() {
        return "value".to_owned();
    }
    let mut words =
        member.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = words.next().map_or_else(String::new, first_word);
    name.extend(words.map(capitalised));
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) { name } else { format!("field_{name}") }
}

/// `true` if the GraphQL grammar accepts the name.
pub(crate) fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') && name.bytes().all(inner)
}

/// `URL` becomes `url`, `CamelCase` becomes `camelCase`.
fn first_word(word: &str) -> String {
    if !word.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return word.to_ascii_lowercase();
    }
    let (first, rest) = word.split_at(1);
    first.to_ascii_lowercase() + rest
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn schema_names_map_to_types_and_root_fields() {
        let rows = [
            ("olm.bundle", "OlmBundle", "olmbundles"),
            ("custom.index", "CustomIndex", "customindexs"),
            ("olm.csv.metadata", "OlmCsvMetadata", "olmcsvmetadatas"),
            ("olmBundle", "Olmbundle", "olmbundles"),
            ("1xs", "Xs", "1xss"),
            ("a.1b", "A1b", "a1bs"),
            ("..", "Unknown", "s"),
            ("12", "Unknown", "12s"),
            (".1", "1", "1s"),
            ("é-x", "X", "xs"),
        ];
        for (schema, ty, field) in rows {
            assert_eq!((type_name(schema).as_str(), query_field(schema).as_str()), (ty, field), "{schema}");
        }
    }

    #[test]
    fn member_names_map_to_fields() {
        let rows = [
            ("package-name", "packageName"),
            ("URL", "url"),
            ("CamelCase", "camelCase"),
            ("123x", "field_123x"),
            ("123", "field_123"),
            ("a.b-c_d", "aBCD"),
            ("---", "field_"),
            ("", "value"),
            ("é", "field_"),
            ("relatedImages", "relatedImages"),
            ("_my__NAME_", "myName"),
            ("my_NAME", "myName"),
            ("$ref", "ref"),
        ];
        for (member, field) in rows {
            assert_eq!(field_name(member), field, "{member}");
        }
    }

    proptest! {
        #[test]
        fn any_member_maps_to_valid_field_name(text in ".*") {
            prop_assert!(is_name(&field_name(&text)));
            // These may begin with a digit, which the schema rejects.
            let names = ["_".to_owned() + &type_name(&text), "_".to_owned() + &query_field(&text)];
            prop_assert!(names.iter().all(|name| is_name(name)));
        }
    }
}
