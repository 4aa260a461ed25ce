//! Type checker of rules, after the reference's checker for this environment: one [`Variable`], the function
//! `semver_compare`, and the standard library.
//!
//! The value of a property is dyn and not bool, so `properties[0].value` alone is rejected. Only the type parameters
//! of an empty list or map remain unbound until their first use.

use std::fmt;
use std::rc::Rc;

use cel::IdedExpr as Expression;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr};

/// Variable of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variable {
    /// `properties`: the properties of a bundle, a list of maps from string to dyn.
    Properties,
    /// `self`: the value with a validation rule, of type dyn.
    Object,
}

/// Fails unless the expression has the type bool.
pub(super) fn yields_bool(expression: &Expression, variable: Variable) -> Result<(), String> {
    match (Checker { variable, scope: Vec::new() }).check(expression)? {
        Type::Bool => Ok(()),
        _ => Err("cel expressions must have type Bool".to_owned()),
    }
}

/// Names of types.
pub(super) const TYPE_NAMES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Type {
    /// Known only at run time.
    Dyn,
    /// Unbound element type of an empty list or map.
    Free,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Kind,
    List(Rc<Self>),
    Map(Rc<(Self, Self)>),
}

impl Type {
    /// Joins two types to the more general one. `None` if they are incompatible.
    fn join(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Free, known) | (known, Self::Free) => Some(known.clone()),
            (Self::Dyn, _) | (_, Self::Dyn) => Some(Self::Dyn),
            (Self::List(a), Self::List(b)) => Some(Self::list(a.join(b)?)),
            (Self::Map(a), Self::Map(b)) => Some(Self::map(a.0.join(&b.0)?, a.1.join(&b.1)?)),
            (a, b) => (a == b).then(|| a.clone()),
        }
    }

    fn list(element: Self) -> Self {
        Self::List(Rc::new(element))
    }

    fn map(key: Self, value: Self) -> Self {
        Self::Map(Rc::new((key, value)))
    }

    fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Free)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dyn | Self::Free => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::Kind => "type",
            Self::List(element) => return write!(f, "list({element})"),
            Self::Map(entry) => return write!(f, "map({}, {})", entry.0, entry.1),
        })
    }
}

struct Checker<'a> {
    variable: Variable,
    scope: Vec<(&'a str, Type)>,
}

impl<'a> Checker<'a> {
    fn check(&mut self, expression: &'a Expression) -> Result<Type, String> {
        match &expression.expr {
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.selection(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let mut element = Type::Free;
                for member in &list.elements {
                    element = element.join(&self.check(member)?).unwrap_or(Type::Dyn);
                }
                Ok(Type::list(element))
            }
            Expr::Map(map) => {
                let (mut key, mut value) = (Type::Free, Type::Free);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        let named = match self.check(&entry.key)? {
                            // An invalid key, reported at run time.
                            Type::List(_) | Type::Map(_) => Type::Dyn,
                            scalar => scalar,
                        };
                        key = key.join(&named).unwrap_or(Type::Dyn);
                        value = value.join(&self.check(&entry.value)?).unwrap_or(Type::Dyn);
                    }
                }
                Ok(Type::map(key, value))
            }
            Expr::Struct(message) => Err(undeclared(&message.type_name)),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Unspecified => Err("expression is incomplete".to_owned()),
        }
    }

    fn name(&self, name: &str) -> Result<Type, String> {
        if let Some((_, known)) = self.scope.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(known.clone());
        }
        match name.strip_prefix('.').unwrap_or(name) {
            "self" if self.variable == Variable::Object => Ok(Type::Dyn),
            "properties" if self.variable == Variable::Properties => {
                Ok(Type::list(Type::map(Type::Text, Type::Dyn)))
            }
            name if TYPE_NAMES.contains(&name) => Ok(Type::Kind),
            _ => Err(undeclared(name)),
        }
    }

    fn selection(&mut self, select: &'a SelectExpr) -> Result<Type, String> {
        let field = match self.check(&select.operand)? {
            Type::Map(entry) => entry.1.clone(),
            open if open.is_open() => Type::Dyn,
            other => return Err(format!("type '{other}' does not support field selection")),
        };
        Ok(if select.test { Type::Bool } else { field })
    }

    fn call(&mut self, call: &'a CallExpr) -> Result<Type, String> {
        let mut arguments = Vec::with_capacity(call.args.len() + 1);
        for argument in call.target.as_deref().into_iter().chain(&call.args) {
            arguments.push(self.check(argument)?);
        }
        let member = call.target.is_some();
        let name = call.func_name.strip_prefix('.').unwrap_or(&call.func_name);
        let mut known = false;
        let mut result: Option<Type> = None;
        for (_, style, overloads, returned) in SIGNATURES.iter().filter(|(names, ..)| names.contains(&name)) {
            known = true;
            if *style == (if member { Style::Global } else { Style::Member }) {
                continue;
            }
            for fits in overloads.iter().filter_map(|parameters| fit(parameters, *returned, &arguments)) {
                // Overloads with different result types match: the type is known only at run time.
                result = Some(match result {
                    Some(other) if other != fits => Type::Dyn,
                    _ => fits,
                });
            }
        }
        result.ok_or_else(|| if known { misfit(name, member, &arguments) } else { undeclared(name) })
    }

    /// Checks an expanded macro: a fold over a list or the keys of a map.
    fn comprehension(&mut self, fold: &'a ComprehensionExpr) -> Result<Type, String> {
        let element = match self.check(&fold.iter_range)? {
            Type::List(element) => (*element).clone(),
            Type::Map(entry) => entry.0.clone(),
            open if open.is_open() => Type::Dyn,
            other => {
                return Err(format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
            }
        };
        let start = self.check(&fold.accu_init)?;
        self.scope.push((&fold.accu_var, start.clone()));
        self.scope.push((&fold.iter_var, element));
        self.check(&fold.loop_cond)?;
        let step = self.check(&fold.loop_step)?;
        self.scope.truncate(self.scope.len() - 2);
        let end = start.join(&step).ok_or_else(|| format!("expected type '{start}' but found '{step}'"))?;
        self.scope.push((&fold.accu_var, end));
        let result = self.check(&fold.result);
        self.scope.pop();
        result
    }
}

fn of_literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::Text,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

fn misfit(name: &str, member: bool, arguments: &[Type]) -> String {
    let shown: Vec<_> = arguments.iter().map(Type::to_string).collect();
    let applied = match shown.split_first() {
        Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
        _ => format!("({})", shown.join(", ")),
    };
    format!("found no matching overload for '{name}' applied to '{applied}'")
}

/// Parameter or result of a function. `A` and `B` each are the same type throughout one overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Any,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Kind,
    A,
    ListOfA,
    MapOfAToB,
    B,
}

use Slot::{A, Any, B, Bool, Bytes, Double, Int, ListOfA, MapOfAToB, Text, Uint};

/// Call style of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Global,
    Member,
    Both,
}

/// Names of functions, call style, parameters (one list for each overload), and result. `None` for the type of the
/// first parameter.
type Signature = (&'static [&'static str], Style, &'static [&'static [Slot]], Option<Slot>);

const SIGNATURES: &[Signature] = &[
    (&["_&&_", "_||_"], Style::Global, &[&[Bool, Bool]], Some(Bool)),
    (&["!_", "@not_strictly_false"], Style::Global, &[&[Bool]], Some(Bool)),
    (&["_?_:_"], Style::Global, &[&[Bool, A, A]], Some(A)),
    (&["_==_", "_!=_"], Style::Global, &[&[A, A]], Some(Bool)),
    (
        &["_<_", "_<=_", "_>_", "_>=_"],
        Style::Global,
        &[&[Bool, Bool], &[Int, Int], &[Uint, Uint], &[Double, Double], &[Text, Text], &[Bytes, Bytes]],
        Some(Bool),
    ),
    (
        &["_+_"],
        Style::Global,
        &[&[Int, Int], &[Uint, Uint], &[Double, Double], &[Text, Text], &[Bytes, Bytes], &[ListOfA, ListOfA]],
        None,
    ),
    (&["_-_", "_*_", "_/_"], Style::Global, &[&[Int, Int], &[Uint, Uint], &[Double, Double]], None),
    (&["_%_"], Style::Global, &[&[Int, Int], &[Uint, Uint]], None),
    (&["-_"], Style::Global, &[&[Int], &[Double]], None),
    (&["_[_]"], Style::Global, &[&[ListOfA, Int]], Some(A)),
    (&["_[_]"], Style::Global, &[&[MapOfAToB, A]], Some(B)),
    (&["@in"], Style::Global, &[&[A, ListOfA], &[A, MapOfAToB]], Some(Bool)),
    (&["size"], Style::Both, &[&[Text], &[Bytes], &[ListOfA], &[MapOfAToB]], Some(Int)),
    (&["matches"], Style::Both, &[&[Text, Text]], Some(Bool)),
    (&["contains", "startsWith", "endsWith"], Style::Member, &[&[Text, Text]], Some(Bool)),
    (&["type"], Style::Global, &[&[Any]], Some(Slot::Kind)),
    (&["dyn"], Style::Global, &[&[Any]], Some(Any)),
    (&["int"], Style::Global, &[&[Int], &[Uint], &[Double], &[Text]], Some(Int)),
    (&["uint"], Style::Global, &[&[Int], &[Uint], &[Double], &[Text]], Some(Uint)),
    (&["double"], Style::Global, &[&[Int], &[Uint], &[Double], &[Text]], Some(Double)),
    (&["string"], Style::Global, &[&[Bool], &[Int], &[Uint], &[Double], &[Text], &[Bytes]], Some(Text)),
    (&["bytes"], Style::Global, &[&[Bytes], &[Text]], Some(Bytes)),
    (&["bool"], Style::Global, &[&[Bool], &[Text]], Some(Bool)),
    (&["semver_compare"], Style::Global, &[&[Any, Any]], Some(Int)),
];

/// Type of the result of an overload, if the arguments match its parameters.
fn fit(parameters: &[Slot], result: Option<Slot>, arguments: &[Type]) -> Option<Type> {
    if parameters.len() != arguments.len() {
        return None;
    }
    let (mut a, mut b) = (Type::Free, Type::Free);
    for (slot, argument) in parameters.iter().zip(arguments) {
        slot.accept(argument, &mut a, &mut b)?;
    }
    Some(result.or_else(|| parameters.first().copied())?.fill(&a, &b))
}

impl Slot {
    /// Binds the type parameters so that `argument` matches. `None` if it cannot.
    fn accept(self, argument: &Type, a: &mut Type, b: &mut Type) -> Option<()> {
        match (self, argument) {
            (Self::A, _) => *a = a.join(argument)?,
            (Self::B, _) => *b = b.join(argument)?,
            (Self::ListOfA, Type::List(element)) => *a = a.join(element)?,
            (Self::MapOfAToB, Type::Map(entry)) => (*a, *b) = (a.join(&entry.0)?, b.join(&entry.1)?),
            (Self::Any, _) | (_, Type::Dyn | Type::Free) => {}
            _ => return (self.fill(a, b) == *argument).then_some(()),
        }
        Some(())
    }

    fn fill(self, a: &Type, b: &Type) -> Type {
        let known = |bound: &Type| if *bound == Type::Free { Type::Dyn } else { bound.clone() };
        match self {
            Self::Any => Type::Dyn,
            Self::Bool => Type::Bool,
            Self::Int => Type::Int,
            Self::Uint => Type::Uint,
            Self::Double => Type::Double,
            Self::Text => Type::Text,
            Self::Bytes => Type::Bytes,
            Self::Kind => Type::Kind,
            Self::A => known(a),
            Self::B => known(b),
            Self::ListOfA => Type::list(a.clone()),
            Self::MapOfAToB => Type::map(a.clone(), b.clone()),
        }
    }
}
