//! Requirement ready for evaluation: a tree of conditions in a list, so that nesting uses no stack.

use std::fmt;

use olm_version::{Range, quote};

use super::decode::{Fields, Package};
use super::provider::Provider;
use super::rule::{Meter, Rule, RuleFailure};
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
    Package { name: String, written: String, range: Range },
    All(Vec<usize>),
    Any(Vec<usize>),
    Not(Vec<usize>),
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
            let Some(fields) = tree.get_mut(index).and_then(Option::take) else { continue };
            let failure_message = fields.failure_message.clone();
            let (condition, members) = Condition::new(fields).map_err(fault)?;
            let here = nodes.len();
            waiting.extend(members.into_iter().rev().map(|member| (member, Some(here))));
            nodes.push(Node { condition, failure_message });
            if let Some(children) = parent.and_then(|parent: usize| nodes[parent].condition.children_mut()) {
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
            let any = |members: &[usize]| members.iter().any(|member| values[*member]);
            values[index] = match &node.condition {
                Condition::All(members) => members.iter().all(|member| values[*member]),
                Condition::Any(members) => any(members),
                Condition::Not(members) => !any(members),
                Condition::Gvk(_) | Condition::Package { .. } | Condition::Rule(_) => continue,
            };
        }
        values.first().copied().unwrap_or_default()
    }

    /// Errors of rules for this bundle. Such a rule evaluates to false.
    pub(super) fn rule_failures<'a>(
        &'a self,
        provider: &'a Provider,
    ) -> impl Iterator<Item = (&'a str, RuleFailure)> {
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
            Condition::All(members) => (members, "", " and ", "predicate is true"),
            Condition::Any(members) => (members, "", " or ", "predicate is false"),
            Condition::Not(members) => (members, "not ", " and not ", "predicate is true"),
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
    fn new(fields: Fields) -> Result<(Self, Vec<usize>), Fault> {
        let Fields { failure_message: _, gvk, package, all, any, not, cel } = fields;
        Ok(if let Some(gvk) = gvk {
            (Self::Gvk(gvk), Vec::new())
        } else if let Some(package) = package {
            (Self::package(package)?, Vec::new())
        } else if let Some(members) = all {
            (Self::All(Vec::new()), members)
        } else if let Some(members) = any {
            (Self::Any(Vec::new()), members)
        } else if let Some(members) = not {
            (Self::Not(Vec::new()), members)
        } else if let Some(rule) = cel {
            (Self::Rule(Rule::compile(rule).map_err(|text| (text, None))?), Vec::new())
        } else {
            let hint = "one of gvk, package, all, any, not, cel is needed".to_owned();
            return Err(("constraint is empty".to_owned(), Some(hint)));
        })
    }

    fn package(Package { name, range: written }: Package) -> Result<Self, Fault> {
        let range = Range::parse(&written).map_err(|fault| {
            let hint =
                format!("versionRange of package {}: a range such as \">=1.0.0 <2.0.0\"", quote(&name));
            (fault.to_string(), Some(hint))
        })?;
        Ok(Self::Package { name, written, range })
    }

    fn children_mut(&mut self) -> Option<&mut Vec<usize>> {
        match self {
            Self::All(members) | Self::Any(members) | Self::Not(members) => Some(members),
            Self::Gvk(_) | Self::Package { .. } | Self::Rule(_) => None,
        }
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
            Self::All(_) | Self::Any(_) | Self::Not(_) => false,
        }
    }
}
