//! Rules of `cel` constraints: parsed and checked once, evaluated against the properties of a bundle
//! (docs/design/resolution.md#constraint-property).
//!
//! The `cel` crate parses and expands macros. Checking and evaluating are ours: the crate has no type checker, and its
//! interpreter neither bounds the work of a rule nor shares the values that it loops over.
//!
//! Left out of the language: timestamps, durations and messages. No property can hold one.

mod check;
mod evaluate;
mod function;
mod value;

use cel::IdedExpr as Expression;
use cel::parser::pratt_parser::{Lexer, PrattParser, TokenKind};
use serde_json::Value as Json;

pub(super) use evaluate::Meter;

/// How deep an expression may be nested, operators of one chain counted. The reference allows 250 of each kind; ours
/// is what a small stack bears, several times what a legible rule needs.
const DEPTH_LIMIT: u16 = 64;

/// Most characters of a parser's message.
const MESSAGE_LIMIT: usize = 256;

/// A rule that yields true or false.
#[derive(Debug)]
pub(super) struct Rule {
    text: String,
    expression: Expression,
}

/// Why a rule yielded nothing for a bundle. It counts as false.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleFailure(String);

impl Rule {
    /// Reads and checks a rule.
    ///
    /// # Errors
    /// The first fault: syntax, an unknown name, a call that fits no function, a type other than bool.
    pub(super) fn compile(text: String) -> Result<Self, String> {
        if depth(&text) > usize::from(DEPTH_LIMIT) {
            return Err(format!("expression nesting exceeds {DEPTH_LIMIT}"));
        }
        let parser = PrattParser::new().max_recursion_depth(DEPTH_LIMIT);
        let expression = parser.parse(&text).map_err(|faults| {
            let first = faults.errors.first();
            first.map_or_else(String::new, |fault| {
                let (line, column) = fault.pos;
                // The rest would show the rule, which may be long.
                let message = fault.msg.lines().next().unwrap_or_default();
                let message: String = message.chars().take(MESSAGE_LIMIT).collect();
                format!("ERROR: <input>:{line}:{column}: {message}")
            })
        })?;
        check::yields_bool(&expression)?;
        Ok(Self { text, expression })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The value for a bundle with these properties, a list of `{type, value}`.
    pub(super) fn evaluate(&self, properties: &Json, meter: &mut Meter) -> Result<bool, RuleFailure> {
        evaluate::evaluate(&self.expression, properties, meter).map_err(RuleFailure)
    }
}

/// The depth that the expression of a text cannot exceed, from its tokens alone: parsing recurses, and so does
/// everything after it.
fn depth(text: &str) -> usize {
    let mut lexer = Lexer::new(text);
    let mut levels = vec![Level::default()];
    loop {
        let kind = lexer.lex().kind;
        let Some(level) = levels.last_mut() else { return 0 };
        match kind {
            TokenKind::TokEnd => return levels.iter().map(Level::depth).sum(),
            TokenKind::TokLeftParen | TokenKind::TokLeftBracket | TokenKind::TokLeftBrace => {
                level.links += 1;
                levels.push(Level::default());
                if levels.len() > usize::from(DEPTH_LIMIT) {
                    return levels.len();
                }
            }
            TokenKind::TokRightParen | TokenKind::TokRightBracket | TokenKind::TokRightBrace => {
                let inner = level.depth();
                if levels.len() > 1 {
                    levels.pop();
                }
                if let Some(outer) = levels.last_mut() {
                    outer.inner = outer.inner.max(inner);
                }
            }
            // Chains of && and || become balanced trees, so their parts stand side by side.
            TokenKind::TokLogicalAnd | TokenKind::TokLogicalOr => level.end_part(),
            TokenKind::TokComma => level.end_item(),
            // The rest of the item stands within the conditional.
            TokenKind::TokQuestion => level.conditionals += 1,
            TokenKind::TokDot
            | TokenKind::TokIn
            | TokenKind::TokMinus
            | TokenKind::TokPlus
            | TokenKind::TokAsterisk
            | TokenKind::TokSlash
            | TokenKind::TokPercent
            | TokenKind::TokExclamation
            | TokenKind::TokEqualEqual
            | TokenKind::TokExclamationEqual
            | TokenKind::TokLess
            | TokenKind::TokLessEqual
            | TokenKind::TokGreater
            | TokenKind::TokGreaterEqual => level.links += 1,
            _ => {}
        }
    }
}

/// What stands between two brackets.
#[derive(Default)]
struct Level {
    /// Operators, selections and brackets of the part that is being read.
    links: usize,
    /// Depth of the deepest brackets in it.
    inner: usize,
    /// Conditionals of the item that is being read.
    conditionals: usize,
    /// How many parts it has, but for the last.
    parts: usize,
    /// Depth of the deepest part of this item, without its conditionals.
    part: usize,
    /// Depth of the deepest item.
    item: usize,
}

impl Level {
    fn end_part(&mut self) {
        self.part = self.part.max(self.links + self.inner);
        self.parts += 1;
        (self.links, self.inner) = (0, 0);
    }

    fn end_item(&mut self) {
        self.item = self.depth();
        (self.links, self.inner, self.conditionals, self.parts, self.part) = (0, 0, 0, 0, 0);
    }

    fn depth(&self) -> usize {
        let tree = self.parts.checked_ilog2().map_or(0, |levels| levels as usize + 1);
        self.item.max(self.conditionals + tree + self.part.max(self.links + self.inner))
    }
}

#[cfg(test)]
mod tests;
