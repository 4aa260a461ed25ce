//! YAML document as a flat list of nodes in document order.
//!
//! A collection stores the end of its content, an alias the start of its target, so that walking, repeating and
//! dropping a document needs no recursion at any nesting.

use std::{borrow::Cow, collections::HashMap};

use olm_version::excerpt;

use crate::{
    Error,
    scalar::{Scalar, ScalarTag, resolve},
};

/// Node. Indices refer to the [`Tree`].
#[derive(Debug)]
pub(crate) enum Node<'a> {
    Scalar(Scalar<'a>),
    /// Scalar that does not match its tag, with the reason. Reported only if the document is well-formed.
    Misfit(String),
    /// Plain scalar `<<`: a merge if it is a key, otherwise text.
    Merge,
    /// The items follow. `end` is the index after the last of them.
    List {
        end: usize,
    },
    /// Keys and values follow alternately.
    Mapping {
        end: usize,
    },
    /// Repeats the node at `target`, which is complete and precedes the alias.
    Alias {
        target: usize,
    },
}

/// Parsed document. Empty for a stream without documents.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
    /// Line of each node, from 0. Empty unless the builder records lines.
    pub(crate) lines: Vec<usize>,
}

impl<'a> Tree<'a> {
    /// Node at `index`, or the target of the alias there.
    pub(crate) fn resolved(&self, index: usize) -> &Node<'a> {
        match self.nodes[index] {
            Node::Alias { target } => &self.nodes[target],
            _ => &self.nodes[index],
        }
    }

    /// Index after the node at `index`.
    pub(crate) fn after(&self, index: usize) -> usize {
        match self.nodes[index] {
            Node::List { end } | Node::Mapping { end } => end,
            _ => index + 1,
        }
    }
}

/// Treatment of plain scalars that are numbers with a fraction or an exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decimals {
    /// Doubles, as upstream.
    Resolved,
    /// Text, spelled as in the document.
    Written,
}

/// Builder of a [`Tree`] in document order.
pub(crate) struct Builder<'a> {
    decimals: Decimals,
    tree: Tree<'a>,
    open: Vec<usize>,
    anchors: HashMap<&'a str, usize>,
    /// Line of the next node, from 0.
    pub(crate) line: usize,
    pub(crate) records_lines: bool,
}

impl<'a> Builder<'a> {
    /// Creates a builder for a document of about this many bytes.
    pub(crate) fn new(decimals: Decimals, bytes: usize) -> Self {
        let tree = Tree { nodes: Vec::with_capacity(bytes / 32), lines: Vec::new() };
        let (open, anchors) = (Vec::new(), HashMap::new());
        Self { decimals, tree, open, anchors, line: 0, records_lines: false }
    }

    pub(crate) fn finish(self) -> Tree<'a> {
        self.tree
    }

    pub(crate) fn nodes(&self) -> usize {
        self.tree.nodes.len()
    }

    /// Number of open collections.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    fn add(&mut self, anchor: Option<&'a str>, node: Node<'a>) {
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, self.tree.nodes.len());
        }
        if self.records_lines {
            self.tree.lines.push(self.line);
        }
        self.tree.nodes.push(node);
    }

    /// Adds a scalar. `tag` is in its long form.
    pub(crate) fn scalar(
        &mut self,
        text: Cow<'a, str>,
        plain: bool,
        anchor: Option<&'a str>,
        tag: Option<&str>,
    ) {
        let tag = match tag.map(|tag| tag.strip_prefix("tag:yaml.org,2002:")) {
            None => ScalarTag::None,
            Some(Some("merge")) if text == "<<" => {
                return self.add(anchor, Node::Merge);
            }
            Some(Some(name)) => ScalarTag::from_core_name(name),
            Some(None) => ScalarTag::Other,
        };
        let is_plain = plain && tag == ScalarTag::None;
        let node = if is_plain && text == "<<" {
            Node::Merge
        } else if is_plain
            && self.decimals == Decimals::Written
            && matches!(resolve(text.clone(), tag, plain), Ok(Scalar::Float(_)))
        {
            Node::Scalar(Scalar::Text(text))
        } else {
            resolve(text, tag, plain).map_or_else(Node::Misfit, Node::Scalar)
        };
        self.add(anchor, node);
    }

    /// Starts a collection.
    pub(crate) fn open(&mut self, anchor: Option<&'a str>, mapping: bool) {
        let end = self.tree.nodes.len();
        self.open.push(end);
        self.add(anchor, if mapping { Node::Mapping { end } } else { Node::List { end } });
    }

    /// Ends the collection that was started last.
    pub(crate) fn close(&mut self) {
        let after = self.tree.nodes.len();
        if let Some(start) = self.open.pop()
            && let Node::List { end } | Node::Mapping { end } = &mut self.tree.nodes[start]
        {
            *end = after;
        }
    }

    /// Adds a repetition of the node with that anchor.
    pub(crate) fn alias(&mut self, anchor: &str) -> Result<(), Error> {
        let Some(&target) = self.anchors.get(anchor) else {
            return Err(Error::Invalid(format!("unknown anchor '{}' referenced", excerpt(anchor))));
        };
        // Open collections are in ascending order.
        if self.open.binary_search(&target).is_ok() {
            return Err(Error::Invalid(format!("anchor '{}' value contains itself", excerpt(anchor))));
        }
        self.add(None, Node::Alias { target });
        Ok(())
    }
}
