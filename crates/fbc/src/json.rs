//! JSON text parsed level by level: order and spelling are preserved, and nesting cannot exhaust the stack.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Key and value of an object member.
pub(crate) type Member<'a> = (String, &'a RawValue);

/// Members of an object in order, including equal keys. `None` for any other value.
pub(crate) fn members(value: &RawValue) -> Option<Vec<Member<'_>>> {
    let Members(members) = serde_json::from_str(value.get()).ok()?;
    Some(members)
}

/// Items of a list. `None` for any other value.
pub(crate) fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// Text of a string. `None` for any other value.
pub(crate) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Value of a field, with case-insensitive key. The last of several wins. `null` is treated as absent.
pub(crate) fn field<'a>(members: &[Member<'a>], name: &str) -> Option<&'a RawValue> {
    present(members, name).filter(|value| value.get() != "null")
}

/// [`field`], but including `null`.
pub(crate) fn present<'a>(members: &[Member<'a>], name: &str) -> Option<&'a RawValue> {
    let name = crate::meta::fold(name);
    let found = members.iter().rev().find(|(key, _)| crate::meta::fold(key) == name)?;
    Some(found.1)
}

/// String field. Empty if absent.
pub(crate) fn text_field(members: &[Member<'_>], name: &str) -> String {
    field(members, name).and_then(text).unwrap_or_default()
}

/// Items of a list field.
pub(crate) fn item_fields<'a>(members: &[Member<'a>], name: &str) -> impl Iterator<Item = &'a RawValue> {
    field(members, name).and_then(items).unwrap_or_default().into_iter()
}

struct Members<'a>(Vec<Member<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}
