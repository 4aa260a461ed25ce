//! Requirement ready for evaluation: a tree of conditions in a list, so that nesting uses no stack.

use std::fmt;

use olm_version::{Range, quote};

use super::decode::Fields;
use super::provider::Provider;
use super::rule::{Meter, Rule};
use super::{CONSTRAINT, Gvk, RequirementFault};

/// Tree of one requirement. The root is first, children follow their parents.
#[derive(Debug)]
pub(super) struct Predicate {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    condition: Condition,
    failure_message: String,
}

#[derive(Debug)]
enum Condition {
    Gvk(Gvk),
    Package {
        name: String,
        written: String,
        range: Range,
    },
    /// `all`, `any` or `not` of its members.
    Compound(&'static str, Vec<usize>),
    Rule(Rule),
}

/// Remaining part of a tree to format.
enum Part {
    Node(usize),
    Text(&'static str),
}

impl Predicate {
    /// Creates the tree from decoded fields. If a node has several kinds, the first of gvk, package, all, any, not
    /// and cel is used. The others are not even validated (docs/design/resolution.md#constraint-property).
    pub(super) fn new(property_type: &'static str, tree: Vec<Fields>) -> Result<Self, RequirementFault> {
        let fault = |(text, hint): Fault| RequirementFault {
            text: if property_type == CONSTRAINT {
                format!("convert olm.constraint to resolver predicate: {text}")
            } else {
                format!("parse {property_type}: {text}")
            },
            hint,
        };
        // Depth first and in order, because the reference reports the first error.
        let mut tree: Vec<Option<Fields>> = tree.into_iter().map(Some).collect();
        let mut nodes: Vec<Node> = Vec::with_capacity(tree.len());
        let mut waiting = vec![(0, None)];
        while let Some((index, parent)) = waiting.pop() {
            let Some(mut fields) = tree.get_mut(index).and_then(Option::take) else { continue };
            let failure_message = fields.take_text("failureMessage");
            let (condition, members) = Condition::new(fields).map_err(fault)?;
            let here = nodes.len();
            waiting.extend(members.into_iter().rev().map(|member| (member, Some(here))));
            nodes.push(Node { condition, failure_message });
            if let Some(parent) = parent
                && let Some(Node { condition: Condition::Compound(_, children), .. }) = nodes.get_mut(parent)
            {
                children.push(here);
            }
        }
        Ok(Self { nodes })
    }

    pub(super) fn failure_message(&self) -> Option<&str> {
        let message = self.nodes.first()?.failure_message.as_str();
        (!message.is_empty()).then_some(message)
    }

    pub(super) fn packages(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().filter_map(|node| match &node.condition {
            Condition::Package { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    /// Number of nodes.
    pub(super) fn size(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn gvks(&self) -> impl Iterator<Item = &Gvk> {
        self.nodes.iter().filter_map(|node| match &node.condition {
            Condition::Gvk(gvk) => Some(gvk),
            _ => None,
        })
    }

    /// Values of the leaf conditions for a bundle, by node.
    pub(super) fn values(&self, provider: &Provider) -> Vec<bool> {
        let mut meter = Meter::default();
        self.nodes.iter().map(|node| node.condition.is_met_by(provider, &mut meter)).collect()
    }

    /// Value of the tree, from the values of its leaf conditions.
    pub(super) fn holds(&self, mut values: Vec<bool>) -> bool {
        for (index, node) in self.nodes.iter().enumerate().rev() {
            let Condition::Compound(kind, members) = &node.condition else { continue };
            let mut members = members.iter().map(|member| values[*member]);
            values[index] = match *kind {
                "all" => members.all(|value| value),
                "any" => members.any(|value| value),
                _ => !members.any(|value| value),
            };
        }
        values.first().copied().unwrap_or_default()
    }

    /// Errors of rules for this bundle. Such a rule evaluates to false.
    pub(super) fn rule_failures<'a>(
        &'a self,
        provider: &'a Provider,
    ) -> impl Iterator<Item = (&'a str, String)> {
        let mut meter = Meter::default();
        self.nodes.iter().filter_map(move |node| match &node.condition {
            Condition::Rule(rule) => Some((rule.text(), rule.evaluate(provider.facts(), &mut meter).err()?)),
            _ => None,
        })
    }

    fn print(&self, node: &Node, rest: &mut Vec<Part>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (members, first, join, none) = match &node.condition {
            Condition::Gvk(gvk) => return write!(f, "providing an API with {gvk}"),
            Condition::Package { name, written, .. } => {
                return write!(f, "with package: {name} and with version in range: {written}");
            }
            Condition::Rule(rule) => {
                let (rule, message) = (quote(rule.text()), quote(&node.failure_message));
                return write!(f, "with constraint: {rule} and message: {message}");
            }
            Condition::Compound("all", members) => (members, "", " and ", "predicate is true"),
            Condition::Compound("any", members) => (members, "", " or ", "predicate is false"),
            Condition::Compound(_, members) => (members, "not ", " and not ", "predicate is true"),
        };
        for (position, member) in members.iter().enumerate().rev() {
            rest.push(Part::Node(*member));
            rest.push(Part::Text(if position == 0 { first } else { join }));
        }
        if members.is_empty() { f.write_str(none) } else { Ok(()) }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = vec![Part::Node(0)];
        while let Some(part) = rest.pop() {
            match part {
                Part::Text(text) => f.write_str(text)?,
                Part::Node(index) => {
                    if let Some(node) = self.nodes.get(index) {
                        self.print(node, &mut rest, f)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Text and hint.
type Fault = (String, Option<String>);

impl Condition {
    /// Creates the applicable condition and returns the indexes of its members.
    fn new(mut fields: Fields) -> Result<(Self, Vec<usize>), Fault> {
        let kinds = ["all", "any", "not"];
        Ok(if let Some(gvk) = fields.take_gvk() {
            (Self::Gvk(gvk), Vec::new())
        } else if fields.take_object("package").is_some() {
            (Self::package(fields.take_text("packageName"), fields.take_text("versionRange"))?, Vec::new())
        } else if let Some(found) = kinds.into_iter().find_map(|kind| Some((kind, fields.take_object(kind)?)))
        {
            (Self::Compound(found.0, Vec::new()), found.1)
        } else if fields.take_object("cel").is_some() {
            (Self::Rule(Rule::compile(fields.take_text("rule")).map_err(|text| (text, None))?), Vec::new())
        } else {
            let hint = "one of gvk, package, all, any, not, cel is needed".to_owned();
            return Err(("constraint is empty".to_owned(), Some(hint)));
        })
    }

    fn package(name: String, written: String) -> Result<Self, Fault> {
        let range = Range::parse(&written).map_err(|fault| {
            let hint =
                format!("versionRange of package {}: a range such as \">=1.0.0 <2.0.0\"", quote(&name));
            (fault.to_string(), Some(hint))
        })?;
        Ok(Self::Package { name, written, range })
    }

    /// Evaluates a leaf condition. Other conditions depend on their members.
    fn is_met_by(&self, provider: &Provider, meter: &mut Meter) -> bool {
        match self {
            Self::Gvk(gvk) => provider.provides(gvk),
            Self::Package { name, range, .. } => {
                provider.packages().iter().any(|(package, _)| package == name)
                    && provider.packages().iter().any(|(_, version)| {
                        version.as_ref().is_some_and(|version| range.contains(version.version()))
                    })
            }
            Self::Rule(rule) => rule.evaluate(provider.facts(), meter).unwrap_or_default(),
            Self::Compound(..) => false,
        }
    }
}
