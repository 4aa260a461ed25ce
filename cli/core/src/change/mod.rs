//! Common parts of the commands that change a cluster: flags, writes, waiting for the controller, and confirmation.
//!
//! All writes use the field manager [`FIELD_MANAGER`] and contain only differences. The callers decide what to write.
//! `rollout` waits for an extension.

pub mod confirm;
mod merge;
mod wait;
mod write;

use std::time::Duration;

use clap::{Args, ValueEnum};
use olm_runtime::go_value;
use serde_json::{Value, json};

pub use self::confirm::confirm;
pub use self::merge::patch as merge_patch;
pub use self::wait::{Completion, Deadline, until};
pub use self::write::{
    WriteResult, WrittenObject, annotate, apply, call, create_namespace, dry_create, unchanged,
};
use crate::error::CliError;
use crate::output::{Output, json, printable, yaml};
use crate::progress::say;
use crate::session::Session;

/// Field manager of all writes. A component of classic OLM has the manager `olm`.
pub const FIELD_MANAGER: &str = "olm-cli";

/// Flags of the commands that change a cluster (docs/design/cli.md#changing-commands).
#[derive(Debug, Clone, Args)]
pub struct ChangeArgs {
    /// Only print what would be written, as computed locally (client) or as the API server would store it (server)
    #[arg(long, value_enum, value_name = "WHERE", help_heading = "Change")]
    pub dry_run: Option<DryRun>,
    /// Wait until the change is complete, and show progress
    #[arg(long, conflicts_with = "dry_run", help_heading = "Change")]
    pub wait: bool,
    /// Longest wait, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10m", help_heading = "Change")]
    pub timeout: Duration,
    /// Output format: human-readable, or the written objects
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub output: ChangeFormat,
}

/// Place of the dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Send no write request
    Client,
    /// Let the API server validate the change without storing it
    Server,
}

/// Output format of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChangeFormat {
    /// Human-readable
    Table,
    /// The written objects
    Json,
    /// The written objects
    Yaml,
    /// Names of the written objects
    Name,
}

/// Parses a positive time in Go's notation.
pub fn time(text: &str) -> Result<Duration, String> {
    match go_value::duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("expected a time such as 90s, 10m or 1h30m".to_owned()),
    }
}

/// Prints the written objects. `summary` comes first in the table format.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(
    notation: ChangeFormat,
    summary: &str,
    written: &[WrittenObject],
    output: &mut Output,
) -> Result<(), CliError> {
    let text = match notation {
        ChangeFormat::Table => {
            let lines = written.iter().map(|one| format!("{one}\n"));
            format!("{}{}", printable(summary), lines.collect::<String>())
        }
        ChangeFormat::Name => written.iter().map(|one| format!("{}\n", one.name())).collect(),
        ChangeFormat::Json => match written {
            [one] => json(&one.object)?,
            several => {
                let items: Vec<&Value> = several.iter().map(|one| &one.object).collect();
                json(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))?
            }
        },
        ChangeFormat::Yaml => {
            let documents = written.iter().map(|one| yaml(&one.object)).collect::<Result<Vec<_>, _>>()?;
            documents.join("---\n")
        }
    };
    output.text(&text)
}

/// Prints how a wait ended, on standard error if standard output is for programs.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_end(format: ChangeFormat, message: &str, session: &mut Session) -> Result<(), CliError> {
    if format == ChangeFormat::Table {
        return session.output.text(&format!("{message}\n"));
    }
    say(message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_must_be_positive() {
        assert_eq!(time("1h30m"), Ok(Duration::from_secs(5400)));
        for text in ["0", "0s", "10", "-1m", ""] {
            assert_eq!(time(text).unwrap_err(), "expected a time such as 90s, 10m or 1h30m", "{text}");
        }
    }
}
