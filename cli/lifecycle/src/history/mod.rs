//! `olm history`: lists the revisions of an extension, their results, and the possible rollback targets
//! (docs/design/cli.md#reading-commands).

mod record;

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use olm_cli_core::error::CliError;
use olm_cli_core::output::Table;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterArgs;
use serde::Serialize;

pub use self::record::{Record, records};
use crate::status::{StatusFormat, age, observe};

/// First lines of the command's help.
pub const ABOUT: &str = "Show the revisions of an extension

Each change of a ClusterExtension that changes its objects creates a revision (a ClusterObjectSet). The newest \
five archived revisions are kept. The output shows the bundle of each revision, its image, its age and result, and \
whether `rollback` accepts it.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(
    after_help = "Results: Installed (active now), Superseded (installed until a newer revision replaced it),
Abandoned (archived before it rolled out). `status` has details of the other results.

Exit codes:
  0 success   1 operation failed   2 wrong usage   4 there is no such extension

Examples:
  {olm} history my-operator
  {olm} history my-operator -o wide                # with whole image references
  {olm} history my-operator -o json | jq -r '.revisions[] | select(.rollback.possible) | .version'
  {olm} rollback my-operator --to 3 --dry-run=server"
)]
pub struct HistoryArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME")]
    name: String,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: StatusFormat,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct History {
    name: String,
    /// Newest first.
    revisions: Vec<Record>,
}

/// Runs the command.
///
/// # Errors
/// The extension does not exist, or the cluster cannot be read.
pub async fn run(args: HistoryArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.cluster.connect().await?;
    observe::extension(&cluster, &args.name, session).await?;
    let revisions = observe::revisions(&cluster, &args.name, session).await?;
    let history = History { revisions: records(&revisions), name: args.name };
    let (format, wide) = args.output.format();
    let now = Timestamp::now();
    session.output.result(format, "ExtensionHistory", &history, |history| text(history, now, wide))
}

fn text(history: &History, now: Timestamp, wide: bool) -> String {
    if history.revisions.is_empty() {
        return format!("{} has no revision yet; run `olm status {0}` for the reason.\n", history.name);
    }
    let mut table =
        Table::new(&["REVISION", "BUNDLE", "VERSION", "IMAGE", "RESULT", "CREATED", "ARCHIVED", "ROLLBACK"]);
    let ago = |at: Option<&str>| match age::age(now, at) {
        age if age.is_empty() => age,
        age => format!("{age} ago"),
    };
    for record in &history.revisions {
        let image = if wide { record.image.clone() } else { record.short_image() };
        let rollback = match (&record.rollback.why_not, wide) {
            (None, _) => "yes".to_owned(),
            (Some(why), true) => format!("no: {why}"),
            (Some(_), false) => "no".to_owned(),
        };
        table.row([
            record.revision.to_string(),
            record.bundle.clone(),
            record.version.clone(),
            image,
            record.result.clone(),
            ago(record.created.as_deref()),
            ago(record.archived.as_deref()),
            rollback,
        ]);
    }
    let mut text = table.text();
    if let Some(record) = history.revisions.iter().find(|record| record.adopted_from_helm) {
        text += &format!(
            "\nRevision {} adopted an installation of the upstream Helm applier. The Helm applier cannot manage it again.\n",
            record.revision
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use olm_api::ClusterObjectSet;
    use serde_json::json;

    use super::*;

    #[test]
    fn history_prints_result_and_rollback_of_each_revision() {
        let set = |number: i64, version: &str, state: &str, migrated: bool, conditions: serde_json::Value| {
            let set: ClusterObjectSet = serde_json::from_value(json!({
                "metadata": {
                    "name": format!("pipe-{number}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"olm.operatorframework.io/migrated-from-helm": migrated.to_string()},
                    "annotations": {
                        "olm.operatorframework.io/bundle-name": format!("pipe.v{version}"),
                        "olm.operatorframework.io/bundle-version": version,
                        "olm.operatorframework.io/bundle-reference":
                            format!("r.example/pipe@sha256:{}", "ab".repeat(32)),
                    },
                },
                "spec": {"lifecycleState": state, "revision": number, "collisionProtection": "Prevent"},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            set
        };
        let condition = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-02T00:00:00Z"})
        };
        let succeeded = condition("Succeeded", "True", "Succeeded");
        let archived = condition("Progressing", "False", "Archived");
        let sets = [
            set(1, "1.0.0", "Archived", true, json!([succeeded, archived])),
            set(2, "1.1.0", "Archived", false, json!([archived])),
            set(
                3,
                "1.2.0",
                "Active",
                false,
                json!([succeeded, condition("Progressing", "True", "Succeeded")]),
            ),
            set(4, "1.3.0", "Active", false, json!([condition("Progressing", "True", "RollingOut")])),
        ];
        let history = History { name: "pipe".to_owned(), revisions: records(&sets) };
        let now = "2026-01-04T00:00:00Z".parse().unwrap();
        let expected = "\
REVISION   BUNDLE        VERSION   IMAGE                 RESULT       CREATED   ARCHIVED   ROLLBACK
4          pipe.v1.3.0   1.3.0     sha256:abababababab   RollingOut   3d ago    -          no
3          pipe.v1.2.0   1.2.0     sha256:abababababab   Installed    3d ago    -          yes
2          pipe.v1.1.0   1.1.0     sha256:abababababab   Abandoned    3d ago    2d ago     no
1          pipe.v1.0.0   1.0.0     sha256:abababababab   Superseded   3d ago    2d ago     yes

Revision 1 adopted an installation of the upstream Helm applier. The Helm applier cannot manage it again.
";
        assert_eq!(text(&history, now, false), expected);
        let wide = text(&history, now, true);
        assert!(wide.contains("no: newest revision\n"), "{wide}");
        assert!(wide.contains("no: never rolled out\n"), "{wide}");
        assert!(wide.contains(&format!("r.example/pipe@sha256:{}", "ab".repeat(32))), "{wide}");
        let none = History { name: "pipe".to_owned(), revisions: Vec::new() };
        assert_eq!(
            text(&none, now, false),
            "pipe has no revision yet; run `olm status pipe` for the reason.\n"
        );
    }
}
