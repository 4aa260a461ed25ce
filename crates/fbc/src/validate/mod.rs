//! Checks of `opm validate`: load, conversion to the model, model check (docs/design/catalogd.md#typed-model,
//! docs/design/catalogd.md#validation, docs/design/additions.md#catalog-validation).
//!
//! ```text
//! Meta ─ documents ► typed objects ─ convert ► model ─ model, graph ► tree ► Report
//! ```
//!
//! Upstream stops at the first error of the load and of the conversion. A [`Report`] holds that message and
//! additionally all findings: after an error validation continues and omits mere consequences of it.

mod convert;
mod documents;
mod graph;
mod model;
mod names;
mod report;
mod strict;
mod tree;

pub use report::{Finding, Report, Severity};

use crate::{
    Folder, Limits, LoadError, Meta, Origin,
    folder::{content_files, load_file},
};
use documents::Documents;

/// Incremental validation of a catalog. Only a few fields of each bundle are kept.
#[derive(Debug, Default)]
pub struct Validator {
    strict: bool,
    documents: Documents,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    /// First error of the load as upstream prints it.
    reference_message: Option<String>,
}

impl Validator {
    /// Starts a validation. `strict` adds warnings about faults that upstream does not check: property values that
    /// are null, the contract of all objects (docs/design/catalogd.md#schemas), unknown schemas with the reserved
    /// prefix, skipped text.
    pub fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// Adds the next object of the catalog.
    pub fn add(&mut self, meta: &Meta) {
        if let Err(message) = self.documents.add(meta) {
            self.error(message.clone(), message, Some(meta.origin.clone()));
        }
        if self.strict {
            let skipped = meta.unread.map(|line| {
                let origin = Origin { line, ..meta.origin.clone() };
                warning("everything from here to the next --- is skipped".to_owned(), origin)
            });
            self.warnings.extend(skipped);
            let warnings = strict::warnings(meta).into_iter();
            self.warnings.extend(warnings.map(|message| warning(message, meta.origin.clone())));
        }
    }

    /// Records that a file, or the rest of one, could not be loaded.
    pub fn add_failure(&mut self, error: &LoadError) {
        self.documents.incomplete = true;
        match error {
            LoadError::Content { origin, at, message } => {
                let origin = Origin { line: at.unwrap_or(origin.line), ..origin.clone() };
                self.error(message.clone(), message.clone(), Some(origin));
            }
            other => self.error(other.to_string(), other.to_string(), None),
        }
    }

    fn error(&mut self, reference_message: String, message: String, origin: Option<Origin>) {
        self.reference_message.get_or_insert(reference_message);
        self.errors.push(Finding { severity: Severity::Error, scope: Vec::new(), message, origin });
    }

    /// Checks the objects against each other and returns all findings.
    pub fn finish(self) -> Report {
        let Self { documents, errors: mut findings, warnings, mut reference_message, .. } = self;
        let complete = !documents.incomplete;
        let (model, problems) = convert::convert(documents);
        if reference_message.is_none() {
            reference_message = problems.first().map(|(message, _)| message.clone());
        }
        findings.extend(problems.into_iter().map(|(message, origin)| Finding {
            severity: Severity::Error,
            scope: Vec::new(),
            message,
            origin: Some(origin),
        }));
        // If an object is missing, the graph of its package is inconclusive.
        if complete {
            let tree = model::check(&model);
            if reference_message.is_none() && !tree.is_empty() {
                reference_message = Some(tree.print());
            }
            findings.extend(tree.findings());
        }
        findings.extend(warnings);
        Report { findings, reference_message }
    }
}

fn warning(message: String, origin: Origin) -> Finding {
    Finding { severity: Severity::Warning, scope: Vec::new(), message, origin: Some(origin) }
}

/// Validates the objects of a catalog.
///
/// ```
/// use olm_fbc::{Meta, validate};
///
/// let package = Meta::from_json(br#"{"schema":"olm.package","name":"demo","defaultChannel":"stable"}"#)?;
/// let report = validate([&package], false);
/// assert!(!report.is_valid(), "the default channel does not exist");
/// # Ok::<(), olm_fbc::MetaError>(())
/// ```
pub fn validate<'a>(metas: impl IntoIterator<Item = &'a Meta>, strict: bool) -> Report {
    let mut validator = Validator::new(strict);
    metas.into_iter().for_each(|meta| validator.add(meta));
    validator.finish()
}

/// Validates a catalog folder. An unreadable file does not prevent checks of the others.
pub fn validate_folder(folder: &impl Folder, limits: &Limits, strict: bool) -> Report {
    let mut validator = Validator::new(strict);
    match content_files(folder, limits) {
        Err(error) => validator.add_failure(&error),
        Ok(files) => {
            for path in files {
                let loaded = load_file::<LoadError>(folder, &path, limits, &mut |meta| {
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
