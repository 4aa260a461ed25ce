//! What is said on standard error: progress for people who watch, findings and failures for everybody.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::output::printable;

/// Shows progress where standard error is a terminal, and nothing elsewhere.
pub(crate) struct Progress {
    /// A line for each step under way; `None` where nobody watches.
    lines: Option<MultiProgress>,
}

/// A step that is under way; its line disappears when this is dropped.
pub(crate) struct Step(ProgressBar);

impl Progress {
    /// Progress of this process.
    pub(crate) fn new() -> Self {
        Self { lines: io::stderr().is_terminal().then(MultiProgress::new) }
    }

    /// Says what is being done, such as `pulling registry.example.com/catalog:v1`.
    pub(crate) fn step(&self, what: impl Into<String>) -> Step {
        let Some(lines) = &self.lines else {
            return Step(ProgressBar::hidden());
        };
        let bar = lines.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(what.into());
        bar.enable_steady_tick(Duration::from_millis(120));
        Step(bar)
    }
}

impl Step {
    /// Replaces the words of the step.
    pub(crate) fn update(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Writes a line to standard error, which may name things of a catalog or a registry; where that cannot be written, nobody
/// can be told.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}
