//! Line numbers of the fields of a YAML document.

use std::borrow::Cow;
use std::collections::BTreeMap;

use granit_parser::{Event, Parser};

/// File with the byte offsets of its lines.
pub(crate) struct Lines<'a> {
    text: Cow<'a, str>,
    /// Byte offset of each line.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(file: &'a [u8]) -> Self {
        let text = String::from_utf8_lossy(file);
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(ends.filter(|end| *end < text.len())).collect();
        Self { text, starts }
    }

    /// The line, or the last line of a shorter file: the position of something missing may be past the end.
    pub(crate) fn at_most(&self, line: usize) -> usize {
        line.min(self.starts.len())
    }

    /// Line numbers, from 1, of the fields at `paths` in the document that begins at line `first`. For a missing
    /// field, the line of its closest existing ancestor.
    pub(crate) fn of(&self, first: usize, paths: &[&[String]]) -> Vec<usize> {
        let mut wanted: BTreeMap<&[String], Option<usize>> = BTreeMap::new();
        for path in paths {
            wanted.extend((0..=path.len()).map(|length| (&path[..length], None)));
        }
        let start = first.checked_sub(1).and_then(|index| self.starts.get(index));
        find(start.and_then(|start| self.text.get(*start..)).unwrap_or_default(), &mut wanted);
        let line = |path: &&[String]| {
            let mut prefixes = (0..=path.len()).rev().map(|length| &path[..length]);
            let found = prefixes.find_map(|prefix| wanted.get(prefix).copied().flatten());
            first.saturating_sub(1) + found.unwrap_or(1)
        };
        paths.iter().map(line).collect()
    }
}

/// Open list or mapping of the parser.
struct Open {
    is_list: bool,
    /// Items so far, or keys and values so far.
    count: usize,
    /// `true` if a wanted path may continue below.
    is_wanted: bool,
    /// Length of the path of this collection.
    depth: usize,
}

/// Fills in the lines of the wanted paths, up to the first syntax error.
fn find(text: &str, wanted: &mut BTreeMap<&[String], Option<usize>>) {
    let mut open: Vec<Open> = Vec::new();
    let mut path: Vec<String> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { return };
        let (is_list, scalar) = match event {
            Event::DocumentEnd => return,
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                continue;
            }
            Event::SequenceStart(..) => (Some(true), None),
            Event::MappingStart(..) => (Some(false), None),
            Event::Scalar(text, ..) => (None, Some(text)),
            Event::Alias(..) => (None, None),
            _ => continue,
        };
        let line = span.start.line();
        let mut is_wanted = open.is_empty();
        if let Some(parent) = open.last_mut() {
            let is_key = !parent.is_list && parent.count.is_multiple_of(2);
            if parent.is_wanted && (parent.is_list || is_key) {
                path.truncate(parent.depth);
                let name = match (&scalar, parent.is_list) {
                    (_, true) => Some(parent.count.to_string()),
                    (Some(key), false) => Some(key.to_string()),
                    (None, false) => None,
                };
                path.extend(name);
            }
            // A value has the path of the key before it.
            is_wanted = parent.is_wanted && !is_key && path.len() == parent.depth + 1;
            let names_field =
                parent.is_wanted && path.len() == parent.depth + 1 && (parent.is_list || is_key);
            parent.count += 1;
            if names_field && let Some(location) = wanted.get_mut(path.as_slice()) {
                location.get_or_insert(line);
            } else if names_field {
                // No wanted path continues below.
                path.truncate(parent.depth);
                is_wanted = false;
            }
        } else if let Some(location) = wanted.get_mut(path.as_slice()) {
            location.get_or_insert(line);
        }
        if let Some(is_list) = is_list {
            open.push(Open { is_list, count: 0, is_wanted, depth: path.len() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_correct_lines_in_every_document() {
        let text = "a: 1\n---\n# x\nspec:\n  list:\n  - one\n  - two: 2 # why\n    deep:\n      er: 3\n  map: {k: v,\n    l: w}\n  ? [odd]\n  : 1\n  \
                    last: |\n    text\n";
        for (first, path, expected) in [
            (1, "a", 1),
            (2, "spec", 4),
            (2, "spec.list.0", 6),
            (2, "spec.list.1.two", 7),
            (2, "spec.list.1.deep.er", 9),
            (2, "spec.list.1.deep.absent", 8),
            (2, "spec.map.k", 10),
            (2, "spec.map.l", 11),
            (2, "spec.last", 14),
            (2, "spec.absent.spec", 4),
            (2, "list", 4),
            (2, "", 4),
        ] {
            let path: Vec<String> =
                path.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            assert_eq!(Lines::new(text.as_bytes()).of(first, &[&path]), [expected], "{path:?}");
        }
        for (text, first, path, expected) in [
            (&b"a: ["[..], 3, &["a"][..], 3),
            (b"{\"a\":\n {\"b\": 1}} {\"a\": 2}", 1, &["a", "b"], 2),
            (b"\xff", 1, &[], 1),
            (b"", 1, &["a"], 1),
        ] {
            let path: Vec<String> = path.iter().map(ToString::to_string).collect();
            assert_eq!(Lines::new(text).of(first, &[&path]), [expected], "{path:?}");
        }
        assert_eq!([1, 2, 9].map(|line| Lines::new(b"a\nb\n").at_most(line)), [1, 2, 2]);
    }
}
