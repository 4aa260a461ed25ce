//! Decoder of a property's JSON that follows Go's strict decoder (docs/design/resolution.md#constraint-property).
//!
//! Field names are case-insensitive, `null` sets nothing, a repeated field is set again. An unknown field or a wrong
//! type is an error after all reading, and of several errors the first is reported. Nesting is kept on a heap list
//! instead of the stack.

use std::collections::BTreeMap;

use olm_version::quote;
use olm_yaml::json;

use super::{CONSTRAINT, GVK_REQUIRED, Gvk, PACKAGE_REQUIRED, RequirementFault};

/// Deepest nesting that the reference's decoder accepts.
const NESTING_LIMIT: usize = 10_000;

/// Fields of a requirement, by their names. In a tree, each node refers to its children by index.
#[derive(Debug, Default)]
pub(super) struct Fields {
    texts: BTreeMap<&'static str, String>,
    /// Objects that are present. Those of `all`, `any` and `not` with their members.
    objects: BTreeMap<&'static str, Vec<usize>>,
}

/// Position of a value: its tree node, its type, and the name of the field of that node which holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    node: usize,
    kind: Kind,
    name: &'static str,
}

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Constraint,
    Compound,
    Members,
    Gvk,
    Package,
    Cel,
    Text,
}

/// Decodes the JSON `value` of a property of one of the three types. The root is first, children follow their
/// parents.
pub(super) fn decode(property_type: &'static str, value: &str) -> Result<Vec<Fields>, RequirementFault> {
    let (kind, name) = match property_type {
        GVK_REQUIRED => (Kind::Gvk, "gvk"),
        PACKAGE_REQUIRED => (Kind::Package, "package"),
        _ => (Kind::Constraint, ""),
    };
    let root = Slot { node: 0, kind, name };
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
    decoder.nodes[0].enter(root);
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
                b'"' if slot.kind != Kind::Members => {
                    let key = self.string();
                    self.next();
                    self.field(slot, &key);
                }
                _ => {
                    self.at -= 1;
                    if slot.kind != Kind::Members {
                        return;
                    }
                    let member = self.nodes.len();
                    self.nodes.push(Fields::default());
                    self.nodes[slot.node].objects.entry(slot.name).or_default().push(member);
                    self.value(Slot { node: member, kind: Kind::Constraint, name: "" });
                }
            }
        }
    }

    /// Closes an object and the field that contains it.
    fn close(&mut self) {
        self.open.pop();
        if self.open.last().is_some_and(|outer| outer.kind != Kind::Members) {
            self.names.pop();
        }
    }

    /// Decodes the value of the field `key` of the object at `slot`.
    fn field(&mut self, slot: Slot, key: &str) {
        let fields = slot.kind.fields();
        let folded = fold(key);
        let found = fields.iter().find(|(name, _)| *name == key);
        match found.or_else(|| fields.iter().find(|(name, _)| fold(name) == folded)) {
            Some((field, kind)) => {
                // The members of a compound are those of the field that holds it.
                let name = if *kind == Kind::Members { slot.name } else { field };
                let inner = Slot { kind: *kind, name, ..slot };
                self.names.push(field);
                self.value(inner);
                if self.open.last() != Some(&inner) {
                    self.names.pop();
                }
            }
            None => {
                // Only the strict type rejects unknown fields.
                if self.property_type == CONSTRAINT {
                    let hint = hint(slot.kind, key);
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
            b'{' => !matches!(slot.kind, Kind::Members | Kind::Text),
            b'[' => slot.kind == Kind::Members,
            b'"' if slot.kind == Kind::Text => {
                let value = self.string();
                self.nodes[slot.node].texts.insert(slot.name, value);
                return;
            }
            b'n' => {
                if !self.open.is_empty() {
                    self.nodes[slot.node].unset(slot);
                }
                self.at = start;
                return self.skip();
            }
            _ => false,
        };
        if expected {
            self.nodes[slot.node].enter(slot);
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
        let required = slot.kind.type_name();
        let target = match self.open.last() {
            Some(owner) => format!("struct field {}.{}", owner.kind.structure(), self.names.join(".")),
            None => "value".to_owned(),
        };
        self.refuse(format!("json: cannot unmarshal {found} into Go {target} of type {required}"), None);
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

impl Kind {
    /// Fields of an object of this type.
    fn fields(self) -> &'static [(&'static str, Self)] {
        match self {
            Self::Constraint => &[
                ("failureMessage", Self::Text),
                ("gvk", Self::Gvk),
                ("package", Self::Package),
                ("all", Self::Compound),
                ("any", Self::Compound),
                ("not", Self::Compound),
                ("cel", Self::Cel),
            ],
            Self::Compound => &[("constraints", Self::Members)],
            Self::Gvk => &[("group", Self::Text), ("version", Self::Text), ("kind", Self::Text)],
            Self::Package => &[("packageName", Self::Text), ("versionRange", Self::Text)],
            Self::Cel => &[("rule", Self::Text)],
            Self::Members | Self::Text => &[],
        }
    }

    /// Name of the Go type in the reference's messages.
    fn type_name(self) -> String {
        match self {
            Self::Members => "[]constraints.Constraint".to_owned(),
            Self::Text => "string".to_owned(),
            _ => format!("constraints.{}", self.structure()),
        }
    }

    /// Name of the Go struct that holds the fields.
    fn structure(self) -> &'static str {
        match self {
            Self::Constraint => "Constraint",
            Self::Compound | Self::Members => "CompoundConstraint",
            Self::Gvk => "GVKConstraint",
            Self::Package => "PackageConstraint",
            Self::Cel => "Cel",
            Self::Text => "string",
        }
    }
}

impl Fields {
    /// Removes a text. Empty if absent.
    pub(super) fn take_text(&mut self, name: &str) -> String {
        self.texts.remove(name).unwrap_or_default()
    }

    /// Removes an object, and returns its members. `None` if absent.
    pub(super) fn take_object(&mut self, name: &str) -> Option<Vec<usize>> {
        self.objects.remove(name)
    }

    pub(super) fn take_gvk(&mut self) -> Option<Gvk> {
        self.take_object("gvk")?;
        Some(Gvk {
            group: self.take_text("group"),
            version: self.take_text("version"),
            kind: self.take_text("kind"),
        })
    }

    /// Creates an object or list. Fields set by an earlier occurrence are kept, except in a list.
    fn enter(&mut self, slot: Slot) {
        match slot.kind {
            Kind::Members => drop(self.objects.insert(slot.name, Vec::new())),
            Kind::Constraint | Kind::Text => {}
            _ => drop(self.objects.entry(slot.name).or_default()),
        }
    }

    /// Applies `null`.
    fn unset(&mut self, slot: Slot) {
        match slot.kind {
            Kind::Members => drop(self.objects.insert(slot.name, Vec::new())),
            Kind::Constraint | Kind::Text => {}
            kind => {
                self.objects.remove(slot.name);
                kind.fields().iter().for_each(|(name, _)| drop(self.texts.remove(name)));
            }
        }
    }
}

/// Hint with the allowed fields for an unknown one. The product's own samples write `name` for `packageName`.
fn hint(kind: Kind, key: &str) -> String {
    if kind == Kind::Package && fold(key) == "name" {
        return "use packageName in place of name".to_owned();
    }
    let names: Vec<_> = kind.fields().iter().map(|(name, _)| *name).collect();
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
