//! Progress of a plan, for the message of a failure.

use olm_cli_core::error::CliError;

/// Progress of a plan, which is carried out in the order of `extensions`.
#[derive(Debug)]
pub(crate) struct PlanProgress {
    extensions: Vec<String>,
    /// Number of written extensions.
    pub(crate) written: usize,
    /// Number of extensions that have reached their state.
    pub(crate) complete: usize,
}

impl PlanProgress {
    /// Progress of a plan that has not begun.
    pub(crate) fn new(extensions: Vec<String>) -> Self {
        Self { extensions, written: 0, complete: 0 }
    }

    /// Adds the progress to the message of `failure`.
    pub(crate) fn with(&self, failure: CliError) -> CliError {
        let CliError::Message(code, mut text) = failure else { return failure };
        let (written, remaining) = self.extensions.split_at(self.written);
        let (installed, started) = written.split_at(self.complete);
        for (what, names) in [("installed", installed), ("started", started), ("not started", remaining)] {
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            text += &format!("\n{what}: {names}");
        }
        CliError::Message(code, text + "\nrun the same command again to continue")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_lists_installed_begun_and_remaining_extensions() {
        let extensions = ["a", "b", "c"].map(str::to_owned).to_vec();
        let progress = PlanProgress { written: 2, complete: 1, ..PlanProgress::new(extensions) };
        let failure = progress.with(CliError::operational("b: Blocked"));
        let expected =
            "b: Blocked\ninstalled: a\nstarted: b\nnot started: c\nrun the same command again to continue";
        assert_eq!((failure.exit_code(), failure.to_string().as_str()), (1, expected));
    }
}
