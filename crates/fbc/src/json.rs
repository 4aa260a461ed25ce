//! JSON text looked at level by level: order and spelling stay, and no nesting can exhaust the stack.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Key and value of a member of an object.
pub(crate) type Member<'a> = (String, &'a RawValue);

/// The members of an object in their order, equal keys included; `None` for anything else.
pub(crate) fn members(value: &RawValue) -> Option<Vec<Member<'_>>> {
    let Members(members) = serde_json::from_str(value.get()).ok()?;
    Some(members)
}

/// The items of a list; `None` for anything else.
pub(crate) fn items(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// The text of a string; `None` for anything else.
pub(crate) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The value of a field, whatever the case of its key; of several the last. `null` counts as absent.
pub(crate) fn field<'a>(members: &[Member<'a>], name: &str) -> Option<&'a RawValue> {
    present(members, name).filter(|value| value.get() != "null")
}

/// Like [`field`], `null` included.
pub(crate) fn present<'a>(members: &[Member<'a>], name: &str) -> Option<&'a RawValue> {
    let name = crate::meta::fold(name);
    let found = members.iter().rev().find(|(key, _)| crate::meta::fold(key) == name)?;
    Some(found.1)
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
