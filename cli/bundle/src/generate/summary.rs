//! Result of `olm bundle generate`.

use olm_cli_core::output::{Fields, Table};
use serde::Serialize;

/// Findings while the input is converted.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) skipped: Vec<Skipped>,
    /// Facts that the author should check.
    pub(super) notes: Vec<String>,
    /// Reasons for which there is no bundle.
    pub(super) problems: Vec<String>,
}

impl Report {
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(super) fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }
}

/// Object of the input that is not an object of the bundle.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Skipped {
    pub(super) object: String,
    /// File or command that it was read from.
    pub(super) origin: String,
    pub(super) reason: &'static str,
}

/// Field of the ClusterServiceVersion that only the author can write.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Missing {
    pub(super) field: &'static str,
    pub(super) purpose: &'static str,
}

/// Difference of a file from the previous run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    Created,
    Changed,
    Unchanged,
    Removed,
    /// Manifest whose objects the input does not have.
    Kept,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Removed => "removed",
            Self::Kept => "kept",
        }
    }
}

/// File of the bundle.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FileChange {
    /// Path from the root of the bundle.
    pub(super) path: String,
    pub(super) change: Change,
}

/// Result of the command.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// Name of the bundle.
    pub(super) bundle: String,
    pub(super) directory: String,
    pub(super) files: Vec<FileChange>,
    pub(super) skipped: Vec<Skipped>,
    /// Facts to check.
    pub(super) notes: Vec<String>,
    /// Fields worth filling.
    pub(super) missing: Vec<Missing>,
}

impl Summary {
    /// Tables and lists for people.
    pub(super) fn text(&self) -> String {
        let mut fields = Fields::default();
        fields.add(0, "Bundle", &self.bundle);
        fields.add(0, "Directory", &self.directory);
        let mut files = Table::new(&["FILE", "CHANGE"]);
        for file in &self.files {
            files.row([&file.path, file.change.name()]);
        }
        let mut text = format!("{}\n{}", fields.text, files.text());
        if !self.skipped.is_empty() {
            let mut table = Table::new(&["NOT IN THE BUNDLE", "FROM", "REASON"]);
            for skipped in &self.skipped {
                table.row([&skipped.object, &skipped.origin, skipped.reason]);
            }
            text += &format!("\n{}", table.text());
        }
        if !self.missing.is_empty() {
            let mut table = Table::new(&["FIELD TO FILL", "PURPOSE"]);
            for missing in &self.missing {
                table.row([missing.field, missing.purpose]);
            }
            text += &format!("\n{}", table.text());
        }
        if !self.notes.is_empty() {
            text += "\nCheck:\n";
            for note in &self.notes {
                text += &format!("  {note}\n");
            }
        }
        text
    }
}
