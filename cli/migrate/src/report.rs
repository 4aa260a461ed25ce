//! Result of `olm migrate apply` and `olm migrate rollback`.

use olm_cli_core::output::counted;
use serde::Serialize;

use super::plan::Refusal;
use super::pods::RestartedPod;

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigrationReport {
    /// Set if nothing was changed.
    pub(super) dry_run: bool,
    pub(super) packages: Vec<PackageResult>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<Refusal>,
    /// Packages whose rollback failed, or was not tried because that of a package that they require failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failed: Vec<Refusal>,
}

/// Result of one package.
#[derive(Debug, Serialize)]
pub(super) struct PackageResult {
    pub(super) package: String,
    pub(super) namespace: String,
    pub(super) version: String,
    /// Steps that were taken, or would be.
    pub(super) steps: Vec<String>,
    /// Number of compared pods.
    pub(super) pods: usize,
    /// Pods that were replaced or restarted.
    pub(super) restarts: Vec<RestartedPod>,
}

impl MigrationReport {
    pub(super) fn new(dry_run: bool) -> Self {
        Self { dry_run, packages: Vec::new(), refused: Vec::new(), failed: Vec::new() }
    }

    /// Restarts that the plans do not announce.
    pub(super) fn restarted(&self) -> Vec<String> {
        let all = self.packages.iter().flat_map(|package| &package.restarts);
        all.filter(|restart| !restart.announced).map(ToString::to_string).collect()
    }

    /// Commands that return the packages with such restarts to classic OLM.
    pub(super) fn rollbacks(&self) -> Vec<String> {
        let has_restart =
            |package: &&PackageResult| package.restarts.iter().any(|restart| !restart.announced);
        let all = self.packages.iter().filter(has_restart);
        all.map(|one| format!("olm migrate rollback {}/{}", one.namespace, one.package)).collect()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for PackageResult { package, namespace, version, steps, pods, restarts } in &self.packages {
            if self.dry_run {
                text += &format!("{namespace}/{package} {version} (dry run):\n");
                for (number, step) in steps.iter().enumerate() {
                    text += &format!("  {}. {step}\n", number + 1);
                }
                continue;
            }
            let compared = match restarts.len() {
                0 => format!("{} compared, none restarted", counted(*pods, "pod")),
                restarted => format!("{} compared, {restarted} restarted", counted(*pods, "pod")),
            };
            text += &format!("{namespace}/{package} {version}: done, {compared}\n");
            for restart in restarts {
                text += &format!("  {restart}\n");
            }
        }
        for refused in &self.refused {
            text += &format!("{}/{}: refused\n", refused.namespace, refused.package);
            for reason in &refused.reasons {
                text += &format!("  {reason}\n");
            }
        }
        // The reasons are the error of the command.
        for failed in &self.failed {
            text += &format!("{}/{}: failed\n", failed.namespace, failed.package);
        }
        text
    }
}
