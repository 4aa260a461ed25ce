//! `olm status`: how extensions are, down to each object of their revisions
//! (docs/design/additions.md#reading-commands).
//!
//! [`observe`] reads the cluster, [`tree`] and [`health`] judge what was read, [`text`] prints it. Nothing is changed.

pub(crate) mod age;
pub(crate) mod health;
pub(crate) mod observe;
mod text;
pub(crate) mod tree;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use self::tree::ExtensionState;
use crate::failure::{Code, Failure};
use crate::output::{self, Format};
use crate::progress::say;
use crate::session::Session;
use crate::source::{Cluster, ClusterArgs};

/// The first lines of the command's help.
pub(crate) const ABOUT: &str = "Shows how extensions are, down to the object that one hangs on

Without a NAME every ClusterExtension of the cluster is a line of a table. With a NAME the extension is shown as a tree: its \
conditions, its revisions, their phases, and in these each object with what is awaited of it. Whether an object is ready, and \
whether it is the extension's own, is found anew with operator-controller's functions, so the answer does not depend on what \
the controller has said last.

What you may not read is named where it is missing; the rest is shown. Nothing is changed.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(
    after_help = "Health: Healthy, Installing, Upgrading and Repairing need nobody. Degraded (a probe fails),
Retrying, Stalled, Misconfigured and Blocked come with a message that says why.

Exit codes:
  0 success, healthy or not   1 something did not work   2 wrong usage
  4 there is no such extension

Examples:
  {olm} status                                     # all extensions
  {olm} status my-operator                         # what is it waiting for?
  {olm} status my-operator --watch                 # follow a rollout
  {olm} status my-operator -o wide                 # every object, its API version and who controls it
  {olm} status -o json | jq -r '.extensions[] | select(.health != \"Healthy\") | .name'
  {olm} status my-operator -o json | jq '.revisions[].phases[]?.objects[] | select(.state != \"Ready\")'"
)]
pub(crate) struct StatusArgs {
    /// Name of a ClusterExtension; default: all
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show the state again whenever it changes, until Ctrl-C or until the extension is gone
    #[arg(short, long)]
    watch: bool,
    /// How to print the result
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Notation,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How the state is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Notation {
    /// For people
    Table,
    /// For people who look closer
    Wide,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

impl Notation {
    /// The notation without its width, and whether it is wide.
    pub(crate) fn format(self) -> (Format, bool) {
        match self {
            Self::Table => (Format::Table, false),
            Self::Wide => (Format::Table, true),
            Self::Json => (Format::Json, false),
            Self::Yaml => (Format::Yaml, false),
        }
    }
}

/// Between two looks with `--watch`.
const PAUSE: Duration = Duration::from_secs(2);

/// All extensions, as programs get them.
#[derive(Debug, Serialize)]
struct ExtensionList {
    /// By name.
    extensions: Vec<ExtensionState>,
}

/// What is shown.
enum Shown {
    One(Box<ExtensionState>),
    All(ExtensionList),
}

/// Runs the command.
///
/// # Errors
/// There is no such extension, or the cluster does not tell.
pub(crate) async fn run(args: StatusArgs, session: &mut Session) -> Result<(), Failure> {
    let cluster = args.cluster.connect().await?;
    let name = args.name.as_deref();
    let (format, wide) = args.output.format();
    let first = look(&cluster, name, session).await?;
    if args.watch {
        return watch(first, &cluster, &args, session).await;
    }
    let text = first.text(format, wide, Timestamp::now())?;
    session.output.text(&text)
}

async fn look(cluster: &Cluster, name: Option<&str>, session: &Session) -> Result<Shown, Failure> {
    match name {
        Some(name) => {
            let observed = observe::observe(cluster, name, session).await?;
            Ok(Shown::One(Box::new(ExtensionState::new(&observed))))
        }
        None => {
            let extensions = cluster.extensions(session).await?;
            let extensions = extensions.iter().map(|extension| ExtensionState::alone(extension, &[]));
            Ok(Shown::All(ExtensionList { extensions: extensions.collect() }))
        }
    }
}

/// Prints the state whenever it is another one. A look that fails is told, and another follows.
async fn watch(
    first: Shown,
    cluster: &Cluster,
    args: &StatusArgs,
    session: &mut Session,
) -> Result<(), Failure> {
    let mut shown = first;
    let mut before = String::new();
    let (format, wide) = args.output.format();
    loop {
        // What only grows older has not changed.
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
            let pause = async {
                tokio::time::sleep(PAUSE).await;
                Ok::<_, Failure>(())
            };
            session.unless_interrupted(pause).await?;
            match look(cluster, args.name.as_deref(), session).await {
                Ok(shown) => break shown,
                Err(Failure::Told(Code::NoCandidate, _)) => {
                    say(&format!("ClusterExtension {} is gone", args.name.as_deref().unwrap_or_default()));
                    return Ok(());
                }
                Err(Failure::Told(Code::Operational, message)) => say(&format!("{message}; trying again")),
                Err(failure) => return Err(failure),
            }
        };
    }
}

impl Shown {
    fn text(&self, format: Format, wide: bool, now: Timestamp) -> Result<String, Failure> {
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

/// Prints at once. A reader that went away ends the command.
fn print(text: &str, session: &mut Session) -> Result<(), Failure> {
    session.output.write_with(|writer| {
        writer.write_all(text.as_bytes()).and_then(|()| writer.flush()).map_err(Failure::Output)
    })
}
