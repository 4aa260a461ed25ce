//! Evaluation of a checked rule, like the reference's with values of unknown type.
//!
//! Errors are values: in `&&`, `||` and the loops made of them, the other side can override an error. Steps are
//! counted and limited, so that no untrusted rule can stall a resolution. A rule beyond the limit fails.

use std::fmt::Write;
use std::rc::Rc;

use cel::IdedExpr as Expression;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use regex::Regex;
use serde_json::Value as Json;

use super::check::TYPE_NAMES;
use super::function;
use super::value::{Text, Value};

/// Maximum number of steps of one requirement's rules for one bundle. Steps are nodes of an expression, elements
/// compared or copied, and 64 bytes of text each. A legible rule over a thousand properties takes about ten thousand.
/// The limit is reached within hundredths of a second.
const STEP_LIMIT: u64 = 250_000;

/// Failure of an evaluation.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// Error of the language, which the other side of `&&` or `||` can override.
    Error(Rc<str>),
    /// The step limit is reached. Nothing overrides that.
    Exhausted,
}

impl Fault {
    pub(super) fn error(text: impl Into<Rc<str>>) -> Self {
        Self::Error(text.into())
    }

    /// Error for a function without an overload for these values.
    pub(super) fn misfit(name: &str, values: &[&Value<'_>]) -> Self {
        let mut text = format!("no such overload: {name}(");
        for (position, value) in values.iter().enumerate() {
            let _ = write!(text, "{}{}", if position == 0 { "" } else { ", " }, value.type_name());
        }
        Self::error(text + ")")
    }
}

pub(super) type Outcome<'a> = Result<Value<'a>, Fault>;

/// Counter of steps.
#[derive(Debug)]
pub(in crate::constraint) struct Meter {
    left: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self { left: STEP_LIMIT }
    }
}

impl Meter {
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Fault> {
        let left = self.left.checked_sub(u64::try_from(steps).unwrap_or(u64::MAX));
        self.left = left.unwrap_or_default();
        left.map(drop).ok_or(Fault::Exhausted)
    }

    /// Spends steps for work on a text of this length.
    pub(super) fn spend_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.spend(bytes / 64)
    }
}

/// Evaluates a rule to a boolean or an error text.
pub(super) fn evaluate(expression: &Expression, variable: &Json, meter: &mut Meter) -> Result<bool, String> {
    let mut machine = Machine { variable, scope: Vec::new(), meter, pattern: None };
    match machine.value(expression) {
        Ok(Value::Bool(value)) => Ok(value),
        Ok(other) => Err(format!("the rule yields {}, not bool", other.type_name())),
        Err(Fault::Error(text)) => Err(text.to_string()),
        Err(Fault::Exhausted) => Err(format!("the rules take more than {STEP_LIMIT} steps")),
    }
}

/// State of an evaluation.
pub(super) struct Machine<'a, 'm> {
    /// Value of the rule's only variable.
    variable: &'a Json,
    /// Loop variables, innermost last. The result variable of a loop can hold an error that a later element
    /// overrides.
    scope: Vec<(&'a str, Outcome<'a>)>,
    pub(super) meter: &'m mut Meter,
    /// Last used pattern, compiled, for the next element of a loop.
    pub(super) pattern: Option<(String, Regex)>,
}

impl<'a> Machine<'a, '_> {
    pub(super) fn value(&mut self, expression: &'a Expression) -> Outcome<'a> {
        self.meter.spend(1)?;
        match &expression.expr {
            Expr::Literal(literal) => {
                if let LiteralValue::Bytes(bytes) = literal {
                    self.meter.spend_bytes(bytes.inner().len())?;
                }
                Ok(of_literal(literal))
            }
            Expr::Ident(name) => {
                self.meter.spend_bytes(name.len())?;
                self.name(name)
            }
            Expr::Select(select) => {
                let operand = self.value(&select.operand)?;
                self.selection(&operand, &select.field, select.test)
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let elements: Result<Vec<_>, _> =
                    list.elements.iter().map(|element| self.value(element)).collect();
                Ok(Value::List(elements?.into()))
            }
            Expr::Map(map) => self.map(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Struct(_) | Expr::Unspecified => Err(Fault::error("expression cannot be evaluated")),
        }
    }

    fn name(&self, name: &str) -> Outcome<'a> {
        if let Some((_, known)) = self.scope.iter().rev().find(|(bound, _)| *bound == name) {
            return known.clone();
        }
        let name = name.strip_prefix('.').unwrap_or(name);
        match TYPE_NAMES.into_iter().find(|known| *known == name) {
            Some(known) => Ok(Value::Type(known)),
            None => Ok(Value::of(self.variable)),
        }
    }

    fn selection(&mut self, operand: &Value<'a>, field: &'a str, test: bool) -> Outcome<'a> {
        self.meter.spend_bytes(field.len())?;
        if !matches!(operand, Value::Object(_) | Value::Map(_)) {
            return Err(Fault::error(format!(
                "unsupported selection of field '{field}' on type '{}'",
                operand.type_name()
            )));
        }
        let found = operand.get(&Value::Text(Text::Borrowed(field)), self.meter)?;
        if test {
            return Ok(Value::Bool(found.is_some()));
        }
        found.ok_or_else(|| Fault::error(format!("no such key: {field}")))
    }

    fn map(&mut self, entries: impl Iterator<Item = &'a EntryExpr>) -> Outcome<'a> {
        let mut map: Vec<(Value<'a>, Value<'a>)> = Vec::new();
        for entry in entries {
            let EntryExpr::MapEntry(entry) = entry else { continue };
            let key = self.value(&entry.key)?;
            if !key.is_key() || matches!(key, Value::Double(_)) {
                return Err(Fault::error(format!("unsupported key type: {}", key.type_name())));
            }
            for (known, _) in &map {
                if known.equals(&key, self.meter)? {
                    return Err(Fault::error("a map has the same key twice"));
                }
            }
            let value = self.value(&entry.value)?;
            map.push((key, value));
        }
        Ok(Value::Map(map.into()))
    }

    fn call(&mut self, call: &'a CallExpr) -> Outcome<'a> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, [left, right]) => self.decide(left, right, false),
            (operators::LOGICAL_OR, [left, right]) => self.decide(left, right, true),
            (operators::NOT_STRICTLY_FALSE, [operand]) => match self.value(operand) {
                Err(Fault::Exhausted) => Err(Fault::Exhausted),
                value => Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false))))),
            },
            (operators::CONDITIONAL, [condition, yes, no]) => match self.value(condition)? {
                Value::Bool(true) => self.value(yes),
                Value::Bool(false) => self.value(no),
                other => Err(Fault::misfit(&call.func_name, &[&other])),
            },
            (operators::ADD, [left, right]) => {
                let left = self.taken(left)?;
                let right = self.value(right)?;
                function::add(left, &right, self.meter)
            }
            (name, arguments) => {
                let mut values = Vec::with_capacity(arguments.len() + 1);
                for argument in call.target.as_deref().into_iter().chain(arguments) {
                    values.push(self.value(argument)?);
                }
                function::apply(name.strip_prefix('.').unwrap_or(name), &values, self)
            }
        }
    }

    /// Evaluates `&&` or `||`: a side equal to `decisive` decides, whatever the other is.
    fn decide(&mut self, left: &'a Expression, right: &'a Expression, decisive: bool) -> Outcome<'a> {
        let mut undecided = None;
        for side in [left, right] {
            match self.value(side) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Err(Fault::Exhausted) => return Err(Fault::Exhausted),
                Err(fault) => undecided = undecided.or(Some(fault)),
                Ok(other) => {
                    let name = if decisive { operators::LOGICAL_OR } else { operators::LOGICAL_AND };
                    undecided = undecided.or_else(|| Some(Fault::misfit(name, &[&other])));
                }
            }
        }
        undecided.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    /// Like [`Self::value`], but moves the result of a loop out of its variable. The name of such a variable is not
    /// valid in a rule, and each loop step reads it once and sets it again. So a list grows without copies.
    fn taken(&mut self, expression: &'a Expression) -> Outcome<'a> {
        match &expression.expr {
            Expr::Ident(name) if name.starts_with('@') => {
                self.meter.spend(1)?;
                let known = self.scope.iter_mut().rev().find(|(bound, _)| bound == name);
                known.map_or(Ok(Value::Null), |(_, value)| std::mem::replace(value, Ok(Value::Null)))
            }
            _ => self.value(expression),
        }
    }

    /// Evaluates an expanded macro: a fold over the elements of a list or the keys of a map.
    fn fold(&mut self, fold: &'a ComprehensionExpr) -> Outcome<'a> {
        let range = self.value(&fold.iter_range)?;
        let mut result = self.value(&fold.accu_init);
        let elements = range
            .elements()
            .ok_or_else(|| Fault::error(format!("got '{}', expected iterable type", range.type_name())))?;
        let depth = self.scope.len();
        for element in elements {
            self.scope.push((&fold.accu_var, result));
            self.scope.push((&fold.iter_var, Ok(element)));
            let goes_on = self.value(&fold.loop_cond);
            let step = match goes_on {
                Ok(Value::Bool(true)) => Some(self.value(&fold.loop_step)),
                Err(Fault::Exhausted) => Some(Err(Fault::Exhausted)),
                _ => None,
            };
            self.scope.truncate(depth + 1);
            let before = self.scope.pop().map_or(Ok(Value::Null), |(_, value)| value);
            match step {
                Some(Err(Fault::Exhausted)) => return Err(Fault::Exhausted),
                Some(step) => result = step,
                None => {
                    result = before;
                    break;
                }
            }
        }
        self.scope.push((&fold.accu_var, result));
        let value = self.value(&fold.result);
        self.scope.truncate(depth);
        value
    }
}

fn of_literal(literal: &LiteralValue) -> Value<'_> {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(bytes) => Value::Bytes(bytes.inner().into()),
        LiteralValue::Double(number) => Value::Double(*number.inner()),
        LiteralValue::Int(number) => Value::Int(*number.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(text) => Value::Text(Text::Borrowed(text.inner())),
        LiteralValue::UInt(number) => Value::Uint(*number.inner()),
    }
}
