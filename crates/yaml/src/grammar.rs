//! Parser from tokens to the nodes of a document.
//!
//! An explicit stack of expectations replaces recursion.

use crate::{
    Error, Limits,
    cursor::Mark,
    scan::{Placed, Scanner, Token},
    tree::{Builder, Decimals, Tree},
};

/// Element to parse next, once everything above it on the stack is done.
#[derive(Clone, Copy)]
enum Expect {
    /// `-` or the end of a block list.
    BlockItem,
    /// `-` of a list at the same column as the mapping that contains it.
    UnindentedItem,
    BlockKey,
    BlockValue,
    /// Item or end of a flow list. `true` for the first item, which has no `,` before it.
    FlowItem(bool),
    /// Key, value and end of a single-member mapping that is an item of a flow list.
    PairKey,
    PairValue,
    PairEnd,
    FlowKey(bool),
    FlowValue,
    /// A key of a flow mapping without `:` has no value.
    NoValue,
}

/// Context of a node, which determines its allowed kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    Flow,
    Block,
    /// Key or value of a block mapping, where a list needs no indentation.
    Member,
}

struct Grammar<'a> {
    scanner: Scanner<'a>,
    builder: Builder<'a>,
    expected: Vec<Expect>,
    /// Handles and prefixes of tags.
    prefixes: Vec<(&'a str, &'a str)>,
    limits: &'a Limits,
}

/// Parses the first document of `text`. Content after it is ignored, but the line at which it starts is returned.
pub(crate) fn parse<'a>(
    text: &'a str,
    limits: &'a Limits,
    decimals: Decimals,
) -> Result<(Tree<'a>, Option<usize>), Error> {
    let mut grammar = Grammar::new(text, limits, decimals);
    let unread = if grammar.document()? { grammar.unread() } else { None };
    Ok((grammar.builder.finish(), unread))
}

/// [`parse`], with the lines of the nodes.
pub(crate) fn parse_with_lines<'a>(text: &'a str, limits: &'a Limits) -> Result<Tree<'a>, Error> {
    let mut grammar = Grammar::new(text, limits, Decimals::Resolved);
    grammar.builder.records_lines = true;
    grammar.document()?;
    Ok(grammar.builder.finish())
}

/// Error of the grammar. Upstream names the previous line, or none for the first.
fn problem(mark: Mark, text: &str) -> Error {
    Error::Syntax { line: mark.line, at: mark.line + 1, problem: text.to_owned() }
}

impl<'a> Grammar<'a> {
    fn new(text: &'a str, limits: &'a Limits, decimals: Decimals) -> Self {
        Self {
            scanner: Scanner::new(text),
            builder: Builder::new(decimals, text.len()),
            expected: Vec::new(),
            prefixes: Vec::new(),
            limits,
        }
    }

    /// Parses the first document. `false` for a stream without documents.
    fn document(&mut self) -> Result<bool, Error> {
        if !self.document_start()? {
            return Ok(false);
        }
        while let Some(expected) = self.expected.pop() {
            self.step(expected)?;
            self.check_size()?;
        }
        self.scanner.peek()?;
        Ok(true)
    }

    /// Line of content after the parsed document, from 1, if any.
    fn unread(&mut self) -> Option<usize> {
        loop {
            match self.scanner.peek() {
                Ok((Token::StreamEnd, _)) => return None,
                Ok((Token::DocumentEnd, _)) => self.scanner.next().ok()?,
                Ok((_, mark)) => return Some(mark.line + 1),
                Err(error) => return error.line(),
            };
        }
    }

    fn peek(&mut self) -> Result<&Token<'a>, Error> {
        self.scanner.peek().map(|(token, _)| token)
    }

    fn next(&mut self) -> Result<Placed<'a>, Error> {
        let (token, mark) = self.scanner.next()?;
        self.builder.line = mark.line;
        Ok((token, mark))
    }

    fn empty(&mut self) -> Result<(), Error> {
        self.builder.scalar("".into(), true, None, None);
        Ok(())
    }

    /// Parses directives, `---`, and the root up to its first token. `false` for a stream without documents.
    fn document_start(&mut self) -> Result<bool, Error> {
        let mut explicit = false;
        let mut version = false;
        loop {
            match self.peek()? {
                Token::Version(_) | Token::TagPrefix(..) => {
                    let (token, mark) = self.next()?;
                    self.directive(token, mark, &mut version)?;
                    explicit = true;
                }
                Token::DocumentStart => {
                    self.next()?;
                    break;
                }
                Token::StreamEnd if !explicit => return Ok(false),
                _ if !explicit => {
                    self.node(Context::Block)?;
                    return Ok(true);
                }
                _ => {
                    let mark = self.scanner.peek()?.1;
                    return Err(problem(mark, "did not find expected <document start>"));
                }
            }
        }
        match self.peek()? {
            Token::Version(_)
            | Token::TagPrefix(..)
            | Token::DocumentStart
            | Token::DocumentEnd
            | Token::StreamEnd => self.empty()?,
            _ => self.node(Context::Block)?,
        }
        Ok(true)
    }

    fn directive(&mut self, token: Token<'a>, mark: Mark, seen: &mut bool) -> Result<(), Error> {
        match token {
            Token::Version(_) if *seen => Err(problem(mark, "found duplicate %YAML directive")),
            Token::Version(version) if version != "1.1" => {
                Err(problem(mark, "found incompatible YAML document"))
            }
            Token::TagPrefix(handle, _) if self.prefixes.iter().any(|(known, _)| *known == handle) => {
                Err(problem(mark, "found duplicate %TAG directive"))
            }
            Token::TagPrefix(handle, prefix) => {
                self.prefixes.push((handle, prefix));
                Ok(())
            }
            _ => {
                *seen = true;
                Ok(())
            }
        }
    }

    fn step(&mut self, expected: Expect) -> Result<(), Error> {
        match expected {
            Expect::BlockItem => self.block_item(),
            Expect::UnindentedItem => self.unindented_item(),
            Expect::BlockKey => self.block_key(),
            Expect::BlockValue => {
                self.expected.push(Expect::BlockKey);
                if *self.peek()? != Token::Value {
                    return self.empty();
                }
                self.next()?;
                self.member()
            }
            Expect::FlowItem(first) => self.flow_item(first),
            Expect::PairKey => {
                self.expected.push(Expect::PairValue);
                self.flow_part(&[Token::Value, Token::FlowEntry, Token::FlowListEnd])
            }
            Expect::PairValue => {
                self.expected.push(Expect::PairEnd);
                self.flow_member_value(&Token::FlowListEnd)
            }
            Expect::PairEnd => {
                self.builder.close();
                Ok(())
            }
            Expect::FlowKey(first) => self.flow_key(first),
            Expect::FlowValue => self.flow_member_value(&Token::FlowMappingEnd),
            Expect::NoValue => self.empty(),
        }
    }

    fn block_item(&mut self) -> Result<(), Error> {
        let (token, mark) = self.next()?;
        match token {
            Token::BlockEntry => {
                self.expected.push(Expect::BlockItem);
                match self.peek()? {
                    Token::BlockEntry | Token::BlockEnd => self.empty(),
                    _ => self.node(Context::Block),
                }
            }
            Token::BlockEnd => {
                self.builder.close();
                Ok(())
            }
            _ => Err(problem(mark, "did not find expected '-' indicator")),
        }
    }

    fn unindented_item(&mut self) -> Result<(), Error> {
        if *self.peek()? != Token::BlockEntry {
            self.builder.close();
            return Ok(());
        }
        self.next()?;
        self.expected.push(Expect::UnindentedItem);
        match self.peek()? {
            Token::BlockEntry | Token::Key | Token::Value | Token::BlockEnd => self.empty(),
            _ => self.node(Context::Block),
        }
    }

    fn block_key(&mut self) -> Result<(), Error> {
        let (token, mark) = self.next()?;
        match token {
            Token::Key => {
                self.expected.push(Expect::BlockValue);
                self.member()
            }
            Token::BlockEnd => {
                self.builder.close();
                Ok(())
            }
            _ => Err(problem(mark, "did not find expected key")),
        }
    }

    /// Parses a key or value of a block mapping, which may be absent.
    fn member(&mut self) -> Result<(), Error> {
        match self.peek()? {
            Token::Key | Token::Value | Token::BlockEnd => self.empty(),
            _ => self.node(Context::Member),
        }
    }

    fn flow_item(&mut self, first: bool) -> Result<(), Error> {
        if *self.peek()? != Token::FlowListEnd && !first {
            self.flow_entry("did not find expected ',' or ']'")?;
        }
        match self.peek()? {
            Token::FlowListEnd => {
                self.next()?;
                self.builder.close();
                Ok(())
            }
            Token::Key => {
                self.next()?;
                self.expected.extend([Expect::FlowItem(false), Expect::PairKey]);
                self.builder.open(None, true);
                self.check_depth()
            }
            _ => {
                self.expected.push(Expect::FlowItem(false));
                self.node(Context::Flow)
            }
        }
    }

    fn flow_entry(&mut self, text: &str) -> Result<(), Error> {
        match self.next()? {
            (Token::FlowEntry, _) => Ok(()),
            (_, mark) => Err(problem(mark, text)),
        }
    }

    fn flow_key(&mut self, first: bool) -> Result<(), Error> {
        if *self.peek()? != Token::FlowMappingEnd && !first {
            self.flow_entry("did not find expected ',' or '}'")?;
        }
        match self.peek()? {
            Token::FlowMappingEnd => {
                self.next()?;
                self.builder.close();
                Ok(())
            }
            Token::Key => {
                self.next()?;
                self.expected.extend([Expect::FlowKey(false), Expect::FlowValue]);
                match self.peek()? {
                    Token::Value | Token::FlowEntry | Token::FlowMappingEnd => self.empty(),
                    _ => self.node(Context::Flow),
                }
            }
            _ => {
                self.expected.extend([Expect::FlowKey(false), Expect::NoValue]);
                self.node(Context::Flow)
            }
        }
    }

    /// Parses the value of a member in a flow collection that ends with `end`.
    fn flow_member_value(&mut self, end: &Token<'_>) -> Result<(), Error> {
        if *self.peek()? != Token::Value {
            return self.empty();
        }
        self.next()?;
        let next = self.peek()?;
        if *next == Token::FlowEntry || next == end { self.empty() } else { self.node(Context::Flow) }
    }

    /// Parses a node. One of `ends` in its place is consumed and yields an empty node.
    fn flow_part(&mut self, ends: &[Token<'_>]) -> Result<(), Error> {
        let next = self.peek()?;
        if ends.contains(next) {
            self.next()?;
            return self.empty();
        }
        self.node(Context::Flow)
    }

    fn node(&mut self, context: Context) -> Result<(), Error> {
        let (mut anchor, mut tag) = (None, None);
        loop {
            match self.peek()? {
                Token::Alias(_) if anchor.is_none() && tag.is_none() => {
                    let (token, _) = self.next()?;
                    return if let Token::Alias(name) = token { self.builder.alias(name) } else { Ok(()) };
                }
                Token::Anchor(_) if anchor.is_none() => {
                    if let (Token::Anchor(name), _) = self.next()? {
                        anchor = Some(name);
                    }
                }
                Token::Tag(..) if tag.is_none() => {
                    if let (Token::Tag(handle, suffix), mark) = self.next()? {
                        tag = Some(self.long_tag(handle, &suffix, mark)?);
                    }
                }
                _ => break,
            }
        }
        self.content(context, anchor, tag)
    }

    /// Parses a node after its anchor and tag.
    fn content(
        &mut self,
        context: Context,
        anchor: Option<&'a str>,
        tag: Option<String>,
    ) -> Result<(), Error> {
        let (next, mark) = self.scanner.peek()?;
        let mark = *mark;
        let (expected, mapping) = match next {
            Token::Scalar { .. } => {
                let (Token::Scalar { text, plain }, _): Placed<'a> = self.next()? else {
                    return Ok(());
                };
                self.builder.scalar(text, plain, anchor, tag.as_deref());
                return Ok(());
            }
            // The first `-` is not consumed here: it is parsed as that of an item.
            Token::BlockEntry if context == Context::Member => {
                self.builder.open(anchor, false);
                self.expected.push(Expect::UnindentedItem);
                return self.check_depth();
            }
            Token::FlowListStart => (Expect::FlowItem(true), false),
            Token::FlowMappingStart => (Expect::FlowKey(true), true),
            Token::BlockListStart if context != Context::Flow => (Expect::BlockItem, false),
            Token::BlockMappingStart if context != Context::Flow => (Expect::BlockKey, true),
            _ if anchor.is_some() || tag.is_some() => {
                self.builder.scalar("".into(), true, anchor, tag.as_deref());
                return Ok(());
            }
            _ => return Err(problem(mark, "did not find expected node content")),
        };
        self.next()?;
        self.builder.open(anchor, mapping);
        self.expected.push(expected);
        self.check_depth()
    }

    fn check_depth(&self) -> Result<(), Error> {
        if self.builder.depth() > self.limits.depth {
            return Err(Error::Invalid(format!("exceeded max depth of {}", self.limits.depth)));
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Error> {
        if self.builder.nodes() > self.limits.nodes {
            return Err(Error::TooMany { limit: self.limits.nodes });
        }
        Ok(())
    }

    fn long_tag(&self, handle: &str, suffix: &str, mark: Mark) -> Result<String, Error> {
        let known = self.prefixes.iter().find(|(known, _)| *known == handle);
        let prefix = match (known, handle) {
            (_, "") => "",
            (Some((_, prefix)), _) => *prefix,
            (None, "!") => "!",
            (None, "!!") => "tag:yaml.org,2002:",
            _ => return Err(problem(mark, "found undefined tag handle")),
        };
        Ok(format!("{prefix}{suffix}"))
    }
}
