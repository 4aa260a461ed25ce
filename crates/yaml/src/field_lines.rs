//! Line numbers of fields, for messages about a parsed document.

use crate::{
    Limits,
    convert::key_text,
    grammar, source,
    tree::{Node, Tree},
};

/// Lines, from 1, of the fields at `paths` in the document that begins at line `first` of a stream. A path consists
/// of keys and list indexes. A missing field has the line of its closest existing parent, and a document that does
/// not parse has only its first line.
///
/// # Example
/// ```
/// let path = ["spec".to_owned(), "channels".to_owned(), "1".to_owned()];
/// let text = b"kind: A\n---\nspec:\n  channels:\n  - stable\n  - beta\n";
/// assert_eq!(olm_yaml::field_lines(text, 3, &[&path]), [6]);
/// ```
pub fn field_lines(stream: &[u8], first: usize, paths: &[&[String]]) -> Vec<usize> {
    let before = first.saturating_sub(1);
    let document: Vec<u8> =
        stream.split_inclusive(|byte| *byte == b'\n').skip(before).collect::<Vec<_>>().concat();
    in_document(&document, paths)
        .unwrap_or_else(|| vec![0; paths.len()])
        .into_iter()
        .map(|line| before + line + 1)
        .collect()
}

/// Lines from 0. `None` for a document that does not parse.
fn in_document(document: &[u8], paths: &[&[String]]) -> Option<Vec<usize>> {
    let text = source::decode(document).ok()?;
    let text = source::with_line_feeds(&text);
    let limits = Limits::default();
    let tree = grammar::parse_with_lines(&text, &limits).ok()?;
    Some(paths.iter().map(|path| line_of(&tree, path)).collect())
}

fn line_of(tree: &Tree<'_>, path: &[String]) -> usize {
    let mut line = tree.lines.first().copied().unwrap_or_default();
    let mut node = 0;
    for step in path {
        let Some((name, value)) = child(tree, node, step) else { break };
        line = tree.lines[name];
        node = value;
    }
    line
}

/// Indexes of the key, or of the list item, and of the value.
fn child(tree: &Tree<'_>, index: usize, step: &str) -> Option<(usize, usize)> {
    let index = match tree.nodes.get(index)? {
        Node::Alias { target } => *target,
        _ => index,
    };
    match tree.nodes[index] {
        Node::List { end } => {
            let within = |item: usize| (item < end).then_some(item);
            let mut items = std::iter::successors(within(index + 1), |item| within(tree.after(*item)));
            items.nth(step.parse().ok()?).map(|item| (item, item))
        }
        Node::Mapping { end } => {
            let mut key = index + 1;
            while key < end {
                let value = tree.after(key);
                if key_text(tree.resolved(key)).is_ok_and(|text| text == step) {
                    return Some((key, value));
                }
                key = tree.after(value);
            }
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_lines_are_correct_in_every_document() {
        let text = "a: 1\n---\n# x\nspec:\n  list:\n  - one\n  -\n  - two: 2 # why\n    deep:\n      er: 3\n  map: {k: v,\n    l: w}\n  \
                    ? [odd]\n  : 1\n  last: |\n    text\n  1: x\n";
        for (first, path, expected) in [
            (1, "a", 1),
            (2, "spec", 4),
            (2, "spec.list.0", 6),
            (2, "spec.list.1", 7),
            (2, "spec.list.2.two", 8),
            (2, "spec.list.2.deep.er", 10),
            (2, "spec.list.2.deep.absent", 9),
            (2, "spec.list.3", 5),
            (2, "spec.list.99999999999", 5),
            (3, "spec.map.k", 11),
            (3, "spec.map.l", 12),
            (3, "spec.last", 15),
            (3, "spec.1", 17),
            (2, "spec.absent.spec", 4),
            (2, "list", 4),
            (2, "", 4),
        ] {
            let path: Vec<String> =
                path.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect();
            assert_eq!(field_lines(text.as_bytes(), first, &[&path]), [expected], "{path:?}");
        }
        for (text, first, path, expected) in [
            (&b"a: ["[..], 3, &["a"][..], 3),
            (b"{\"a\":\n {\"b\": 1}} {\"a\": 2}", 1, &["a", "b"], 2),
            (b"x: &x {w: 1}\nz: *x", 1, &["z", "w"], 1),
            (b"\xff", 1, &[], 1),
            (b"", 1, &["a"], 1),
            (b"", 0, &["a"], 1),
        ] {
            let path: Vec<String> = path.iter().map(ToString::to_string).collect();
            assert_eq!(field_lines(text, first, &[&path]), [expected], "{path:?}");
        }
    }
}
