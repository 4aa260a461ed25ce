//! Members of a JSON object by GraphQL field name. Unwanted members are skipped without allocation.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::names::field_name;

/// JSON text of members by field name.
pub(crate) type Members<'a> = BTreeMap<String, &'a RawValue>;

/// Elements of an array that discovery inspects.
const SAMPLE: usize = 10;

/// Members of the object `json` whose field `selects` accepts. If several map to the same field name, the one with
/// exactly that name wins, otherwise the first. At most `limit` members are returned.
///
/// # Errors
/// `json` is not an object.
pub(crate) fn members<'a>(
    json: &'a str,
    limit: usize,
    selects: &dyn Fn(&str) -> bool,
) -> serde_json::Result<Members<'a>> {
    let visitor = MembersVisitor { limit, selects };
    serde_json::Deserializer::from_str(json).deserialize_map(visitor)
}

struct MembersVisitor<'w> {
    limit: usize,
    selects: &'w dyn Fn(&str) -> bool,
}

impl<'de> Visitor<'de> for MembersVisitor<'_> {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Members::new();
        while let Some(member) = map.next_key::<String>()? {
            let field = field_name(&member);
            let is_known = members.contains_key(&field);
            let is_first = !is_known && members.len() < self.limit;
            if (self.selects)(&field) && (is_first || is_known && member == field) {
                members.insert(field, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(members)
    }
}

/// Passes each element of the array `json` to `each` until that fails.
///
/// # Errors
/// `json` is not an array, or an error of `each`.
pub(crate) fn for_each_element<'a>(
    json: &'a str,
    each: &mut dyn FnMut(&'a str) -> Result<(), String>,
) -> serde_json::Result<()> {
    serde_json::Deserializer::from_str(json).deserialize_seq(ElementsVisitor(each))
}

struct ElementsVisitor<'a, 'e>(&'e mut dyn FnMut(&'a str) -> Result<(), String>);

impl<'de> Visitor<'de> for ElementsVisitor<'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&RawValue>()? {
            (self.0)(element.get()).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// First elements of the array `json`. Empty for any other value.
pub(crate) fn sample(json: &str) -> Vec<&str> {
    let mut sample = Vec::new();
    // The error ends the walk early.
    let _ = for_each_element(json, &mut |element| {
        sample.push(element);
        if sample.len() < SAMPLE { Ok(()) } else { Err(String::new()) }
    });
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_with_exact_field_name_wins() {
        let of = |json, name: &str| {
            let members = members(json, 9, &|field| field == name).unwrap();
            members.get(name).map(|value| value.get().to_owned())
        };
        assert_eq!(of(r#"{"A-B":1,"aB":2,"a_b":3}"#, "aB"), Some("2".to_owned()));
        assert_eq!(of(r#"{"a-b":1,"a_b":3}"#, "aB"), Some("1".to_owned()));
        assert_eq!(of(r#"{"c":{"aB":1}}"#, "aB"), None);
        assert_eq!(of(r#"{"a\u0062":[ 1, {} ]}"#, "ab"), Some("[ 1, {} ]".to_owned()));
    }

    #[test]
    fn members_and_samples_are_limited() {
        assert_eq!(members("{\"a\":1,\"b\":2}", 1, &|_| true).unwrap().len(), 1);
        assert!(members("[1]", 9, &|_| true).is_err());
        assert!(members("{", 9, &|_| true).is_err());
        assert_eq!(sample("[1,\"a\",{}]"), ["1", "\"a\"", "{}"]);
        assert_eq!(sample(&format!("[{}0]", "0,".repeat(99))).len(), SAMPLE);
        assert_eq!(sample("{}"), [""; 0]);
    }
}
