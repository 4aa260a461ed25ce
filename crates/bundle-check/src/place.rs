//! Positions of findings in a bundle.

/// Position in a file, as exact as known when the finding is made. The line number is computed at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Path relative to the root of the bundle. Empty for the whole bundle.
    pub(crate) file: String,
    pub(crate) start: Start,
    /// Keys and list indexes of the field from the root of its document.
    pub(crate) path: Vec<String>,
    /// Number of leading elements of `path` that lead to the object, for an item of a list.
    pub(crate) skipped: usize,
    /// Kind and name of the object.
    pub(crate) object: Option<String>,
}

/// Source of the line number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Start {
    /// None: the line is unknown.
    Unknown,
    /// Line number, from 1.
    Line(usize),
    /// Search for the field in the document that begins at this line.
    Document(usize),
}

impl Place {
    /// The whole bundle.
    pub(crate) fn nowhere() -> Self {
        Self::file("")
    }

    /// A whole file.
    pub(crate) fn file(file: &str) -> Self {
        Self { file: file.to_string(), start: Start::Unknown, path: Vec::new(), skipped: 0, object: None }
    }

    /// A line of a file, if known.
    pub(crate) fn line(file: &str, line: Option<usize>) -> Self {
        Self { start: line.map_or(Start::Unknown, Start::Line), ..Self::file(file) }
    }

    /// The first document of a file.
    pub(crate) fn document(file: &str) -> Self {
        Self { start: Start::Document(1), ..Self::file(file) }
    }

    /// Appends the dotted path of a field.
    pub(crate) fn at(mut self, dotted: &str) -> Self {
        self.path.extend(dotted.split('.').map(str::to_string));
        self
    }

    /// Appends one key, which may contain any character.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.path.push(key.to_string());
        self
    }

    /// Field path for messages: `spec.versions[0].name`. `None` for the object itself.
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
