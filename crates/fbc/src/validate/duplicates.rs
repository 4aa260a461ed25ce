//! Objects that a catalog has twice. Reading one of them silently would hide the other.

use std::collections::HashMap;

use olm_version::quote;

use crate::{Meta, Origin, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

/// Names of the packages, channels and bundles of a catalog that were read so far.
#[derive(Debug, Default)]
pub struct Duplicates {
    known: HashMap<(&'static str, String, String), Origin>,
}

impl Duplicates {
    /// Adds the next object.
    ///
    /// # Errors
    /// The catalog has another object of this schema, package and name. The message has the position of both.
    pub fn add(&mut self, meta: &Meta) -> Result<(), String> {
        let schema = match meta.schema.as_str() {
            SCHEMA_PACKAGE => "package",
            SCHEMA_CHANNEL => "channel",
            SCHEMA_BUNDLE => "bundle",
            _ => return Ok(()),
        };
        let key = (schema, meta.owner().to_owned(), meta.name.clone());
        let Some(first) = self.known.get(&key) else {
            self.known.insert(key, meta.origin.clone());
            return Ok(());
        };
        let of = match schema {
            "package" => String::new(),
            _ => format!(" of package {}", quote(meta.owner())),
        };
        Err(format!("{schema} {}{of} occurs twice: {first} and {}", quote(&meta.name), meta.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_object_of_a_name_is_refused_with_both_positions() {
        let file = "{\"schema\": \"olm.package\", \"name\": \"a\"}\n{\"schema\": \"olm.channel\", \"name\": \"a\", \"package\": \"a\"}\n\
                    {\"schema\": \"olm.channel\", \"name\": \"a\", \"package\": \"b\"}\n{\"schema\": \"vendor.x\", \"name\": \"a\"}\n\
                    {\"schema\": \"vendor.x\", \"name\": \"a\"}\n{\"schema\": \"olm.channel\", \"name\": \"a\", \"package\": \"a\"}\n";
        let mut duplicates = Duplicates::default();
        let found: Vec<_> = crate::MetaReader::new(file.as_bytes(), crate::DocumentLimits::default())
            .filter_map(|meta| duplicates.add(&meta.unwrap()).err())
            .collect();
        assert_eq!(
            found,
            ["channel \"a\" of package \"a\" occurs twice: line 2: document 2 and line 6: document 6"]
        );
    }
}
