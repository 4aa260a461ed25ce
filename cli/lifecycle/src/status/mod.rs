//! `olm status`: shows the health of extensions, including each object of their revisions
//! (docs/design/cli.md#reading-commands).
//!
//! [`observe`] reads the cluster, [`tree`], [`objects`] and [`health`] derive the state, [`text`] prints it. Nothing is
//! changed.

pub mod activity;
pub mod age;
pub mod health;
pub mod objects;
pub mod observe;
pub mod text;
pub mod tree;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::{self, Format};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterArgs, ClusterConnection};
use serde::Serialize;

use self::tree::ExtensionState;

/// First lines of the command's help.
pub const ABOUT: &str = "Show the health of extensions, including the object that blocks the rollout

Without NAME, the command prints a table with one row per ClusterExtension. With NAME, it prints the extension as a \
tree: its conditions, its revisions, their phases and objects, and why an object is not ready. Readiness and ownership \
of objects are computed with operator-controller's functions, so the result does not depend on the last status that \
the controller wrote.

Objects that you may not read are listed without a state. The command changes nothing.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(
    after_help = "Health: Healthy, Installing, Upgrading and Repairing need no action. Degraded (a probe fails),
Retrying, Stalled, Misconfigured and Blocked have a message with the reason.

Exit codes:
  0 success, healthy or not   1 operation failed   2 wrong usage
  4 there is no such extension

Examples:
  {olm} status                                     # all extensions
  {olm} status my-operator                         # which object blocks the rollout?
  {olm} status my-operator --watch                 # follow a rollout
  {olm} status my-operator -o wide                 # every object, its API version and owner
  {olm} status -o json | jq -r '.extensions[] | select(.health != \"Healthy\") | .name'
  {olm} status my-operator -o json | jq '.revisions[].phases[]?.objects[] | select(.state != \"Ready\")'"
)]
pub struct StatusArgs {
    /// Name of a ClusterExtension; default: all
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print the state again whenever it changes, until Ctrl-C or until the extension is deleted
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: StatusFormat,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Output format of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// Human-readable
    Table,
    /// Human-readable, with more details
    Wide,
    /// Machine-readable
    Json,
    /// Machine-readable
    Yaml,
}

impl StatusFormat {
    /// Format without its width, and `true` if it is wide.
    pub(crate) fn format(self) -> (Format, bool) {
        match self {
            Self::Table => (Format::Table, false),
            Self::Wide => (Format::Table, true),
            Self::Json => (Format::Json, false),
            Self::Yaml => (Format::Yaml, false),
        }
    }
}

/// Polling interval of `--watch`.
const PAUSE: Duration = Duration::from_secs(2);

/// List of extensions as JSON or YAML.
#[derive(Debug, Serialize)]
struct ExtensionList {
    /// Sorted by name.
    extensions: Vec<ExtensionState>,
}

/// Printed state.
enum Printed {
    One(Box<ExtensionState>),
    All(ExtensionList),
}

/// Runs the command.
///
/// # Errors
/// The extension does not exist, or the cluster cannot be read.
pub async fn run(args: StatusArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    let name = args.name.as_deref();
    let (format, wide) = args.output.format();
    let first = read_state(&cluster, name, session).await?;
    if args.watch {
        return watch(first, &cluster, &args, session).await;
    }
    let text = first.text(format, wide, Timestamp::now())?;
    session.output.text(&text)
}

async fn read_state(
    cluster: &ClusterConnection,
    name: Option<&str>,
    session: &Session,
) -> Result<Printed, CliError> {
    match name {
        Some(name) => {
            let observed = observe::observe(cluster, name, session).await?;
            Ok(Printed::One(Box::new(ExtensionState::new(&observed))))
        }
        None => {
            let extensions = cluster.extensions(session).await?;
            let extensions = extensions.iter().map(|extension| ExtensionState::alone(extension, &[]));
            Ok(Printed::All(ExtensionList { extensions: extensions.collect() }))
        }
    }
}

/// Prints the state whenever it changes. A failed read is reported and retried.
async fn watch(
    first: Printed,
    cluster: &ClusterConnection,
    args: &StatusArgs,
    session: &mut Session,
) -> Result<(), CliError> {
    let mut shown = first;
    let mut before = String::new();
    let (format, wide) = args.output.format();
    loop {
        // Compared without ages, which always change.
        let timeless = shown.text(format, wide, Timestamp::MIN)?;
        if timeless != before {
            let text = shown.text(format, wide, Timestamp::now())?;
            let separator = match format {
                Format::Yaml if !before.is_empty() => "---\n",
                Format::Table if !before.is_empty() => "\n",
                _ => "",
            };
            print(&format!("{separator}{text}"), session)?;
            before = timeless;
        }
        shown = loop {
            session.interruptible(tokio::time::sleep(PAUSE)).await?;
            match read_state(cluster, args.name.as_deref(), session).await {
                Ok(shown) => break shown,
                Err(CliError::Message(Code::NoCandidate, _)) => {
                    say(&format!(
                        "ClusterExtension {} has been deleted",
                        args.name.as_deref().unwrap_or_default()
                    ));
                    return Ok(());
                }
                Err(CliError::Message(Code::Operational, message)) => say(&format!("{message}; retrying")),
                Err(failure) => return Err(failure),
            }
        };
    }
}

impl Printed {
    fn text(&self, format: Format, wide: bool, now: Timestamp) -> Result<String, CliError> {
        match self {
            Self::One(state) => {
                output::result(format, "ExtensionStatus", state, |state| text::tree(state, now, wide))
            }
            Self::All(list) => output::result(format, "ExtensionStatusList", list, |list| {
                text::list(&list.extensions, now, wide)
            }),
        }
    }
}

/// Prints and flushes. A closed pipe ends the command.
fn print(text: &str, session: &mut Session) -> Result<(), CliError> {
    session.output.write_with(|writer| {
        writer.write_all(text.as_bytes()).and_then(|()| writer.flush()).map_err(CliError::Output)
    })
}
