//! Conversion of the nodes of a YAML document to JSON text.

use std::borrow::Cow;

use crate::{
    Error, Limits,
    json::{Decimal, write_number, write_string},
    scalar::Scalar,
    tree::{Node, Tree},
};

/// Writes the document as JSON. Members keep document order, and a merge is replaced in place by the merged
/// members. Duplicates are kept: since JSON readers use the last of equal keys, the result equals upstream's,
/// including that a merge overrides explicit keys before it (docs/design/catalogd.md#yaml-scalars).
pub(crate) fn to_json(tree: &Tree<'_>, limits: &Limits) -> Result<Vec<u8>, Error> {
    // Estimate that suits most documents.
    let out = Vec::with_capacity((16 * tree.nodes.len()).min(limits.expanded_bytes));
    let mut writer = Writer { tree, limits, out, frames: Vec::new(), nodes: 1, aliased: 0, alias_depth: 0 };
    if tree.nodes.is_empty() {
        return Ok(b"null".to_vec());
    }
    writer.value(0, false)?;
    while let Some(frame) = writer.frames.pop() {
        writer.step(frame)?;
    }
    Ok(writer.out)
}

/// Partially written collection.
enum Frame {
    List {
        next: usize,
        end: usize,
        aliased: bool,
    },
    Mapping {
        next: usize,
        end: usize,
        aliased: bool,
        merged: bool,
    },
    /// Mappings to merge into the enclosing one, written from last to first.
    Merges(Vec<usize>),
}

struct Writer<'a> {
    tree: &'a Tree<'a>,
    limits: &'a Limits,
    out: Vec<u8>,
    frames: Vec<Frame>,
    /// Nodes visited, and the part of them reached through an alias.
    nodes: usize,
    aliased: usize,
    alias_depth: usize,
}

impl Writer<'_> {
    fn step(&mut self, frame: Frame) -> Result<(), Error> {
        match frame {
            Frame::List { next, end, aliased } if next == end => {
                self.out.push(b']');
                self.alias_depth -= usize::from(aliased);
            }
            Frame::List { next, end, aliased } => {
                self.frames.push(Frame::List { next: self.tree.after(next), end, aliased });
                self.comma();
                self.value(next, false)?;
            }
            Frame::Mapping { next, end, aliased, merged } if next == end => {
                if !merged {
                    self.out.push(b'}');
                }
                self.alias_depth -= usize::from(aliased);
            }
            Frame::Mapping { next, end, aliased, merged } => {
                let value = self.tree.after(next);
                self.frames.push(Frame::Mapping { next: self.tree.after(value), end, aliased, merged });
                if matches!(self.tree.nodes[next], Node::Merge) {
                    self.merge(value)?;
                } else {
                    self.comma();
                    self.key(next)?;
                    self.out.push(b':');
                    self.value(value, false)?;
                }
            }
            Frame::Merges(mut mappings) => {
                if let Some(mapping) = mappings.pop() {
                    self.frames.push(Frame::Merges(mappings));
                    self.value(mapping, true)?;
                }
            }
        }
        Ok(())
    }

    fn comma(&mut self) {
        if !matches!(self.out.last(), Some(b'{' | b'[')) {
            self.out.push(b',');
        }
    }

    /// Starts or writes the value at `index`. A merged mapping is written without braces.
    fn value(&mut self, index: usize, merged: bool) -> Result<(), Error> {
        let (index, aliased) = self.follow(index)?;
        match &self.tree.nodes[index] {
            Node::List { end } => {
                self.out.push(b'[');
                self.push(Frame::List { next: index + 1, end: *end, aliased })?;
            }
            Node::Mapping { end } => {
                if !merged {
                    self.out.push(b'{');
                }
                self.push(Frame::Mapping { next: index + 1, end: *end, aliased, merged })?;
            }
            Node::Scalar(scalar) => {
                self.scalar(scalar)?;
                self.alias_depth -= usize::from(aliased);
            }
            Node::Merge => {
                write_string("<<", &mut self.out);
                self.alias_depth -= usize::from(aliased);
            }
            Node::Misfit(why) => return Err(Error::Invalid(why.clone())),
            Node::Alias { .. } => {}
        }
        if self.out.len() > self.limits.expanded_bytes {
            return Err(Error::TooLarge { limit: self.limits.expanded_bytes });
        }
        Ok(())
    }

    fn push(&mut self, frame: Frame) -> Result<(), Error> {
        self.frames.push(frame);
        if self.frames.len() > self.limits.depth {
            return Err(Error::Invalid(format!("exceeded max depth of {}", self.limits.depth)));
        }
        Ok(())
    }

    /// Resolves an alias. The second value is `true` if there was one. Aliases never point to aliases.
    fn follow(&mut self, index: usize) -> Result<(usize, bool), Error> {
        self.visit()?;
        let Node::Alias { target } = self.tree.nodes[index] else {
            return Ok((index, false));
        };
        self.alias_depth += 1;
        self.visit()?;
        Ok((target, true))
    }

    /// Counts a node and rejects documents that consist mostly of repetitions: the allowed share of repeated nodes
    /// falls from 99 % to 10 % between 400 000 and 4 000 000 nodes.
    fn visit(&mut self) -> Result<(), Error> {
        const SMALL: usize = 400_000;
        const LARGE: usize = 4_000_000;
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            return Err(Error::TooMany { limit: self.limits.nodes });
        }
        self.aliased += usize::from(self.alias_depth > 0);
        let progress = self.nodes.clamp(SMALL, LARGE) - SMALL;
        let allowed = 0.99 - 0.89 * (progress as f64 / (LARGE - SMALL) as f64);
        let share = self.aliased as f64 / self.nodes as f64;
        if self.aliased > 100 && self.nodes > 1000 && share > allowed {
            return Err(Error::Invalid("document contains excessive aliasing".to_owned()));
        }
        Ok(())
    }

    /// Merges the mapping at `index`, or the mappings of the list there, of which earlier ones win.
    fn merge(&mut self, index: usize) -> Result<(), Error> {
        let wrong = || Error::Invalid("map merge requires map or sequence of maps as the value".to_owned());
        if self.is_mapping(index) {
            return self.value(index, true);
        }
        let Node::List { end } = self.tree.nodes[index] else {
            return Err(wrong());
        };
        let mut mappings = Vec::new();
        let mut next = index + 1;
        while next < end {
            if !self.is_mapping(next) {
                return Err(wrong());
            }
            mappings.push(next);
            next = self.tree.after(next);
        }
        self.frames.push(Frame::Merges(mappings));
        Ok(())
    }

    fn is_mapping(&self, index: usize) -> bool {
        match self.tree.nodes[index] {
            Node::Mapping { .. } => true,
            Node::Alias { target } => matches!(self.tree.nodes[target], Node::Mapping { .. }),
            _ => false,
        }
    }

    fn key(&mut self, index: usize) -> Result<(), Error> {
        let (index, aliased) = self.follow(index)?;
        self.alias_depth -= usize::from(aliased);
        write_string(&key_text(&self.tree.nodes[index])?, &mut self.out);
        Ok(())
    }

    fn scalar(&mut self, scalar: &Scalar<'_>) -> Result<(), Error> {
        match scalar {
            Scalar::Null => self.out.extend_from_slice(b"null"),
            Scalar::Bool(true) => self.out.extend_from_slice(b"true"),
            Scalar::Bool(false) => self.out.extend_from_slice(b"false"),
            Scalar::Int(n) => self.out.extend_from_slice(n.to_string().as_bytes()),
            Scalar::Uint(n) => self.out.extend_from_slice(n.to_string().as_bytes()),
            Scalar::Float(n) if n.is_finite() => write_number(*n, &mut self.out),
            Scalar::Float(n) if n.is_nan() => return Err(Error::Unsupported("NaN")),
            Scalar::Float(n) => return Err(Error::Unsupported(if *n > 0.0 { "+Inf" } else { "-Inf" })),
            Scalar::Text(text) => write_string(text, &mut self.out),
        }
        Ok(())
    }
}

/// Text of a mapping key, which is not an alias.
pub(crate) fn key_text<'a>(key: &'a Node<'_>) -> Result<Cow<'a, str>, Error> {
    Ok(match key {
        Node::Scalar(Scalar::Text(text)) => text.as_ref().into(),
        Node::Scalar(Scalar::Bool(true)) => "true".into(),
        Node::Scalar(Scalar::Bool(false)) => "false".into(),
        Node::Scalar(Scalar::Int(n)) => n.to_string().into(),
        Node::Scalar(Scalar::Float(n)) => float_key(*n).into(),
        Node::Scalar(Scalar::Uint(_)) => return Err(Error::MapKey("uint64")),
        Node::Scalar(Scalar::Null) => return Err(Error::MapKey("null")),
        Node::Merge => "<<".into(),
        Node::Misfit(why) => return Err(Error::Invalid(why.clone())),
        Node::List { .. } | Node::Mapping { .. } | Node::Alias { .. } => {
            return Err(Error::Invalid("invalid map key: a list or mapping".to_owned()));
        }
    })
}

/// Float as a key: the shortest digits of the nearest single-precision value, with an exponent of at least two
/// digits below 1e-4 and from 1e6 on (docs/design/catalogd.md#yaml-scalars).
fn float_key(value: f64) -> String {
    let single = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if single.is_infinite() {
        return if single > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let decimal = Decimal::from(single);
    if (-4..6).contains(&decimal.exponent()) { decimal.plain() } else { decimal.scientific(2) }
}
