//! Parsing of a query and its limits, checked before any schema is used (docs/design/catalogd.md#graphql-requests,
//! limits).

use std::collections::{HashMap, HashSet};

use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, FragmentDefinition, OperationDefinition, OperationType,
    Selection, SelectionSet,
};
use async_graphql::parser::{Error, parse_query};
use async_graphql::{Name, Pos, Positioned};

use crate::syntax::{nests_too_deeply, unexpected};

const MAX_DEPTH: usize = 10;
const MAX_ALIASES: usize = 50;
const MAX_FIELDS: usize = 500;
/// Upstream counts a fragment once however often it is spread, but each spread costs time.
const MAX_EXPANDED: usize = 5_000;
const MAX_FRAGMENTS: usize = 500;

/// Parsed query within the limits. The names in it need not exist.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) document: ExecutableDocument,
}

/// Error of a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    pub(crate) message: String,
    pub(crate) location: Option<Pos>,
}

impl Query {
    /// Parses a GraphQL document with one query.
    ///
    /// ```
    /// use olm_graphql::Query;
    ///
    /// assert!(Query::parse("{ summary { totalSchemas } }").is_ok());
    /// let error = Query::parse("mutation { a }").unwrap_err();
    /// assert_eq!(error.to_string(), "Schema is not configured for mutations");
    /// ```
    ///
    /// # Errors
    /// The text is invalid, exceeds a limit, or has an operation other than a query.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if nests_too_deeply(text) {
            return Err(too_deep());
        }
        let document = parse_query(text).map_err(|error| parse_error(text, error))?;
        check_limits(&document)?;
        check_operation(&document)?;
        Ok(Self { document })
    }
}

fn check_limits(document: &ExecutableDocument) -> Result<(), QueryError> {
    if document.fragments.len() > MAX_FRAGMENTS {
        return Err(invalid(format!("query exceeds maximum fragment count of {MAX_FRAGMENTS}")));
    }
    let mut count =
        DocumentCount { fragments: &document.fragments, spread: HashSet::new(), fields: 0, aliases: 0 };
    for operation in operations(document) {
        count.spread.clear();
        count.selections(&operation.node.selection_set.node, 1)?;
    }
    let mut expanded = ExpandedCount { fragments: &document.fragments, within: Vec::new(), selections: 0 };
    for operation in operations(document) {
        expanded.selections(&operation.node.selection_set.node)?;
    }
    Ok(())
}

fn check_operation(document: &ExecutableDocument) -> Result<(), QueryError> {
    let [operation] = operations(document)[..] else {
        return Err(invalid("Must provide operation name if query contains multiple operations."));
    };
    match operation.node.ty {
        OperationType::Query => Ok(()),
        OperationType::Mutation => Err(error_at("Schema is not configured for mutations", operation.pos)),
        OperationType::Subscription => {
            Err(error_at("Schema is not configured for subscriptions", operation.pos))
        }
    }
}

/// Operations in text order.
fn operations(document: &ExecutableDocument) -> Vec<&Positioned<OperationDefinition>> {
    let mut operations: Vec<_> = match &document.operations {
        DocumentOperations::Single(operation) => vec![operation],
        DocumentOperations::Multiple(operations) => operations.values().collect(),
    };
    operations.sort_by_key(|operation| (operation.pos.line, operation.pos.column));
    operations
}

type Fragments = HashMap<Name, Positioned<FragmentDefinition>>;

/// Counts over the whole document, with each fragment once per operation.
struct DocumentCount<'a> {
    fragments: &'a Fragments,
    spread: HashSet<&'a str>,
    fields: usize,
    aliases: usize,
}

impl<'a> DocumentCount<'a> {
    fn selections(&mut self, set: &'a SelectionSet, depth: usize) -> Result<(), QueryError> {
        if set.items.is_empty() {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(too_deep());
        }
        for selection in &set.items {
            match &selection.node {
                Selection::Field(field) => {
                    self.fields += 1;
                    if self.fields > MAX_FIELDS {
                        return Err(invalid(format!("query exceeds maximum field count of {MAX_FIELDS}")));
                    }
                    self.aliases += usize::from(field.node.alias.is_some());
                    if self.aliases > MAX_ALIASES {
                        return Err(invalid(format!("query exceeds maximum alias count of {MAX_ALIASES}")));
                    }
                    self.selections(&field.node.selection_set.node, depth + 1)?;
                }
                Selection::InlineFragment(fragment) => {
                    self.selections(&fragment.node.selection_set.node, depth + 1)?;
                }
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    if !self.spread.insert(name) {
                        continue;
                    }
                    if let Some(fragment) = self.fragments.get(name) {
                        self.selections(&fragment.node.selection_set.node, depth + 1)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Counts selections as executed, with each fragment once per spread.
struct ExpandedCount<'a> {
    fragments: &'a Fragments,
    /// Enclosing fragments.
    within: Vec<&'a str>,
    selections: usize,
}

impl<'a> ExpandedCount<'a> {
    fn selections(&mut self, set: &'a SelectionSet) -> Result<(), QueryError> {
        for selection in &set.items {
            self.selections += 1;
            if self.selections > MAX_EXPANDED {
                let text =
                    format!("query exceeds maximum field count of {MAX_EXPANDED} with fragments expanded");
                return Err(invalid(text));
            }
            match &selection.node {
                Selection::Field(field) => self.selections(&field.node.selection_set.node)?,
                Selection::InlineFragment(fragment) => self.selections(&fragment.node.selection_set.node)?,
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    if self.within.contains(&name.as_str()) {
                        return Err(error_at(
                            format!("Cannot spread fragment \"{name}\" within itself."),
                            spread.pos,
                        ));
                    }
                    if self.within.len() >= MAX_DEPTH {
                        return Err(too_deep());
                    }
                    if let Some(fragment) = self.fragments.get(name) {
                        self.within.push(name);
                        self.selections(&fragment.node.selection_set.node)?;
                        self.within.pop();
                    }
                }
            }
        }
        Ok(())
    }
}

fn parse_error(text: &str, error: Error) -> QueryError {
    match error {
        Error::Syntax { start, .. } => {
            let Pos { line, column } = start;
            let unexpected = unexpected(text, start);
            error_at(format!("query parse error: Syntax Error GraphQL ({line}:{column}) {unexpected}"), start)
        }
        Error::MissingOperation => invalid("Must provide an operation."),
        Error::MultipleOperations { anonymous, .. } => {
            error_at("This anonymous operation must be the only defined operation.", anonymous)
        }
        Error::OperationDuplicated { operation, second, .. } => {
            error_at(format!("There can only be one operation named \"{operation}\"."), second)
        }
        Error::FragmentDuplicated { fragment, second, .. } => {
            error_at(format!("There can only be one fragment named \"{fragment}\"."), second)
        }
        Error::RecursionLimitExceeded => too_deep(),
        other => invalid(format!("query parse error: {other}")),
    }
}

fn too_deep() -> QueryError {
    invalid(format!("query exceeds maximum depth of {MAX_DEPTH}"))
}

fn invalid(message: impl Into<String>) -> QueryError {
    QueryError { message: message.into(), location: None }
}

fn error_at(message: impl Into<String>, location: Pos) -> QueryError {
    QueryError { location: Some(location), ..invalid(message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(text: &str) -> String {
        Query::parse(text).err().map_or_else(String::new, |error| error.message)
    }

    /// `{a{a{…}}}` with `depth` selection sets.
    fn nested(depth: usize) -> String {
        "{a".repeat(depth) + &"}".repeat(depth)
    }

    // Case catalogd-55
    #[test]
    fn query_over_depth_limit_is_rejected() {
        assert_eq!(message(&nested(10)), "");
        for depth in [11, 64, 65, 40_000] {
            assert_eq!(message(&nested(depth)), "query exceeds maximum depth of 10", "{depth}");
        }
        // A fragment counts as a level, a second visit does not.
        let spread = |depth: usize| {
            format!(
                "query {{ {} }} fragment f on Query {}",
                "a { ".repeat(8) + "...f" + &" }".repeat(8),
                nested(depth)
            )
        };
        assert_eq!(message(&spread(1)), "");
        assert_eq!(message(&spread(2)), "query exceeds maximum depth of 10");
        let inline = "{ ... on Query ".repeat(11) + "{a}" + &"}".repeat(11);
        assert_eq!(message(&inline), "query exceeds maximum depth of 10");
    }

    #[test]
    fn query_over_field_or_alias_limit_is_rejected() {
        let aliases = |count: usize| format!("{{ {} }}", "x: a ".repeat(count));
        let fields = |count: usize| format!("{{ {} }}", "a ".repeat(count));
        assert_eq!(message(&aliases(50)), "");
        assert_eq!(message(&aliases(51)), "query exceeds maximum alias count of 50");
        assert_eq!(message(&fields(500)), "");
        assert_eq!(message(&fields(501)), "query exceeds maximum field count of 500");
        // Counted over the whole document: two operations together exceed the limit.
        let two = format!("query a {} query b {}", fields(251), fields(250));
        assert_eq!(message(&two), "query exceeds maximum field count of 500");
        // A fragment counts once, however often it is spread, and again in the next operation.
        let fragment = |spreads: &str| format!("query a {{ {spreads} }} fragment f on Query {}", fields(300));
        assert_eq!(message(&fragment("...f ...f")), "");
        assert_eq!(
            message(&format!("{} query b {{ ...f }}", fragment("...f"))),
            "query exceeds maximum field count of 500"
        );
    }

    #[test]
    fn fragment_expansion_is_limited() {
        let mut bomb = "query { ...f0 }".to_owned();
        for number in 0..9 {
            let next = number + 1;
            bomb += &format!(" fragment f{number} on Query {{ {} }}", format!("...f{next} ").repeat(20));
        }
        bomb += " fragment f9 on Query { a }";
        assert_eq!(message(&bomb), "query exceeds maximum depth of 10");
        let two =
            format!("query {{ {} }} fragment f on Query {{ {} }}", "...f ".repeat(20), "a ".repeat(300));
        assert_eq!(message(&two), "query exceeds maximum field count of 5000 with fragments expanded");
        let many: String = (0..501).map(|number| format!("fragment f{number} on Query {{a}} ")).collect();
        assert_eq!(message(&format!("{many}{{a}}")), "query exceeds maximum fragment count of 500");
        // An earlier visit of each fragment, through its own spread, does not hide the chain.
        let mut chain =
            format!("query {{ {} }}", (0..100).rev().map(|n| format!("...f{n} ")).collect::<String>());
        for number in 0..99 {
            chain += &format!(" fragment f{number} on Query {{ ...f{} }}", number + 1);
        }
        chain += " fragment f99 on Query { a }";
        assert_eq!(message(&chain), "query exceeds maximum depth of 10");
        assert_eq!(
            message("{ ...a } fragment a on Query { ...b } fragment b on Query { ...a }"),
            "Cannot spread fragment \"a\" within itself."
        );
    }

    #[test]
    fn invalid_query_is_rejected_with_message() {
        let rows = [
            ("{ a", "query parse error: Syntax Error GraphQL (1:4) Unexpected EOF"),
            ("{ a ) }", "query parse error: Syntax Error GraphQL (1:5) Unexpected )"),
            ("{\n  a(x: }\n}", "query parse error: Syntax Error GraphQL (2:8) Unexpected }"),
            ("hello", "query parse error: Syntax Error GraphQL (1:1) Unexpected Name \"hello\""),
            (" ", "query parse error: Syntax Error GraphQL (1:2) Unexpected EOF"),
            ("mutation { a }", "Schema is not configured for mutations"),
            ("subscription { a }", "Schema is not configured for subscriptions"),
            ("fragment f on Query { a }", "Must provide an operation."),
            (
                "query a { a } query b { a }",
                "Must provide operation name if query contains multiple operations.",
            ),
            ("{ a } query b { a }", "This anonymous operation must be the only defined operation."),
            ("query a { a } query a { a }", "There can only be one operation named \"a\"."),
            (
                "{ a } fragment f on Q { a } fragment f on Q { a }",
                "There can only be one fragment named \"f\".",
            ),
        ];
        for (text, expect) in rows {
            assert_eq!(message(text), expect, "{text}");
        }
        assert_eq!(Query::parse("{ a )").unwrap_err().location, Some(Pos { line: 1, column: 5 }));
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in ".*", tokens in "([a{}():\\[\\]$!\"#\n. ]|\\.\\.\\.|query|fragment|on|@skip){0,40}") {
            let _ = Query::parse(&text);
            let _ = Query::parse(&tokens);
        }
    }
}
