//! Checks of `opm validate`: load, conversion to the model, model check (docs/design/catalogd.md#typed-model,
//! docs/design/catalogd.md#validation, docs/design/cli.md#catalog-validation).
//!
//! ```text
//! Meta ─ documents ► typed objects ─ convert ► model ─ model, graph ► tree ► ValidationReport
//! ```
//!
//! Upstream stops at the first error of the load and of the conversion. A [`ValidationReport`] holds that message and
//! additionally all findings: after an error validation continues and omits mere consequences of it.

mod convert;
mod documents;
mod duplicates;
pub(crate) mod graph;
mod model;
mod names;
mod report;
mod strict;
mod tree;

use convert::Problem;
pub use duplicates::Duplicates;
pub use report::{CatalogFinding, RULES, ValidationReport};
use report::{REJECTED, REPEATED_KEY, UNDOCUMENTED};

use crate::{
    Folder, LoadError, LoadLimits, Meta, Origin,
    folder::{content_files, load_file},
};
use documents::Documents;
use olm_finding::Rule;
use olm_version::quote;

/// Incremental validation of a catalog. Only a few fields of each bundle are kept.
#[derive(Debug, Default)]
struct Validator {
    strict: bool,
    documents: Documents,
    errors: Vec<CatalogFinding>,
    warnings: Vec<CatalogFinding>,
    /// First error as upstream prints it.
    reference_message: Option<String>,
}

impl Validator {
    /// Adds the next object of the catalog.
    fn add(&mut self, meta: &Meta) {
        if let Err(message) = self.documents.add(meta) {
            self.error(message, Some(meta.origin.clone()));
        }
        self.warnings.extend(repeated_key_warnings(meta));
        if self.strict {
            let skipped = meta.unread.map(|line| {
                let origin = Origin { line, ..meta.origin.clone() };
                warning(&UNDOCUMENTED, "everything from here to the next --- is skipped".to_owned(), origin)
            });
            self.warnings.extend(skipped);
            let warnings = strict::warnings(meta).into_iter();
            self.warnings
                .extend(warnings.map(|message| warning(&UNDOCUMENTED, message, meta.origin.clone())));
        }
    }

    /// Records that a file, or the rest of one, could not be loaded.
    fn add_failure(&mut self, error: &LoadError) {
        self.documents.incomplete = true;
        match error {
            LoadError::Content { origin, at, message } => {
                let origin = Origin { line: at.unwrap_or(origin.line), ..origin.clone() };
                self.error(message.clone(), Some(origin));
            }
            other => self.error(other.to_string(), None),
        }
    }

    fn error(&mut self, message: String, origin: Option<Origin>) {
        self.reference_message.get_or_insert_with(|| message.clone());
        let message = shortened(message);
        self.errors.push(CatalogFinding::new(&REJECTED, Vec::new(), message, origin));
    }

    /// Checks the objects against each other and returns all findings.
    fn finish(mut self) -> ValidationReport {
        let complete = !self.documents.incomplete;
        let (model, problems) = convert::convert(std::mem::take(&mut self.documents));
        for Problem { message, origin, first } in problems {
            self.reference_message.get_or_insert_with(|| message.clone());
            let message = match first {
                Some(first) => format!("{message}; the first one is in {first}"),
                None => message,
            };
            self.error(message, Some(origin));
        }
        // If an object is missing, the graph of its package is inconclusive.
        if complete {
            let tree = model::check(&model);
            if !tree.is_empty() {
                self.reference_message.get_or_insert_with(|| tree.print());
            }
            self.errors.extend(tree.findings());
        }
        self.errors.extend(self.warnings);
        ValidationReport { findings: self.errors, reference_message: self.reference_message }
    }
}

/// Most characters of a message that quotes an object.
const QUOTED: usize = 300;

/// Message that ends after the start of a quoted object.
fn shortened(message: String) -> String {
    if !message.starts_with("object '") {
        return message;
    }
    match message.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…' is missing root schema field", &message[..end]),
        None => message,
    }
}

/// Warnings about repeated keys of an object that was read by [`load_authored`](crate::load_authored), each in the
/// line of the key.
pub fn repeated_key_warnings(meta: &Meta) -> impl Iterator<Item = CatalogFinding> {
    meta.repeated_keys.iter().map(|key| {
        let advice = match (key.path.as_slice(), meta.schema.as_str()) {
            ([name], _)
                if ["schema", "package", "name", "entries", "properties"].contains(&name.as_str()) =>
            {
                "separate objects with a line `---`; otherwise only the last one is read"
            }
            _ => "only the last value is used: remove one of the two",
        };
        let message =
            format!("the key {} is also on line {}: {advice}", quote(&key.path.join(".")), key.first);
        warning(&REPEATED_KEY, message, Origin { line: key.line, ..meta.origin.clone() })
    })
}

/// Fault for which upstream rejects objects, in its words.
pub(crate) enum Fault {
    /// An object cannot be loaded.
    Load(String),
    /// The objects are not a valid catalog.
    Model(String),
}

/// Checks that each object can be loaded.
///
/// # Errors
/// The first fault.
pub(crate) fn check_load(metas: &[Meta]) -> Result<(), String> {
    let mut documents = Documents::default();
    metas.iter().try_for_each(|meta| documents.add(meta))
}

/// Checks that the objects are a valid catalog.
///
/// # Errors
/// The first fault.
pub(crate) fn check_metas(metas: &[Meta]) -> Result<(), Fault> {
    let mut validator = Validator::default();
    metas.iter().try_for_each(|meta| validator.documents.add(meta)).map_err(Fault::Load)?;
    validator.finish().reference_message.map_or(Ok(()), |message| Err(Fault::Model(message)))
}

/// Validates a catalog that was read already.
pub fn validate_metas(metas: &[Meta]) -> ValidationReport {
    let mut validator = Validator::default();
    metas.iter().for_each(|meta| validator.add(meta));
    validator.finish()
}

fn warning(rule: &'static Rule, message: String, origin: Origin) -> CatalogFinding {
    CatalogFinding::new(rule, Vec::new(), message, Some(origin))
}

/// Validates a catalog folder. An unreadable file does not prevent checks of the others.
///
/// Repeated keys are warnings: an object may be lost. `strict` adds warnings about faults that upstream does not check: property values that are null, the contract of
/// all objects (docs/design/catalogd.md#schemas), unknown schemas with the reserved prefix, skipped text.
pub fn validate_folder(folder: &impl Folder, limits: &LoadLimits, strict: bool) -> ValidationReport {
    let mut validator = Validator { strict, ..Validator::default() };
    match content_files(folder, limits) {
        Err(error) => validator.add_failure(&error),
        Ok(files) => {
            for path in files {
                let loaded = load_file::<LoadError>(folder, &path, limits, true, &mut |meta| {
                    validator.add(&meta);
                    Ok(())
                });
                if let Err(error) = loaded {
                    validator.add_failure(&error);
                }
            }
        }
    }
    validator.finish()
}
