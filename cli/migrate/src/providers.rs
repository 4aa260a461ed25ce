//! Provider of certificates for webhooks and aggregated APIs. Without one, operator-controller does not install their bundles.

use olm_bundle::Certificates;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_cli_core::output::counted;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_runtime::cluster::within_deadline;

use super::classify::PackageReport;
use super::objects::{Csv, Objects};
use super::rule;

/// API that cert-manager serves.
const CERT_MANAGER: &str = "cert-manager.io/v1";

/// Reason for which operator-controller has no provider. `None` with one, or if that is unknown.
///
/// # Errors
/// The command is interrupted.
pub(super) async fn missing(
    cluster: &ClusterConnection,
    controller: &ControllerArgs,
    session: &Session,
) -> Result<Option<String>, CliError> {
    match controller.certificates() {
        Certificates::None => Ok(Some("the gates of all providers are off".to_owned())),
        // The service CA has no kind of its own.
        Certificates::Builtin | Certificates::OpenshiftServiceCa => Ok(None),
        Certificates::CertManager => {
            let discovery = within_deadline(cluster.client().list_api_group_resources(CERT_MANAGER));
            let is_missing = matches!(session.interruptible(discovery).await?,
                Err(kube::Error::Api(status)) if status.code == 404);
            Ok(is_missing.then(|| format!("the provider is cert-manager, and {CERT_MANAGER} is not served")))
        }
    }
}

/// What an operator needs certificates for. `None` without webhooks and aggregated APIs.
fn needed(csv: &Csv) -> Option<String> {
    let parts = [(csv.webhooks, "webhook"), (csv.api_services, "aggregated API")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, noun)| counted(*count, noun)).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Reason for which an operator cannot be installed without provider.
pub(super) fn obstacle(csv: &Csv, missing: Option<&str>) -> Option<String> {
    Some(format!("no provider of the certificates of {}: {}", needed(csv)?, missing?))
}

/// Adds a finding to each package that needs a provider.
pub(super) fn judge(reports: &mut [PackageReport], objects: &Objects, missing: Option<&str>) {
    for report in reports {
        let csv = objects.csvs.get(&(report.namespace.clone(), report.csv.clone()));
        if let Some(why) = csv.and_then(|csv| obstacle(csv, missing)) {
            report.add(rule::PROVIDER, why);
        }
    }
}
