//! Standard error: progress on a terminal, findings and failures always.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::output::printable;

/// Progress lines on standard error. Silent if standard error is not a terminal.
pub struct Progress {
    /// One line per running step. `None` without a terminal.
    lines: Option<MultiProgress>,
}

/// Running step. Its line disappears on drop.
pub struct Step(ProgressBar);

impl Progress {
    /// Shows steps if standard error is a terminal.
    pub(crate) fn new() -> Self {
        Self { lines: io::stderr().is_terminal().then(MultiProgress::new) }
    }

    /// Shows nothing.
    pub(crate) fn hidden() -> Self {
        Self { lines: None }
    }

    /// Shows a step, such as `pulling registry.example.com/catalog:v1`, until the result is dropped.
    pub fn step(&self, what: impl Into<String>) -> Step {
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
    /// Replaces the text of the step.
    pub fn update(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Writes a line to standard error, escaped because it may contain text of a catalog or registry. Ignores write
/// errors: there is nowhere to report them.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}
