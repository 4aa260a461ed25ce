//! Keys that a mapping has more than once. Readers use the last of equal keys, so that the values of the others are
//! lost: most often a line `---` between two objects is missing.

use std::collections::{HashMap, hash_map::Entry};

use crate::{
    Limits, Stream,
    convert::key_text,
    grammar, json, source,
    tree::{Node, Tree},
};

/// Key that its mapping has already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedKey {
    /// Keys and list indexes that lead to the key, which is the last element.
    pub path: Vec<String>,
    /// Line, from 1, of its first occurrence.
    pub first: usize,
    /// Line, from 1, of this occurrence.
    pub line: usize,
}

/// Repeated keys, at any depth, of the document that begins at line `first` of a stream, in document order. Keys are
/// compared as readers do: `yes` and `true` are equal. A merge key `<<` may be repeated. A document that does not parse
/// has none.
///
/// # Example
/// ```
/// let text = b"spec:\n  a: 1\n  b: 2\n  a: 3\n";
/// let found = olm_yaml::repeated_keys(text, 1);
/// assert_eq!(found.len(), 1);
/// assert_eq!((found[0].path.join("."), found[0].first, found[0].line), ("spec.a".to_owned(), 2, 4));
/// ```
pub fn repeated_keys(stream: &[u8], first: usize) -> Vec<RepeatedKey> {
    let before = first.saturating_sub(1);
    let start = match before {
        0 => 0,
        _ => {
            let ends = stream.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            ends.map(|(at, _)| at + 1).nth(before - 1).unwrap_or(stream.len())
        }
    };
    of_document(&stream[start..], before)
}

/// Repeated keys of all documents of a stream up to the first one that does not parse, with the splitting rules of
/// [`Stream`].
///
/// # Example
/// ```
/// let found = olm_yaml::all_repeated_keys(b"a: 1\n---\na: 1\nb: 2\na: 3\n");
/// assert_eq!((found.len(), found[0].first, found[0].line), (1, 3, 5));
/// ```
pub fn all_repeated_keys(text: &[u8]) -> Vec<RepeatedKey> {
    let limits = Limits { depth: json::VALUE_DEPTH, ..Limits::default() };
    let mut stream = Stream::new(text, limits).with_repeated_keys();
    let mut found = Vec::new();
    while let Ok(Some(_)) = stream.next(|json, _| json::to_value(json)) {
        found.extend_from_slice(stream.repeated_keys());
    }
    found
}

/// Repeated keys of a document with `before` lines before it.
pub(crate) fn of_document(document: &[u8], before: usize) -> Vec<RepeatedKey> {
    let Ok(text) = source::decode(document) else { return Vec::new() };
    let text = source::with_line_feeds(&text);
    let limits = Limits::default();
    let Ok(tree) = grammar::parse_with_lines(&text, &limits) else { return Vec::new() };
    let mut walk = Walk { tree: &tree, before, open: Vec::new(), found: Vec::new() };
    let mut index = 0;
    while index < tree.nodes.len() {
        index = walk.step(index);
    }
    walk.found
}

/// Open collection.
enum Open {
    List { end: usize, next: usize },
    Mapping { end: usize, is_value: bool, key: String, lines: HashMap<String, usize> },
}

struct Walk<'a> {
    tree: &'a Tree<'a>,
    before: usize,
    open: Vec<Open>,
    found: Vec<RepeatedKey>,
}

impl Walk<'_> {
    /// Visits the node at `index`. Returns the index of the next one.
    fn step(&mut self, index: usize) -> usize {
        let is_over = |open: &mut Open| match open {
            Open::List { end, .. } | Open::Mapping { end, .. } => *end <= index,
        };
        while self.open.pop_if(is_over).is_some() {}
        match self.open.last_mut() {
            Some(Open::Mapping { is_value: false, .. }) => {
                self.key(index);
                return self.tree.after(index);
            }
            Some(Open::Mapping { is_value, .. }) => *is_value = false,
            Some(Open::List { next, .. }) => *next += 1,
            None => {}
        }
        match self.tree.nodes[index] {
            Node::List { end } => self.open.push(Open::List { end, next: 0 }),
            Node::Mapping { end } => {
                let (key, lines) = (String::new(), HashMap::new());
                self.open.push(Open::Mapping { end, is_value: false, key, lines });
            }
            _ => {}
        }
        index + 1
    }

    /// Visits a key of the innermost mapping.
    fn key(&mut self, index: usize) {
        let line = self.before + self.tree.lines.get(index).copied().unwrap_or_default() + 1;
        let Some(Open::Mapping { is_value, key, lines, .. }) = self.open.last_mut() else { return };
        *is_value = true;
        let node = self.tree.resolved(index);
        let Ok(text) = key_text(node) else { return };
        text.as_ref().clone_into(key);
        if matches!(node, Node::Merge) {
            return;
        }
        match lines.entry(text.into_owned()) {
            Entry::Vacant(place) => drop(place.insert(line)),
            Entry::Occupied(known) => {
                let first = *known.get();
                let path = self.path();
                self.found.push(RepeatedKey { path, first, line });
            }
        }
    }

    fn path(&self) -> Vec<String> {
        let name = |open: &Open| match open {
            Open::List { next, .. } => next.saturating_sub(1).to_string(),
            Open::Mapping { key, .. } => key.clone(),
        };
        self.open.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, first: usize) -> Vec<(String, usize, usize)> {
        let found = repeated_keys(text.as_bytes(), first);
        found.into_iter().map(|one| (one.path.join("."), one.first, one.line)).collect()
    }

    #[test]
    fn repeated_keys_are_found_at_any_depth_with_both_lines() {
        type Found = &'static [(&'static str, usize, usize)];
        let cases: [(&str, usize, Found); 14] = [
            ("a: 1\nb: 2\n", 1, &[]),
            ("a: 1\na: 2\na: 3\n", 1, &[("a", 1, 2), ("a", 1, 3)]),
            (
                "kind: A\nmetadata:\n  name: a\nkind: B\nmetadata:\n  name: b\n",
                1,
                &[("kind", 1, 4), ("metadata", 2, 5)],
            ),
            (
                "x:\n- y: 1\n- deep:\n    a: 1\n    b: {c: 1, c: 2}\n    a: 1\n",
                1,
                &[("x.1.deep.b.c", 5, 5), ("x.1.deep.a", 4, 6)],
            ),
            ("a: 1\n---\nb: 1\nb: 2\n", 1, &[]),
            ("a: 1\n---\nb: 1\nb: 2\n", 2, &[("b", 3, 4)]),
            ("yes: 1\n'true': 2\n1: a\n\"1\": b\n", 1, &[("true", 1, 2), ("1", 3, 4)]),
            ("base: &b {a: 1}\nx:\n  <<: *b\n  a: 2\n  <<: *b\n", 1, &[]),
            ("text: |\n  a: 1\n  a: 2\n", 1, &[]),
            ("{\"a\": 1,\n\t\"a\": {}}", 1, &[("a", 1, 2)]),
            ("a: {}\nb: []\na: []\n", 1, &[("a", 1, 3)]),
            ("? [x]\n: 1\n? [x]\n: 1\n", 1, &[]),
            ("a: [", 1, &[]),
            ("", 5, &[]),
        ];
        for (text, first, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|(path, a, b)| ((*path).to_owned(), *a, *b)).collect();
            assert_eq!(found(text, first), expected, "{text}");
        }
    }
}
