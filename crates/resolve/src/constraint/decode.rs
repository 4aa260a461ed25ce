//! Decoder of a property's JSON that follows Go's strict decoder (docs/design/resolution.md#constraint-property).
//!
//! Field names are case-insensitive, `null` sets nothing, a repeated field is set again. An unknown field or a wrong
//! type is an error after all reading, and of several errors the first is reported. Nesting is kept on a heap list
//! instead of the stack.

use olm_version::quote;
use olm_yaml::json;

use super::{CONSTRAINT, GVK_REQUIRED, Gvk, PACKAGE_REQUIRED, RequirementFault};

/// Deepest nesting that the reference's decoder accepts.
const NESTING_LIMIT: usize = 10_000;

/// Fields of a requirement. In a tree, each node refers to its children by index.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) failure_message: String,
    pub(super) gvk: Option<Gvk>,
    pub(super) package: Option<Package>,
    pub(super) all: Option<Vec<usize>>,
    pub(super) any: Option<Vec<usize>>,
    pub(super) not: Option<Vec<usize>>,
    pub(super) cel: Option<String>,
}

/// Package and version range as written.
#[derive(Debug, Default)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) range: String,
}

/// Position of a value: tree node and field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Constraint(usize),
    Compound(usize, Combinator),
    Members(usize, Combinator),
    Gvk(usize),
    Package(usize),
    Cel(usize),
    Text(usize, Text),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combinator {
    All,
    Any,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    FailureMessage,
    Group,
    Version,
    Kind,
    PackageName,
    VersionRange,
    Rule,
}

/// Decodes the JSON `value` of a property of one of the three types. The root is first, children follow their
/// parents.
pub(super) fn decode(property_type: &'static str, value: &str) -> Result<Vec<Fields>, RequirementFault> {
    let root = match property_type {
        GVK_REQUIRED => Slot::Gvk(0),
        PACKAGE_REQUIRED => Slot::Package(0),
        _ => Slot::Constraint(0),
    };
    let mut decoder = Decoder {
        text: value,
        at: 0,
        property_type,
        nodes: vec![Fields::default()],
        open: Vec::new(),
        names: Vec::new(),
        fault: None,
    };
    if json::nesting(value.as_bytes()) > NESTING_LIMIT {
        return Err(decoder.fault("exceeded max depth".to_owned(), None));
    }
    // A requirement of its own type exists even if its value is null.
    match root {
        Slot::Gvk(_) => decoder.nodes[0].gvk = Some(Gvk::default()),
        Slot::Package(_) => decoder.nodes[0].package = Some(Package::default()),
        _ => {}
    }
    decoder.run(root);
    match decoder.fault {
        Some(fault) => Err(fault),
        None => Ok(decoder.nodes),
    }
}

struct Decoder<'a> {
    text: &'a str,
    at: usize,
    property_type: &'static str,
    nodes: Vec<Fields>,
    /// Objects and lists that are currently open.
    open: Vec<Slot>,
    /// Field names of the current path. Lists of members add none.
    names: Vec<&'static str>,
    /// First error.
    fault: Option<RequirementFault>,
}

impl Decoder<'_> {
    fn run(&mut self, root: Slot) {
        self.value(root);
        while let Some(&slot) = self.open.last() {
            match self.next() {
                b'}' => self.close(),
                b']' => {
                    self.open.pop();
                    self.names.pop();
                }
                b',' => {}
                0 => return,
                b'"' if !matches!(slot, Slot::Members(..)) => {
                    let key = self.string();
                    self.next();
                    self.field(slot, &key);
                }
                _ => {
                    self.at -= 1;
                    if let Slot::Members(node, kind) = slot {
                        let member = self.nodes.len();
                        self.nodes.push(Fields::default());
                        self.nodes[node].members(kind).get_or_insert_default().push(member);
                        self.value(Slot::Constraint(member));
                    } else {
                        return;
                    }
                }
            }
        }
    }

    /// Closes an object and the field that contains it.
    fn close(&mut self) {
        self.open.pop();
        if !matches!(self.open.last(), Some(Slot::Members(..)) | None) {
            self.names.pop();
        }
    }

    /// Decodes the value of the field `key` of the object at `slot`.
    fn field(&mut self, slot: Slot, key: &str) {
        let fields = slot.fields();
        let folded = fold(key);
        let found = fields.iter().find(|(name, _)| *name == key);
        match found.or_else(|| fields.iter().find(|(name, _)| fold(name) == folded)) {
            Some((name, slot)) => {
                self.names.push(name);
                self.value(*slot);
                if self.open.last() != Some(slot) {
                    self.names.pop();
                }
            }
            None => {
                // Only the strict type rejects unknown fields.
                if self.property_type == CONSTRAINT {
                    let hint = hint(slot, key, &fields);
                    self.refuse(format!("json: unknown field {}", quote(key)), Some(hint));
                }
                self.skip();
            }
        }
    }

    /// Decodes the value at the current position: enters the type expected at `slot`, skips anything else.
    fn value(&mut self, slot: Slot) {
        let start = self.at;
        let expected = match self.next() {
            b'{' => !matches!(slot, Slot::Members(..) | Slot::Text(..)),
            b'[' => matches!(slot, Slot::Members(..)),
            b'"' => {
                if let Slot::Text(node, text) = slot {
                    let value = self.string();
                    self.nodes[node].set(text, value);
                    return;
                }
                false
            }
            b'n' => {
                if !self.open.is_empty() {
                    self.nodes[slot.node()].unset(slot);
                }
                self.at = start;
                return self.skip();
            }
            _ => false,
        };
        if expected {
            self.nodes[slot.node()].enter(slot);
            self.open.push(slot);
            return;
        }
        self.at = start;
        self.refuse_type(slot);
        self.skip();
    }

    fn refuse_type(&mut self, slot: Slot) {
        // A path can be as long as the value is deep, and errors as many as it is wide. Only the first gets a text.
        if self.fault.is_some() {
            return;
        }
        let found = json::Kind::of(self.text[self.at..].trim_start().as_bytes()).name();
        let wanted = slot.type_name();
        let target = match self.open.last() {
            Some(owner) => format!("struct field {}.{}", owner.structure(), self.names.join(".")),
            None => "value".to_owned(),
        };
        self.refuse(format!("json: cannot unmarshal {found} into Go {target} of type {wanted}"), None);
    }

    fn refuse(&mut self, text: String, hint: Option<String>) {
        if self.fault.is_none() {
            self.fault = Some(self.fault(text, hint));
        }
    }

    fn fault(&self, text: String, hint: Option<String>) -> RequirementFault {
        RequirementFault { text: format!("parse {}: {text}", self.property_type), hint }
    }

    /// Next byte that is not white space. 0 at the end.
    fn next(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        let byte = bytes.get(self.at).copied().unwrap_or_default();
        self.at += 1;
        byte
    }

    /// Remainder of a string after the opening quote.
    fn string(&mut self) -> String {
        let start = self.at - 1;
        self.at = end_of_string(self.text.as_bytes(), self.at);
        let text = self.text.get(start..self.at).unwrap_or_default();
        // Only half of a surrogate pair fails here: valid JSON, but not Unicode text.
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Skips a value.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.next() {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'"' => self.at = end_of_string(self.text.as_bytes(), self.at),
                b',' | b':' => continue,
                0 => return,
                _ => {
                    let bytes = self.text.as_bytes();
                    while bytes.get(self.at).is_some_and(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
                    {
                        self.at += 1;
                    }
                }
            }
            if depth == 0 {
                return;
            }
        }
    }
}

impl Slot {
    fn node(self) -> usize {
        match self {
            Self::Constraint(node)
            | Self::Compound(node, _)
            | Self::Members(node, _)
            | Self::Gvk(node)
            | Self::Package(node)
            | Self::Cel(node)
            | Self::Text(node, _) => node,
        }
    }

    /// Fields of an object at this position.
    fn fields(self) -> Vec<(&'static str, Self)> {
        let node = self.node();
        let text = |text| Self::Text(node, text);
        match self {
            Self::Constraint(_) => vec![
                ("failureMessage", text(Text::FailureMessage)),
                ("gvk", Self::Gvk(node)),
                ("package", Self::Package(node)),
                ("all", Self::Compound(node, Combinator::All)),
                ("any", Self::Compound(node, Combinator::Any)),
                ("not", Self::Compound(node, Combinator::Not)),
                ("cel", Self::Cel(node)),
            ],
            Self::Compound(_, kind) => vec![("constraints", Self::Members(node, kind))],
            Self::Gvk(_) => vec![
                ("group", text(Text::Group)),
                ("version", text(Text::Version)),
                ("kind", text(Text::Kind)),
            ],
            Self::Package(_) => {
                vec![("packageName", text(Text::PackageName)), ("versionRange", text(Text::VersionRange))]
            }
            Self::Cel(_) => vec![("rule", text(Text::Rule))],
            Self::Members(..) | Self::Text(..) => Vec::new(),
        }
    }

    /// Name of the Go type in the reference's messages.
    fn type_name(self) -> String {
        match self {
            Self::Members(..) => "[]constraints.Constraint".to_owned(),
            Self::Text(..) => "string".to_owned(),
            _ => format!("constraints.{}", self.structure()),
        }
    }

    /// Name of the Go struct that holds the fields.
    fn structure(self) -> &'static str {
        match self {
            Self::Constraint(_) => "Constraint",
            Self::Compound(..) | Self::Members(..) => "CompoundConstraint",
            Self::Gvk(_) => "GVKConstraint",
            Self::Package(_) => "PackageConstraint",
            Self::Cel(_) => "Cel",
            Self::Text(..) => "string",
        }
    }
}

impl Fields {
    fn members(&mut self, kind: Combinator) -> &mut Option<Vec<usize>> {
        match kind {
            Combinator::All => &mut self.all,
            Combinator::Any => &mut self.any,
            Combinator::Not => &mut self.not,
        }
    }

    /// Creates an object or list. Fields set by an earlier occurrence are kept, except in a list.
    fn enter(&mut self, slot: Slot) {
        match slot {
            Slot::Compound(_, kind) => drop(self.members(kind).get_or_insert_default()),
            Slot::Members(_, kind) => *self.members(kind) = Some(Vec::new()),
            Slot::Gvk(_) => drop(self.gvk.get_or_insert_default()),
            Slot::Package(_) => drop(self.package.get_or_insert_default()),
            Slot::Cel(_) => drop(self.cel.get_or_insert_default()),
            Slot::Constraint(_) | Slot::Text(..) => {}
        }
    }

    /// Applies `null`.
    fn unset(&mut self, slot: Slot) {
        match slot {
            Slot::Compound(_, kind) => *self.members(kind) = None,
            Slot::Members(_, kind) => *self.members(kind) = Some(Vec::new()),
            Slot::Gvk(_) => self.gvk = None,
            Slot::Package(_) => self.package = None,
            Slot::Cel(_) => self.cel = None,
            Slot::Constraint(_) | Slot::Text(..) => {}
        }
    }

    fn set(&mut self, text: Text, value: String) {
        match text {
            Text::FailureMessage => self.failure_message = value,
            Text::Group => self.gvk.get_or_insert_default().group = value,
            Text::Version => self.gvk.get_or_insert_default().version = value,
            Text::Kind => self.gvk.get_or_insert_default().kind = value,
            Text::PackageName => self.package.get_or_insert_default().name = value,
            Text::VersionRange => self.package.get_or_insert_default().range = value,
            Text::Rule => self.cel = Some(value),
        }
    }
}

/// Hint with the allowed fields for an unknown one. The product's own samples write `name` for `packageName`.
fn hint(slot: Slot, key: &str, fields: &[(&'static str, Slot)]) -> String {
    if matches!(slot, Slot::Package(_)) && fold(key) == "name" {
        return "use packageName in place of name".to_owned();
    }
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    format!("allowed here: {}", names.join(", "))
}

/// Case-folded text for the comparison of names. Two letters beyond ASCII fold to ASCII letters.
fn fold(name: &str) -> String {
    let simple = |c| match c {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        c => c.to_ascii_lowercase(),
    };
    name.chars().map(simple).collect()
}

/// Position after the closing quote of a string whose content starts at `at`.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}
