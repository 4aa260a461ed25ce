//! Findings of the model check as a tree, printed as upstream does (docs/design/catalogd.md#validation).

use super::{CatalogFinding, report::REJECTED};
use crate::Origin;

/// Message, or scope with its findings.
#[derive(Debug, Default)]
pub(super) struct Node {
    text: String,
    origin: Option<Origin>,
    children: Vec<Node>,
}

impl Node {
    /// Creates an empty scope.
    pub(super) fn scope(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    pub(super) fn message(&mut self, text: impl Into<String>, origin: &Origin) {
        self.children.push(Self { text: text.into(), origin: Some(origin.clone()), children: Vec::new() });
    }

    /// Adds a scope unless it is empty.
    pub(super) fn adopt(&mut self, scope: Self) {
        if !scope.children.is_empty() {
            self.children.push(scope);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Text of the tree as upstream prints it.
    pub(super) fn print(&self) -> String {
        let mut text = format!("{}:", self.text);
        self.print_children("", &mut text);
        text.trim_end().to_owned()
    }

    fn print_children(&self, indent: &str, text: &mut String) {
        let last = self.children.len().saturating_sub(1);
        for (index, child) in self.children.iter().enumerate() {
            let (branch, below) =
                if index == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let colon = if child.is_empty() { "" } else { ":" };
            text.push_str(&format!("\n{indent}{branch}{}{colon}", child.text));
            child.print_children(&format!("{indent}{below}"), text);
        }
    }

    /// Messages with their scopes, excluding this one, in tree order.
    pub(super) fn findings(&self) -> Vec<CatalogFinding> {
        let mut findings = Vec::new();
        for child in &self.children {
            child.collect(&mut Vec::new(), &mut findings);
        }
        findings
    }

    fn collect(&self, scope: &mut Vec<String>, findings: &mut Vec<CatalogFinding>) {
        if self.is_empty() {
            let (message, origin) = (self.text.clone(), self.origin.clone());
            findings.push(CatalogFinding::new(&REJECTED, scope.clone(), message, origin));
            return;
        }
        scope.push(self.text.clone());
        self.children.iter().for_each(|child| child.collect(scope, findings));
        scope.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_tree_is_printed_and_flattened() {
        let origin = Origin::default();
        let mut inner = Node::scope("inner".to_owned());
        inner.message("1", &origin);
        inner.message("2", &origin);
        let mut outer = Node::scope("outer".to_owned());
        outer.adopt(inner);
        outer.adopt(Node::scope("nothing".to_owned()));
        outer.message("3", &origin);
        let mut root = Node::scope("root".to_owned());
        root.adopt(outer);
        let expected = "root:\n└── outer:\n    ├── inner:\n    │   ├── 1\n    │   └── 2\n    └── 3";
        assert_eq!(root.print(), expected);
        let found: Vec<_> = root.findings().into_iter().map(|f| (f.scope.join("/"), f.message)).collect();
        let expected = [("outer/inner", "1"), ("outer/inner", "2"), ("outer", "3")];
        assert_eq!(found, expected.map(|(scope, message)| (scope.to_owned(), message.to_owned())));
    }
}
