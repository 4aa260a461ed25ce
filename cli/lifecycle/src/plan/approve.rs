//! `olm approve`: approves the plan of an extension by its digest (docs/design/approvals.md#approval).

use clap::Args;
use kube::ResourceExt;
use olm_api::conditions::types;
use olm_api::{ClusterExtension, ExtensionPlan, annotations};
use olm_cli_core::change::{self, ChangeArgs, DryRun, WrittenObject};
use olm_cli_core::error::CliError;
use olm_cli_core::output::Fields;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_request::HeldMessage;
use olm_version::quote;

pub use super::recorded::RecordedPlan;
use super::{Changes, PlanReport, PlanState, recorded, report};
use crate::diff::Diff;
use crate::rollout::{self, ChangedBundle};
use crate::status::observe;
use crate::status::tree::installed;

/// First lines of the command's help.
pub const ABOUT: &str = "Approve the plan of an extension

The command shows a summary of the plan of the next revision, as `olm plan` does, and writes its digest to the annotation \
approved, or sets spec.approved of its ExtensionPlan if there is one. operator-controller then creates exactly this \
revision: if the bundle, the configuration or an object has changed since then, the plan is a different one, and waits again.

--version and --digest make sure that the plan is the one that was reviewed.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed or timed out   2 wrong usage
  3 the plan is a different one, or the change is refused   4 no bundle can be chosen

Examples:
  {olm} approve my-operator
  {olm} approve my-operator --version 1.3.0 --wait
  {olm} approve my-operator --digest \"$(olm plan my-operator -o json | jq -r .digest)\"
  {olm} approve my-operator --dry-run=server")]
pub struct ApproveArgs {
    /// Name of a ClusterExtension
    #[arg(value_name = "NAME")]
    name: String,
    /// Approve only if the plan installs this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Approve only if the plan has this digest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    access: Access,
}

/// Plan that waits for its approval, with what an approval needs.
pub struct PreparedApproval {
    /// The extension as read.
    pub live: ClusterExtension,
    /// ExtensionPlan, if operator-controller wrote one.
    object: Option<ExtensionPlan>,
    plan: PlanReport,
    /// Reason for which an ExtensionPlan may have been missed.
    pub warning: Option<String>,
}

impl PreparedApproval {
    /// Reads the ExtensionPlan of the extension `name`, else computes its plan.
    ///
    /// # Errors
    /// The extension does not exist, or no bundle can be chosen.
    pub async fn read(
        cluster: &ClusterConnection,
        name: &str,
        access: &Access,
        session: &Session,
    ) -> Result<Self, CliError> {
        let live = observe::changeable_extension(cluster, name, session).await?;
        let (object, warning) = recorded::find(cluster, &live, session).await?;
        let plan = match &object {
            Some(object) => recorded::report(object, &live),
            None => report(cluster, &live, access, session).await?.0,
        };
        Ok(Self { live, object, plan, warning })
    }

    /// Digest of the plan, which the approval names.
    pub fn digest(&self) -> &str {
        &self.plan.digest
    }

    /// Output of `olm plan` without computed changes, which [`Self::diff`] has.
    pub fn heading(&self) -> String {
        self.plan.heading()
    }

    /// Changes of the plan, if they are computed.
    pub fn diff(&self) -> Option<&Diff> {
        match &self.plan.changes {
            Changes::Computed(diff) => Some(diff),
            Changes::Recorded(_) => None,
        }
    }

    /// Changes of the plan, if operator-controller recorded them.
    pub fn recorded(&self) -> Option<RecordedPlan<'_>> {
        match &self.plan.changes {
            Changes::Computed(_) => None,
            Changes::Recorded(recorded) => Some(recorded.parts()),
        }
    }

    /// Reason for which there is nothing to approve, or for which the plan cannot be approved yet.
    pub fn refusal(&self) -> Option<CliError> {
        check(None, None, &self.plan, reported(&self.live)).err()
    }

    /// Approves the plan.
    ///
    /// # Errors
    /// The API server refuses the write or does not answer.
    pub async fn carry_out(
        &self,
        cluster: &ClusterConnection,
        dry_run: Option<DryRun>,
        session: &Session,
    ) -> Result<WrittenObject, CliError> {
        match &self.object {
            Some(object) => recorded::approve(cluster, object, dry_run, session).await,
            None => {
                let approval = (annotations::EXT_APPROVED, self.digest());
                change::annotate(cluster, &self.live, approval, dry_run, session).await
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The extension does not exist, no bundle can be chosen, or the plan is not the expected one.
pub async fn run(args: ApproveArgs, session: &mut Session) -> Result<(), CliError> {
    let cluster = args.access.cluster.connect().await?;
    let prepared = PreparedApproval::read(&cluster, &args.name, &args.access, session).await?;
    let PreparedApproval { live, object, plan, warning } = &prepared;
    warning.iter().for_each(|warning| say(&format!("warning: {warning}")));
    check(args.version.as_deref(), args.digest.as_deref(), plan, reported(live))?;
    let mut fields = Fields::default();
    fields.add(0, "Bundle", &format!("{}, version {}", plan.bundle, plan.version));
    fields.add(0, "Plan", &plan.digest);
    fields.add(0, "Changes", &plan.summary);
    let installed = installed(live).map(|bundle| bundle.name);
    let bundle = ChangedBundle { chosen: Some(plan.bundle.clone()), installed };
    let written = prepared.carry_out(&cluster, args.change.dry_run, session).await?;
    if object.is_some() {
        change::print(args.change.output, &fields.text, &[written], &mut session.output)?;
        // The conditions of the extension may be older than the approval, which changes only the plan.
        let mut approved = live.clone();
        approved.annotations_mut().insert(annotations::EXT_APPROVED.to_owned(), plan.digest.clone());
        return rollout::wait(&cluster, &args.change, &change::unchanged(&approved)?, bundle, session).await;
    }
    rollout::print_and_wait(&cluster, &args.change, &fields.text, &[written], bundle, session).await
}

/// Refuses a plan that is not the expected one. `reported` is the digest that operator-controller reports.
fn check(
    expected_version: Option<&str>,
    expected_digest: Option<&str>,
    plan: &PlanReport,
    reported: Option<&str>,
) -> Result<(), CliError> {
    let PlanReport { extension, version, digest, .. } = plan;
    if matches!(plan.state, PlanState::Applied | PlanState::RolledBack) {
        return Err(CliError::findings(format!("{extension} has nothing to approve: {}", plan.state_text())));
    }
    if let Some(expected) = expected_version.filter(|expected| expected != version) {
        return Err(CliError::findings(format!(
            "the plan of {extension} installs version {version}, not {}; `olm plan {extension}` shows it",
            quote(expected)
        )));
    }
    if let Some(expected) = expected_digest.filter(|expected| expected != digest) {
        return Err(CliError::findings(format!(
            "the plan of {extension} is now {digest}, not {}; `olm plan {extension}` shows it",
            quote(expected)
        )));
    }
    match reported.filter(|reported| reported != digest) {
        Some(reported) => Err(CliError::findings(format!(
            "operator-controller reports plan {reported} for {extension}, but this plan is {digest}; wait until \
             operator-controller has reconciled the extension, and use olm of the same version"
        ))),
        None => Ok(()),
    }
}

/// Digest of the plan that the conditions of the extension report.
fn reported(extension: &ClusterExtension) -> Option<&str> {
    let conditions = [types::UPGRADE_AVAILABLE, types::PROGRESSING].into_iter();
    let mut messages = conditions.filter_map(|type_| Some(extension.condition(type_)?.message.as_str()));
    messages.find_map(|message| Some(HeldMessage::parse(message)?.digest))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ApproveArgs,
    }

    fn plan(state: PlanState) -> PlanReport {
        PlanReport {
            extension: "pipe".to_owned(),
            bundle: "pipe.v2".to_owned(),
            version: "2.0.0".to_owned(),
            catalog: "hub".to_owned(),
            image: "r.example/pipe:v2".to_owned(),
            digest: "sha256:a".to_owned(),
            object: None,
            state,
            opens: None,
            blocker: None,
            summary: String::new(),
            changes: Changes::Computed(Box::default()),
        }
    }

    #[test]
    fn only_the_expected_plan_is_approved() {
        let verdict = |line: &[&str], state, reported| {
            let args = Line::try_parse_from([&["approve", "pipe"], line].concat()).unwrap().args;
            let (version, digest) = (args.version.as_deref(), args.digest.as_deref());
            check(version, digest, &plan(state), reported)
                .map_err(|failure| (failure.exit_code(), failure.to_string()))
        };
        let required = PlanState::ApprovalRequired;
        assert_eq!(verdict(&[], required, None), Ok(()));
        assert_eq!(
            verdict(&["--version", "2.0.0", "--digest", "sha256:a"], required, Some("sha256:a")),
            Ok(())
        );
        for (line, state, reported, said) in [
            (&[][..], PlanState::Applied, None, "pipe has nothing to approve: "),
            (
                &["--version", "1.0.0"],
                required,
                None,
                "the plan of pipe installs version 2.0.0, not \"1.0.0\"",
            ),
            (&["--digest", "sha256:b"], required, None, "the plan of pipe is now sha256:a, not \"sha256:b\""),
            (&[], required, Some("sha256:b"), "operator-controller reports plan sha256:b for pipe"),
        ] {
            let (code, message) = verdict(line, state, reported).unwrap_err();
            assert!(code == 3 && message.starts_with(said), "{message}");
        }
    }

    #[test]
    fn reported_digest_is_read_from_conditions() {
        let with = |type_: &str, message: &str| -> ClusterExtension {
            let condition = json!({"type": type_, "status": "True", "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"conditions": [condition]}}))
                .unwrap()
        };
        let message = "bundle a version 1 is available; plan sha256:a: 1 object created; to approve it, …";
        assert_eq!(reported(&with("UpgradeAvailable", message)), Some("sha256:a"));
        assert_eq!(reported(&with("Progressing", message)), Some("sha256:a"));
        assert_eq!(reported(&with("Progressing", "Revision 1.0.0 has rolled out.")), None);
    }
}
