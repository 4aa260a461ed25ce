//! Line numbers of the fields in a YAML file, for error messages.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Lines and documents of a file. If the file does not parse, fields have no lines.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    documents: Vec<Spanned<Node>>,
}

/// YAML value, reduced to its structure.
#[derive(Debug)]
enum Node {
    Scalar,
    List(Vec<Spanned<Node>>),
    Fields(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, documents: serde_saphyr::from_multiple(text).unwrap_or_default() }
    }

    /// Line, from 1, of the field at `path`, or of its closest existing parent, in the document that begins at line
    /// `first`.
    pub(super) fn of(&self, first: usize, path: &[String]) -> usize {
        let begins = |document: &&Spanned<Node>| line(document).is_some_and(|line| line >= first);
        let Some(mut node) = self.documents.iter().find(begins) else { return first };
        let mut found = line(node).unwrap_or(first);
        for step in path {
            let next = match &node.value {
                Node::Scalar => None,
                Node::List(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
                Node::Fields(fields) => {
                    fields.iter().find(|(key, _)| key.value == *step).map(|(key, value)| {
                        found = line(key).unwrap_or(found);
                        value
                    })
                }
            };
            let Some(next) = next else { break };
            if matches!(node.value, Node::List(_)) {
                found = line(next).unwrap_or(found);
            }
            node = next;
        }
        found
    }

    /// Text after the field's name, or after the dash, in this line.
    pub(super) fn written(&self, line: usize) -> Option<&'a str> {
        written(self.text.lines().nth(line.checked_sub(1)?)?).map(|(_, value)| value)
    }
}

/// Line of a value, from 1.
fn line<T>(value: &Spanned<T>) -> Option<usize> {
    usize::try_from(value.referenced.line()).ok().filter(|line| *line > 0)
}

/// Name and value of a line `name: value` or `- value`, without a comment. The name of the latter is empty.
pub(super) fn written(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = line.strip_prefix("- ").unwrap_or(line).trim_start();
    let (name, value) = line.split_once(':').unwrap_or(("", line));
    let value = value.split(" #").next().unwrap_or_default().trim();
    (!value.is_empty()).then_some((name.trim(), value))
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

/// Visitor that accepts any value.
struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(Node::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_line_is_found_in_every_document() {
        let text = "a: 1\n---\n# x\nspec:\n  list:\n  - one\n  - two: 2 # why\n  map: {k: v}\n";
        let lines = Lines::new(text);
        for (first, path, expected) in [
            (1, &["a"][..], 1),
            (2, &["spec"], 4),
            (2, &["spec", "list", "0"], 6),
            (2, &["spec", "list", "1", "two"], 7),
            (2, &["spec", "map", "k"], 8),
            (2, &["spec", "absent"], 4),
            (2, &[], 4),
        ] {
            let path: Vec<_> = path.iter().map(|&step| step.to_owned()).collect();
            assert_eq!(lines.of(first, &path), expected, "{path:?}");
        }
        assert_eq!(lines.written(7), Some("2"));
        assert_eq!(lines.written(6), Some("one"));
        assert_eq!(lines.written(4), None);
        assert_eq!(Lines::new("a: [").of(3, &["a".to_owned()]), 3);
    }
}
