//! What the commands that change a cluster have in common: their flags, writing an extension, waiting until the controller is
//! through with it, and asking for a yes.
//!
//! Written is under the field manager [`FIELD_MANAGER`], and only what differs; nothing here decides what to write. Whether a
//! change has arrived is judged in [`arrival`], which is pure.

mod arrival;
mod confirm;
mod controller;
mod foreseen;
mod merge;
mod wait;
mod write;

use std::time::Duration;

use clap::{Args, ValueEnum};
use olm_service::go_value;
use serde_json::{Value, json};

pub(crate) use self::arrival::Arrival;
pub(crate) use self::confirm::confirm;
pub(crate) use self::controller::Controller;
pub(crate) use self::foreseen::{foreseen, unsafe_upgrade};
pub(crate) use self::wait::{Target, until, wait_for};
pub(crate) use self::write::{Done, Written, apply, call, create_namespace, dry_create};
use crate::failure::Failure;
use crate::output::{Output, json, printable, yaml};
use crate::progress::say;
use crate::session::Session;
use crate::source::Cluster;

/// Field manager of everything that the commands write.
pub(crate) const FIELD_MANAGER: &str = "olm";

/// Flags of the commands that change a cluster (docs/design/additions.md#changing-commands).
#[derive(Debug, Clone, Args)]
pub(crate) struct ChangeArgs {
    /// Change nothing: say what would be written, as it is (client) or as the API server takes it (server)
    #[arg(long, value_enum, value_name = "WHERE", help_heading = "Change")]
    pub(crate) dry_run: Option<DryRun>,
    /// Wait until the cluster has made the change, and tell how it goes
    #[arg(long, conflicts_with = "dry_run", help_heading = "Change")]
    pub(crate) wait: bool,
    /// Longest wait, such as 90s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10m", help_heading = "Change")]
    pub(crate) timeout: Duration,
    /// How to print the result: for people, or what was written, for programs
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Notation,
}

/// Who judges a change that is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Nobody: nothing is sent
    Client,
    /// The API server, which keeps nothing
    Server,
}

/// How a change is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Notation {
    /// For people
    Table,
    /// The objects
    Json,
    /// The objects
    Yaml,
    /// The objects' names
    Name,
}

fn time(text: &str) -> Result<Duration, String> {
    match go_value::duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("expected a time such as 90s, 10m or 1h30m".to_owned()),
    }
}

/// Prints what was written; `told` comes first where people read.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(
    notation: Notation,
    told: &str,
    written: &[Written],
    output: &mut Output,
) -> Result<(), Failure> {
    let text = match notation {
        Notation::Table => {
            let lines = written.iter().map(|one| format!("{one}\n"));
            format!("{}{}", printable(told), lines.collect::<String>())
        }
        Notation::Name => written.iter().map(|one| format!("{}\n", one.name())).collect(),
        Notation::Json => match written {
            [one] => json(&one.object)?,
            several => {
                let items: Vec<&Value> = several.iter().map(|one| &one.object).collect();
                json(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))?
            }
        },
        Notation::Yaml => {
            let documents = written.iter().map(|one| yaml(&one.object)).collect::<Result<Vec<_>, _>>()?;
            documents.join("---\n")
        }
    };
    output.text(&text)
}

/// Waits for the change, if that is wanted, and says that it has arrived.
///
/// # Errors
/// Those of [`wait_for`].
pub(crate) async fn arrive(
    cluster: &Cluster,
    args: &ChangeArgs,
    target: &Target,
    session: &mut Session,
) -> Result<(), Failure> {
    if !args.wait {
        return Ok(());
    }
    // What has been done is seen before the wait, not after it.
    session.output.finish()?;
    let words = wait_for(cluster, target, args.timeout, session).await?;
    match args.output {
        Notation::Table => session.output.text(&format!("{}\n", printable(&words))),
        Notation::Json | Notation::Yaml | Notation::Name => {
            say(&words);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_positive() {
        assert_eq!(time("1h30m"), Ok(Duration::from_secs(5400)));
        for text in ["0", "0s", "10", "-1m", ""] {
            assert_eq!(time(text).unwrap_err(), "expected a time such as 90s, 10m or 1h30m", "{text}");
        }
    }
}
