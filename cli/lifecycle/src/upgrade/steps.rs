//! One step of a plan with upgrades of several extensions.

use olm_api::ClusterExtension;
use olm_cli_core::change::{self, ChangeFormat, WrittenObject};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::output::Fields;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;

use super::UpgradeArgs;
use crate::diff::{ComparedExtension, refusal};
use crate::resolve::UpgradeStep;

/// Inputs of every step.
pub(super) struct StepContext<'a> {
    pub(super) cluster: &'a ClusterConnection,
    pub(super) controller: ControllerArgs,
    pub(super) args: &'a UpgradeArgs,
}

impl StepContext<'_> {
    /// Prints the text to standard output in the table format, and to standard error in other formats.
    pub(super) fn show(&self, text: &str, session: &mut Session) -> Result<(), CliError> {
        if self.args.change.output != ChangeFormat::Table {
            say(text.trim_end());
            return Ok(());
        }
        session.output.text(text)?;
        session.output.finish()
    }

    /// Shows the changes of one step and writes the extension.
    pub(super) async fn step(
        &self,
        live: &ClusterExtension,
        desired: &ClusterExtension,
        step: &UpgradeStep,
        session: &mut Session,
    ) -> Result<WrittenObject, CliError> {
        let (args, access) = (&self.args.change, &self.args.access);
        let compared = ComparedExtension { cluster: self.cluster, extension: desired, session };
        let prediction = compared.predict_or_warn(&step.image, &self.controller, true, access).await?;
        if let Some(error) = refusal(desired, &prediction) {
            return Err(error);
        }
        let written = change::apply(self.cluster, Some(live), desired, args.dry_run, session).await?;
        let mut fields = Fields::default();
        fields.add(0, "Bundle", &format!("{} of catalog {}", step.bundle, step.catalog));
        fields.list(0, "Changes", &prediction.changes);
        fields.list(0, "Blocked by", &[prediction.problems, prediction.unsafe_crds].concat());
        self.show(&format!("{}{written}\n", fields.text), session)?;
        Ok(written)
    }
}
