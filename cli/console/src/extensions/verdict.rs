//! Verdict on the next version of the cluster, as operator-controller wrote it.

use maud::{Markup, html};
use olm_api::ClusterUpgradeStatus;
use olm_api::cluster_upgrade_status::{ExtensionVerdict, VerdictResult};
use olm_api::conditions;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;

/// Type of the condition.
const UPGRADEABLE: &str = "Upgradeable";

/// ClusterUpgradeStatus `cluster`, or the reason for which it is not known.
pub(super) struct Upgradeable(Result<Option<ClusterUpgradeStatus>, String>);

impl Upgradeable {
    pub(super) async fn read(cluster: &ClusterConnection, session: &Session) -> Self {
        Self(cluster.upgrade_status(session).await.map_err(|error| error.to_string()))
    }

    /// Verdict on the cluster.
    pub(super) fn markup(&self) -> Markup {
        let status = match &self.0 {
            Ok(status) => status.as_ref().and_then(|status| status.status.as_ref()),
            Err(why) => {
                return html! { p.soft { "It is not known whether the cluster may be upgraded: " (why) } };
            }
        };
        let found = status.and_then(|status| conditions::find(&status.conditions, UPGRADEABLE));
        let Some(condition) = found else {
            return html! { p.soft { "operator-controller has not written a verdict on the next version of the cluster. The page " a href="/cluster" { "Cluster" } " computes it." } };
        };
        let next = status.and_then(|status| status.platform.as_ref()?.next_version.as_deref());
        html! {
            p {
                "Upgrade of the cluster" @if let Some(next) = next { " to " (next) } ": "
                @match condition.status.as_str() {
                    "True" => span.badge.good { "allowed" },
                    "False" => span.badge.bad { "blocked" },
                    _ => span.badge { "unknown" },
                }
                @if condition.status != "True" { " " (condition.message) }
            }
        }
    }

    /// Verdicts on the bundles of an extension.
    pub(super) fn of_extension(&self, name: &str) -> Markup {
        let status = self.0.as_ref().ok().and_then(|status| status.as_ref()?.status.as_ref());
        let rows: Vec<&ExtensionVerdict> =
            status.into_iter().flat_map(|status| &status.extensions).filter(|row| row.name == name).collect();
        html! {
            (self.markup())
            @for row in rows {
                p {
                    (row.bundle) ": "
                    span class=(class(&row.result)) { (row.result.as_str()) }
                    @if !row.constraint.is_empty() { " " code { (row.constraint) " " (row.value) } }
                    @if let Some(message) = &row.message { " " (message) }
                    @if let Some(version) = &row.upgrade_to { " An upgrade to " (version) " would not block it." }
                    @if let Some(report) = row.operator_condition.as_ref().filter(|report| report.status == "False") {
                        " The operator reports " (report.reason) ": " (report.message)
                    }
                }
            }
        }
    }
}

/// Class of a verdict.
pub(crate) fn class(result: &VerdictResult) -> &'static str {
    match result {
        VerdictResult::Compatible | VerdictResult::Acknowledged => "badge good",
        VerdictResult::Blocking | VerdictResult::Invalid => "badge bad",
        _ => "badge",
    }
}
