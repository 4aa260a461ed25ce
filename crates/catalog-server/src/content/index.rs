//! The byte ranges of the content that answer a query (docs/design/catalogd.md#index). Pure.

use std::collections::HashMap;
use std::ops::Range;

use olm_fbc::MetaSelector;
use serde::{Deserialize, Serialize, Serializer};

/// Maximum number of objects in a catalog. This limit and the next two bound the index in memory to about 50 MB.
/// The largest catalogs of the field have a twentieth of each.
const OBJECTS: usize = 200_000;
/// Maximum number of distinct schemas, packages and names in a catalog.
const NAMES: usize = 200_000;
/// Maximum length of all schemas, packages and names together, in bytes.
const NAME_BYTES: usize = 16 << 20;

/// Maximum length of a catalog's content in bytes. Aliases in YAML files can expand to far more than an image has.
const CONTENT_BYTES: usize = 2 << 30;

/// One blob: its length and its three fields (schema, package, name) as indexes into the table of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Blob(u32, u32, u32, u32);

impl Blob {
    fn fields(self) -> [u32; 3] {
        [self.1, self.2, self.3]
    }
}

/// The serialized form: the blobs of a catalog in stored order. They follow each other without gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Blobs {
    /// Each schema, package and name once.
    texts: Vec<String>,
    blobs: Vec<Blob>,
}

/// The blobs of a catalog with lookup tables, so that the cost of a query depends on its result only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Blobs")]
pub struct Index {
    stored: Blobs,
    /// End offset of each blob in the content.
    ends: Vec<u64>,
    /// Indexes of the texts, sorted by text.
    sorted: Vec<u32>,
    /// Per field: all blobs, ordered by the index of their text, ascending for each text.
    by_field: [Vec<u32>; 3],
}

/// A query with its progress. An answer may have more ranges than fit into memory for each reader.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// Indexes of requested fields and texts, the rarest first.
    filters: Vec<(usize, usize)>,
    /// Number of blobs with the rarest text that were examined.
    next: usize,
    /// Range that the next blob may extend.
    pending: Option<Range<u64>>,
}

/// Error of an index whose blobs refer to missing texts, or whose numbers do not fit into `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the index is not consistent")]
pub struct Inconsistent;

impl TryFrom<Blobs> for Index {
    type Error = Inconsistent;

    fn try_from(stored: Blobs) -> Result<Self, Inconsistent> {
        let texts = u32::try_from(stored.texts.len()).map_err(|_| Inconsistent)?;
        u32::try_from(stored.blobs.len()).map_err(|_| Inconsistent)?;
        if stored.blobs.iter().any(|blob| blob.fields().into_iter().any(|text| text >= texts)) {
            return Err(Inconsistent);
        }
        Ok(Self::new(stored))
    }
}

impl Serialize for Index {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.stored.serialize(serializer)
    }
}

impl Index {
    /// Builds the tables. All indexes in `stored` must be valid.
    fn new(stored: Blobs) -> Self {
        let mut sorted: Vec<u32> = (0..).take(stored.texts.len()).collect();
        sorted.sort_unstable_by_key(|&text| stored.texts[text as usize].as_str());
        let mut end = 0;
        let ends = stored.blobs.iter().map(|blob| {
            end += u64::from(blob.0);
            end
        });
        let ends = ends.collect();
        let by_field = [0, 1, 2].map(|field| {
            let mut blobs: Vec<u32> = (0..).take(stored.blobs.len()).collect();
            blobs.sort_by_key(|&blob| stored.blobs[blob as usize].fields()[field]);
            blobs
        });
        Self { stored, ends, sorted, by_field }
    }

    /// Length of the whole content in bytes.
    pub fn content_length(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The byte ranges that answer `selector`, ascending, adjacent ones joined.
    pub fn ranges<'a>(&'a self, selector: &MetaSelector) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let mut query = self.query(selector);
        std::iter::from_fn(move || self.next_range(&mut query))
    }

    /// Starts the query for `selector`.
    pub(super) fn query(&self, selector: &MetaSelector) -> Query {
        if selector.selects_all() {
            let whole = Some(0..self.content_length()).filter(|whole| !whole.is_empty());
            return Query { filters: Vec::new(), next: 0, pending: whole };
        }
        // A text that the catalog does not have matches nothing. An empty one matches everything.
        let fields = [&selector.schema, &selector.package, &selector.name].into_iter().enumerate();
        let filters = fields.filter(|(_, text)| !text.is_empty());
        let filters: Option<Vec<_>> =
            filters.map(|(field, text)| Some((field, self.position(text)?))).collect();
        let mut filters = filters.unwrap_or_default();
        filters.sort_by_key(|&(field, text)| self.having(field, text).len());
        Query { filters, next: 0, pending: None }
    }

    /// The next range of the answer to `query`.
    pub(super) fn next_range(&self, query: &mut Query) -> Option<Range<u64>> {
        let rarest = query.filters.first().map_or(&[][..], |&(field, text)| self.having(field, text));
        for &blob in rarest.iter().skip(query.next) {
            query.next += 1;
            let blob = blob as usize;
            let fields = self.stored.blobs[blob].fields().map(|text| text as usize);
            let has_schema = self.stored.texts.get(fields[0]).is_some_and(|schema| !schema.is_empty());
            if !has_schema || query.filters.iter().any(|&(field, text)| fields[field] != text) {
                continue;
            }
            let range = self.range(blob);
            match &mut query.pending {
                Some(pending) if pending.end == range.start => pending.end = range.end,
                pending => {
                    if let Some(complete) = pending.replace(range) {
                        return Some(complete);
                    }
                }
            }
        }
        query.pending.take()
    }

    /// The ranges of at most `limit` blobs of `schema` after the first `offset`, not joined.
    pub fn page(&self, schema: &str, offset: usize, limit: usize) -> Vec<Range<u64>> {
        let blobs = self.position(schema).map_or(&[][..], |schema| self.having(0, schema));
        blobs.iter().skip(offset).take(limit).map(|&blob| self.range(blob as usize)).collect()
    }

    /// All blobs, each with its schema and range.
    pub fn blobs(&self) -> impl Iterator<Item = (&str, Range<u64>)> {
        let schema = |blob: &Blob| self.stored.texts.get(blob.1 as usize).map_or("", String::as_str);
        self.stored.blobs.iter().enumerate().map(move |(number, blob)| (schema(blob), self.range(number)))
    }

    fn range(&self, blob: usize) -> Range<u64> {
        let start = blob.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[blob]
    }

    /// The blobs whose `field` is this text, ascending.
    fn having(&self, field: usize, text: usize) -> &[u32] {
        let of = |&blob: &u32| self.stored.blobs[blob as usize].fields()[field] as usize;
        let blobs = &self.by_field[field];
        &blobs[blobs.partition_point(|blob| of(blob) < text)..blobs.partition_point(|blob| of(blob) <= text)]
    }

    /// Index of `text` in the table of texts.
    fn position(&self, text: &str) -> Option<usize> {
        let known = |&position: &u32| self.stored.texts[position as usize].as_str();
        let found = self.sorted.binary_search_by_key(&text, known).ok()?;
        self.sorted.get(found).map(|&position| position as usize)
    }
}

/// Builds an [`Index`] blob by blob.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    stored: Blobs,
    positions: HashMap<String, u32>,
    /// Length of all texts.
    text_bytes: usize,
    /// Length of all blobs.
    content_bytes: usize,
}

impl IndexBuilder {
    /// Appends a blob of `length` bytes.
    ///
    /// # Errors
    /// The blob, or the index with it, exceeds a limit.
    pub(super) fn push(&mut self, length: usize, fields: [&str; 3]) -> Result<(), TooLarge> {
        TooLarge::check("objects", self.stored.blobs.len() + 1, OBJECTS)?;
        self.content_bytes = self.content_bytes.saturating_add(length);
        TooLarge::check("content-bytes", self.content_bytes, CONTENT_BYTES)?;
        let length = u32::try_from(length).map_err(|_| TooLarge::Object)?;
        let [schema, package, name] = fields;
        let blob = Blob(length, self.intern(schema)?, self.intern(package)?, self.intern(name)?);
        self.stored.blobs.push(blob);
        Ok(())
    }

    fn intern(&mut self, text: &str) -> Result<u32, TooLarge> {
        if let Some(position) = self.positions.get(text) {
            return Ok(*position);
        }
        TooLarge::check("names", self.stored.texts.len() + 1, NAMES)?;
        // Counted as serialized: JSON needs six bytes for a control character.
        self.text_bytes += text.bytes().map(|byte| if byte < b' ' { 6 } else { 1 }).sum::<usize>();
        TooLarge::check("name-bytes", self.text_bytes, NAME_BYTES)?;
        let position = u32::try_from(self.stored.texts.len()).map_err(|_| TooLarge::Object)?;
        self.stored.texts.push(text.to_owned());
        self.positions.insert(text.to_owned(), position);
        Ok(position)
    }

    pub(super) fn finish(mut self) -> Index {
        drop(self.positions);
        self.stored.texts.shrink_to_fit();
        self.stored.blobs.shrink_to_fit();
        Index::new(self.stored)
    }
}

/// Error of content that exceeds a limit of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// A blob of 4 GiB or more.
    #[error("an object of the catalog is larger than 4 GiB")]
    Object,
    /// A limit on the content, or on the memory of its index, is exceeded.
    #[error("catalog exceeds limit {key}: {value} > {max}")]
    Limit {
        /// `objects`, `names`, `name-bytes` or `content-bytes`.
        key: &'static str,
        /// Value of the catalog up to the object that exceeds the limit.
        value: usize,
        /// The limit.
        max: usize,
    },
}

impl TooLarge {
    fn check(key: &'static str, value: usize, max: usize) -> Result<(), Self> {
        if value > max { Err(Self::Limit { key, value, max }) } else { Ok(()) }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the list has one element, a range")]
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

    fn selector(schema: &str, package: &str, name: &str) -> MetaSelector {
        MetaSelector { schema: schema.to_owned(), package: package.to_owned(), name: name.to_owned() }
    }

    // Case catalogd-52
    #[test]
    fn queries_return_joined_ranges_and_index_round_trips() {
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
            assert_eq!(index.ranges(&selector).collect::<Vec<_>>(), expect, "{selector:?}");
        }
        assert_eq!(Index::default().ranges(&selector("", "", "")).next(), None);
        let json = serde_json::to_vec(&index).unwrap();
        assert_eq!(serde_json::from_slice::<Index>(&json).unwrap(), index);
        let broken = serde_json::from_str::<Index>(r#"{"texts":["a"],"blobs":[[1,0,0,1]]}"#);
        assert_eq!(broken.unwrap_err().to_string(), Inconsistent.to_string());
    }

    #[test]
    fn content_above_a_limit_is_refused() {
        let refusal = |refused: Result<(), TooLarge>| refused.unwrap_err().to_string();
        let mut builder = IndexBuilder::default();
        (0..OBJECTS).for_each(|_| builder.push(1, ["a", "", ""]).unwrap());
        let refused = builder.push(1, ["a", "", ""]);
        assert_eq!(refusal(refused), "catalog exceeds limit objects: 200001 > 200000");

        let mut builder = IndexBuilder::default();
        (0..CONTENT_BYTES >> 24).for_each(|_| builder.push(1 << 24, ["a", "", ""]).unwrap());
        let refused = builder.push(1, ["a", "", ""]);
        assert_eq!(refusal(refused), "catalog exceeds limit content-bytes: 2147483649 > 2147483648");

        let mut builder = IndexBuilder::default();
        builder.push(1, ["a", "", &"n".repeat(NAME_BYTES - 1)]).unwrap();
        builder.push(1, ["a", "", ""]).unwrap();
        let refused = builder.push(1, ["a", "", "b"]);
        assert_eq!(refusal(refused), "catalog exceeds limit name-bytes: 16777217 > 16777216");

        let mut builder = IndexBuilder::default();
        (2..NAMES).for_each(|name| builder.push(1, ["a", "", &name.to_string()]).unwrap());
        let refused = builder.push(1, ["b", "", ""]);
        assert_eq!(refusal(refused), "catalog exceeds limit names: 200001 > 200000");
    }

    proptest! {
        /// The ranges contain exactly the blobs that the selector of `olm-fbc` matches.
        #[test]
        fn ranges_match_selector(
            blobs in proptest::collection::vec((1usize..4, "[ab]?", "[ab]?", "[ab]?"), 0..12),
            texts in ("[abc]?", "[abc]?", "[abc]?"),
        ) {
            let rows: Vec<_> =
                blobs.iter().map(|(length, a, b, c)| (*length, [a.as_str(), b.as_str(), c.as_str()])).collect();
            let selector = selector(&texts.0, &texts.1, &texts.2);
            let mut expect = Vec::new();
            let mut start = 0u64;
            for (length, [schema, package, name]) in &rows {
                let end = start + *length as u64;
                if selector.matches(schema, package, name) {
                    expect.extend(start..end);
                }
                start = end;
            }
            let got: Vec<u64> = index(&rows).ranges(&selector).flatten().collect();
            prop_assert_eq!(got, expect);
        }
    }
}
