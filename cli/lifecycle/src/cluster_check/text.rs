//! Text form of the check.

use olm_api::cluster_upgrade_status::PlatformType;
use olm_cli_core::output::{Fields, Table};

use super::ClusterCheck;
use crate::resolve::PlatformUpgrade;

pub(super) fn text(check: &ClusterCheck) -> String {
    let platform = &check.platform;
    let mut fields = Fields::default();
    let current = match (&platform.current_version, &platform.source) {
        (Some(version), Some(source)) => format!("{} {version} (from {source})", platform.type_),
        _ => format!("{}, version unknown", platform.type_),
    };
    fields.add(0, "Platform", &current);
    fields.add(0, "Next version", platform.next_version.as_deref().unwrap_or("unknown"));
    if platform.type_ == PlatformType::OpenShift {
        fields.add(0, "Next Kubernetes", check.next_kubernetes_version.as_deref().unwrap_or("unknown"));
    }
    fields.add(0, "Upgradeable", &format!("{} ({})", check.upgradeable, check.reason));
    let lines: Vec<String> = check.message.lines().map(str::to_owned).collect();
    fields.list(0, "Message", &lines);
    let mut parts = vec![fields.text];
    if !check.extensions.is_empty() {
        let mut table = Table::new(&["EXTENSION", "BUNDLE", "VERSION", "RESULT", "CONSTRAINT", "VALUE"]);
        for row in &check.extensions {
            table.row([
                &row.name,
                &row.bundle,
                &row.version,
                row.result.as_str(),
                &row.constraint,
                &row.value,
            ]);
        }
        parts.push(table.text());
    }
    if !check.upgrades.is_empty() {
        parts.push(upgrades(&check.upgrades));
    }
    if !check.removed_apis.is_empty() {
        let mut table = Table::new(&["EXTENSION", "REVISION", "REMOVED API", "KIND", "OBJECT", "REMOVED IN"]);
        for one in &check.removed_apis {
            table.row([
                &one.extension,
                &one.revision,
                &one.api_version,
                &one.kind,
                &one.object,
                &one.removed_in,
            ]);
        }
        parts.push(table.text());
    }
    parts.join("\n")
}

/// Table of upgrades.
pub(crate) fn upgrades(upgrades: &[PlatformUpgrade]) -> String {
    let mut table = Table::new(&["EXTENSION", "UPGRADE TO", "STEPS", "WITHIN RANGE"]);
    for upgrade in upgrades {
        let within = match (upgrade.steps.is_empty(), upgrade.within_range) {
            (true, _) => "",
            (false, true) => "yes",
            (false, false) => "no",
        };
        table.row([
            upgrade.extension.as_str(),
            upgrade.version().unwrap_or("none"),
            &upgrade.bundles(),
            within,
        ]);
    }
    table.text()
}
