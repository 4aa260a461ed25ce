//! Where in a bundle something is wrong.

/// A place in a file: as exact as it is known when something is found. The line is looked up at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Path from the bundle's root; empty for the bundle as a whole.
    pub(crate) file: String,
    pub(crate) start: Start,
    /// Names and list positions of the field from the root of its document.
    pub(crate) path: Vec<String>,
    /// How many names of `path` lead to the object, for one that is an item of a list.
    pub(crate) skipped: usize,
    /// Kind and name of the object.
    pub(crate) object: Option<String>,
}

/// How the line is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    /// Not at all.
    Unknown,
    /// It is this one, from 1.
    Line(usize),
    /// By looking for the field in the document that begins at this line.
    Document(usize),
}

impl Place {
    /// The bundle as a whole.
    pub(crate) fn nowhere() -> Self {
        Self::file("")
    }

    /// A file as a whole.
    pub(crate) fn file(file: &str) -> Self {
        Self { file: file.to_string(), start: Start::Unknown, path: Vec::new(), skipped: 0, object: None }
    }

    /// A line of a file, where it is known.
    pub(crate) fn line(file: &str, line: Option<usize>) -> Self {
        Self { start: line.map_or(Start::Unknown, Start::Line), ..Self::file(file) }
    }

    /// The first document of a file.
    pub(crate) fn document(file: &str) -> Self {
        Self { start: Start::Document(1), ..Self::file(file) }
    }

    /// The field with these names, separated by dots, below this place.
    pub(crate) fn at(mut self, dotted: &str) -> Self {
        self.path.extend(dotted.split('.').map(str::to_string));
        self
    }

    /// The entry `key` below this place, whatever characters it has.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.path.push(key.to_string());
        self
    }

    /// The field for people: `spec.versions[0].name`; `None` for the object itself.
    pub(crate) fn field(&self) -> Option<String> {
        let names = self.path.get(self.skipped..).unwrap_or_default();
        let mut field = String::new();
        for name in names {
            if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
                field += &format!("[{name}]");
            } else if name.contains(['.', '/']) {
                field += &format!("[{}]", olm_version::quote(name));
            } else {
                if !field.is_empty() {
                    field.push('.');
                }
                field += name;
            }
        }
        (!field.is_empty()).then_some(field)
    }
}
