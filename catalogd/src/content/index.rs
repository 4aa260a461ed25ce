//! Which byte ranges of the content answer a query (spec 02 §D3). Pure.

use std::collections::HashMap;
use std::ops::Range;

use olm_fbc::Selector;
use serde::{Deserialize, Serialize};

/// One blob: its length and its three fields as positions in the table of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Blob(u32, u32, u32, u32);

/// The blobs of a catalog in stored order; they follow each other without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Each schema, package and name once.
    texts: Vec<String>,
    blobs: Vec<Blob>,
}

impl Index {
    /// Length of the whole content in bytes.
    pub fn content_length(&self) -> u64 {
        self.blobs.iter().map(|blob| u64::from(blob.0)).sum()
    }

    /// Whether every blob refers to texts that exist; anything else is not ours.
    pub fn is_consistent(&self) -> bool {
        let texts = self.texts.len();
        self.blobs.iter().all(|Blob(_, schema, package, name)| {
            [schema, package, name].into_iter().all(|&text| (text as usize) < texts)
        })
    }

    /// The byte ranges that answer `selector`, ascending, neighbours joined.
    pub fn ranges(&self, selector: &Selector) -> Vec<Range<u64>> {
        if selector.selects_all() {
            let whole = 0..self.content_length();
            return std::iter::once(whole).filter(|range| !range.is_empty()).collect();
        }
        // A text that the catalog does not have matches nothing; an empty one matches everything.
        let position = |wanted: &str| match wanted {
            "" => Some(None),
            wanted => self.texts.iter().position(|text| text == wanted).map(Some),
        };
        let (Some(schema), Some(package), Some(name)) =
            (position(&selector.schema), position(&selector.package), position(&selector.name))
        else {
            return Vec::new();
        };
        let is = |wanted: Option<usize>, found: u32| wanted.is_none_or(|wanted| wanted == found as usize);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut start = 0;
        for blob in &self.blobs {
            let end = start + u64::from(blob.0);
            let has_schema = !self.text(blob.1).is_empty();
            if has_schema && is(schema, blob.1) && is(package, blob.2) && is(name, blob.3) {
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            }
            start = end;
        }
        ranges
    }

    fn text(&self, position: u32) -> &str {
        self.texts.get(position as usize).map_or("", String::as_str)
    }
}

/// Builds an [`Index`] blob by blob.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    index: Index,
    positions: HashMap<String, u32>,
}

impl IndexBuilder {
    /// Appends a blob of `length` bytes.
    ///
    /// # Errors
    /// More bytes or texts than an index can number.
    pub(super) fn push(&mut self, length: usize, fields: [&str; 3]) -> Result<(), TooLarge> {
        let length = u32::try_from(length).map_err(|_| TooLarge)?;
        let [schema, package, name] = fields;
        let blob = Blob(length, self.intern(schema)?, self.intern(package)?, self.intern(name)?);
        self.index.blobs.push(blob);
        Ok(())
    }

    fn intern(&mut self, text: &str) -> Result<u32, TooLarge> {
        if let Some(position) = self.positions.get(text) {
            return Ok(*position);
        }
        let position = u32::try_from(self.index.texts.len()).map_err(|_| TooLarge)?;
        self.index.texts.push(text.to_owned());
        self.positions.insert(text.to_owned(), position);
        Ok(position)
    }

    pub(super) fn finish(mut self) -> Index {
        self.index.texts.shrink_to_fit();
        self.index.blobs.shrink_to_fit();
        self.index
    }
}

/// A blob of 4 GiB or more, or four thousand million different texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an object of the catalog is larger than 4 GiB")]
pub struct TooLarge;

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index(blobs: &[(usize, [&str; 3])]) -> Index {
        let mut builder = IndexBuilder::default();
        for (length, fields) in blobs {
            builder.push(*length, *fields).unwrap();
        }
        builder.finish()
    }

    fn selector(schema: &str, package: &str, name: &str) -> Selector {
        Selector { schema: schema.to_owned(), package: package.to_owned(), name: name.to_owned() }
    }

    // spec 02 acceptance 52
    #[test]
    fn queries() {
        let index = index(&[
            (10, ["olm.package", "", "foo"]),
            (20, ["olm.channel", "foo", "stable"]),
            (5, ["", "foo", "noschema"]),
            (30, ["olm.bundle", "foo", "foo.v0"]),
            (30, ["olm.bundle", "foo", "foo.v1"]),
        ]);
        let rows: [(_, &[Range<u64>]); 9] = [
            (("", "", ""), &[0..95]),
            (("olm.package", "", ""), &[0..10]),
            (("", "foo", ""), &[10..30, 35..95]),
            (("", "foo", "stable"), &[10..30]),
            (("olm.bundle", "foo", "foo.v1"), &[65..95]),
            (("none", "", ""), &[]),
            (("", "", "noschema"), &[]),
            (("olm.bundle", "bar", ""), &[]),
            (("Olm.bundle", "", ""), &[]),
        ];
        for ((schema, package, name), expect) in rows {
            let selector = selector(schema, package, name);
            assert_eq!(index.ranges(&selector), expect, "{selector:?}");
        }
        assert_eq!(Index::default().ranges(&selector("", "", "")), []);
        assert!(index.is_consistent());
        let json = serde_json::to_vec(&index).unwrap();
        assert_eq!(serde_json::from_slice::<Index>(&json).unwrap(), index);
        let broken: Index = serde_json::from_str(r#"{"texts":["a"],"blobs":[[1,0,0,1]]}"#).unwrap();
        assert!(!broken.is_consistent());
    }

    proptest! {
        /// The ranges hold exactly the blobs that the selector of `olm-fbc` matches.
        #[test]
        fn as_the_selector_says(
            blobs in proptest::collection::vec((1usize..4, "[ab]?", "[ab]?", "[ab]?"), 0..12),
            wanted in ("[abc]?", "[abc]?", "[abc]?"),
        ) {
            let rows: Vec<_> =
                blobs.iter().map(|(length, a, b, c)| (*length, [a.as_str(), b.as_str(), c.as_str()])).collect();
            let selector = selector(&wanted.0, &wanted.1, &wanted.2);
            let mut expect = Vec::new();
            let mut start = 0u64;
            for (length, [schema, package, name]) in &rows {
                let end = start + *length as u64;
                if selector.matches(schema, package, name) {
                    expect.extend(start..end);
                }
                start = end;
            }
            let got: Vec<u64> = index(&rows).ranges(&selector).into_iter().flatten().collect();
            prop_assert_eq!(got, expect);
        }
    }
}
