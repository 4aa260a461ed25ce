//! A YAML document as a flat list of nodes in document order.
//!
//! A collection knows where its content ends, an alias where its target starts, so that walking, repeating
//! and dropping a document needs no recursion whatever its nesting.

use std::{borrow::Cow, collections::HashMap};

use olm_version::excerpt;

use crate::{
    Error,
    scalar::{Scalar, ScalarTag, resolve},
};

/// One node. Indices point into the [`Tree`].
#[derive(Debug)]
pub(crate) enum Node<'a> {
    Scalar(Scalar<'a>),
    /// A scalar that does not fit its tag, and why: an error of its own only in a document that is well formed.
    Misfit(String),
    /// The plain scalar `<<`: a merge when it stands as a key, text otherwise.
    Merge,
    /// The items follow; `end` is the index after the last of them.
    List {
        end: usize,
    },
    /// Keys and values follow alternately.
    Mapping {
        end: usize,
    },
    /// Repeats the node at `target`, which is complete and stands before the alias.
    Alias {
        target: usize,
    },
}

/// A parsed document; empty for a stream without documents.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    pub(crate) nodes: Vec<Node<'a>>,
}

impl Tree<'_> {
    /// The index after the node at `index`.
    pub(crate) fn after(&self, index: usize) -> usize {
        match self.nodes[index] {
            Node::List { end } | Node::Mapping { end } => end,
            _ => index + 1,
        }
    }
}

/// What becomes of plain scalars that are numbers with a fraction or an exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decimals {
    /// Doubles, as the tools read them.
    Resolved,
    /// Text, spelled as in the document.
    Written,
}

/// Takes the nodes of a document as they are read.
pub(crate) struct Builder<'a> {
    decimals: Decimals,
    tree: Tree<'a>,
    /// Collections that have not ended.
    open: Vec<usize>,
    anchors: HashMap<&'a str, usize>,
}

impl<'a> Builder<'a> {
    /// For a document of about so many bytes.
    pub(crate) fn new(decimals: Decimals, bytes: usize) -> Self {
        let tree = Tree { nodes: Vec::with_capacity(bytes / 32) };
        Self { decimals, tree, open: Vec::new(), anchors: HashMap::new() }
    }

    pub(crate) fn finish(self) -> Tree<'a> {
        self.tree
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.tree.nodes.len()
    }

    /// How many collections are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    fn add(&mut self, anchor: Option<&'a str>, node: Node<'a>) {
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, self.tree.nodes.len());
        }
        self.tree.nodes.push(node);
    }

    /// Adds a scalar; a tag is in its long form.
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
        self.tree.nodes.push(Node::Alias { target });
        Ok(())
    }
}
