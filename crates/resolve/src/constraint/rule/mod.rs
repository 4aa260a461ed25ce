//! CEL rules: parsed and checked once, then evaluated against the properties of a bundle
//! (docs/design/resolution.md#constraint-property), or against an object with validation rules.
//!
//! The `cel` crate parses and expands macros. Type checks and evaluation are our own: the crate has no type checker,
//! and its interpreter neither limits the steps of a rule nor shares the values of its loops.
//!
//! Not supported: timestamps, durations and messages. No property can hold one.

mod check;
mod evaluate;
mod function;
mod value;

use cel::IdedExpr as Expression;
use cel::parser::pratt_parser::{Lexer, PrattParser, TokenKind};
use check::Variable;
use serde_json::Value as Json;

pub(super) use evaluate::Meter;

/// Maximum nesting depth of an expression, including the operators of a chain. The reference allows 250 of each kind.
/// This limit fits a small stack and is several times the depth of a legible rule.
const DEPTH_LIMIT: u16 = 64;

/// Maximum number of characters of a parser's message.
const MESSAGE_LIMIT: usize = 256;

/// Rule with a boolean result.
#[derive(Debug)]
pub(super) struct Rule {
    text: String,
    expression: Expression,
}

impl Rule {
    /// Parses and checks a rule.
    ///
    /// # Errors
    /// The first error: syntax, an unknown name, a call without a matching overload, or a type other than bool.
    pub(super) fn compile(text: String) -> Result<Self, String> {
        Self::with(text, Variable::Properties)
    }

    fn with(text: String, variable: Variable) -> Result<Self, String> {
        if depth(&text) > usize::from(DEPTH_LIMIT) {
            return Err(format!("expression nesting exceeds {DEPTH_LIMIT}"));
        }
        let parser = PrattParser::new().max_recursion_depth(DEPTH_LIMIT);
        let expression = parser.parse(&text).map_err(|faults| {
            let first = faults.errors.first();
            first.map_or_else(String::new, |fault| {
                let (line, column) = fault.pos;
                // The other lines quote the rule, which can be long.
                let message = fault.msg.lines().next().unwrap_or_default();
                let message: String = message.chars().take(MESSAGE_LIMIT).collect();
                format!("ERROR: <input>:{line}:{column}: {message}")
            })
        })?;
        check::yields_bool(&expression, variable)?;
        Ok(Self { text, expression })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the rule with this value of its variable: the properties of a bundle, a list of `{type, value}`, or
    /// the object to validate.
    ///
    /// # Errors
    /// Text of a run-time error.
    pub(super) fn evaluate(&self, variable: &Json, meter: &mut Meter) -> Result<bool, String> {
        evaluate::evaluate(&self.expression, variable, meter)
    }
}

/// Validation rule of a CRD, as in `x-kubernetes-validations`. Rules with `oldSelf` do not compile.
///
/// # Example
/// ```
/// let rule = olm_resolve::ValidationRule::compile("self.matches('^[a-z]+$')").unwrap();
/// assert!(rule.holds(&"lamp".into()) && !rule.holds(&"Lamp".into()));
/// ```
#[derive(Debug)]
pub struct ValidationRule(Rule);

impl ValidationRule {
    /// Parses and checks a rule.
    ///
    /// # Errors
    /// The first error of syntax or types.
    pub fn compile(text: &str) -> Result<Self, String> {
        Rule::with(text.to_owned(), Variable::Object).map(Self)
    }

    /// Evaluates the rule with `value` as `self`. As in the API server, a rule that fails does not hold.
    pub fn holds(&self, value: &Json) -> bool {
        self.0.evaluate(value, &mut Meter::default()).unwrap_or(false)
    }
}

/// Upper bound of the depth of an expression, from its tokens alone: parsing recurses, and so does everything after
/// it.
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
            // Chains of && and || become balanced trees, so their parts are siblings.
            TokenKind::TokLogicalAnd | TokenKind::TokLogicalOr => level.end_part(),
            TokenKind::TokComma => level.end_item(),
            // The rest of the item is nested within the conditional.
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

/// State of the text between two brackets.
#[derive(Default)]
struct Level {
    /// Operators, selections and brackets of the current part.
    links: usize,
    /// Depth of the deepest brackets in the current part.
    inner: usize,
    /// Conditionals of the current item.
    conditionals: usize,
    /// Number of completed parts.
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
