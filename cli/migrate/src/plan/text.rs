//! Plans as text. Pure.

use std::fmt::Write;

use olm_cli_core::object_access::ObjectId;
use olm_cli_core::output::{Fields, Table, counted, qualified};
use olm_cli_lifecycle::diff::object_text;
use serde_json::Value;

use super::model::{PackagePlan, Reasoned};
use super::{MigrationPlan, Refusal};

/// Text output of the command.
pub(super) fn text(plan: &MigrationPlan) -> String {
    let mut text = overview(plan);
    for package in &plan.packages {
        let _ = write!(text, "\n{}", package_text(package));
    }
    text
}

/// Table of all packages, and the next commands.
pub(super) fn overview(plan: &MigrationPlan) -> String {
    if plan.packages.is_empty() && plan.refused.is_empty() {
        return "No package of classic OLM was found.\n".to_owned();
    }
    let mut text = String::new();
    if !plan.packages.is_empty() {
        let mut table = Table::new(&[
            "PACKAGE",
            "VERSION",
            "EXTENSION",
            "ADOPTED",
            "CREATED",
            "REMOVED",
            "LEFT",
            "RESTARTS",
            "AFTER",
        ]);
        for package in &plan.packages {
            let id = qualified(&package.namespace, &package.package);
            let counts = [
                package.adopted.len(),
                package.created.len(),
                package.removed.len(),
                package.left.len(),
                package.restarts.len(),
            ];
            let cells = [id, package.version.clone(), name(&package.extension).to_owned()];
            let after = package.after.join(", ");
            table.row(cells.into_iter().chain(counts.map(|count| count.to_string())).chain([after]));
        }
        text += &table.text();
    }
    for Refusal { package, namespace, reasons } in &plan.refused {
        let _ = write!(text, "\nRefused: {}\n", qualified(namespace, package));
        for reason in reasons {
            let _ = writeln!(text, "  {reason}");
        }
    }
    if !plan.packages.is_empty() {
        text += "\nNext:\n";
        for package in &plan.packages {
            let _ = writeln!(text, "  olm migrate apply {}", qualified(&package.namespace, &package.package));
        }
    }
    text
}

fn package_text(plan: &PackagePlan) -> String {
    let extension = name(&plan.extension);
    let mut fields = Fields::default();
    fields.add(0, "Package", &qualified(&plan.namespace, &plan.package));
    let classic = format!(
        "Subscription {} and ClusterServiceVersion {} are deleted without their objects",
        plan.subscription, plan.csv
    );
    fields.add(0, "Classic OLM", &classic);
    let upgrades = match plan.channel.as_str() {
        _ if plan.is_pinned() => "which stays pinned".to_owned(),
        "" => "then upgrades of all channels".to_owned(),
        channel => format!("then upgrades of {channel}"),
    };
    fields.add(0, "Extension", &format!("{extension}, version {}, {upgrades}", plan.version));
    let config = &plan.opened["spec"]["config"]["inline"];
    if !config.is_null() {
        fields.add(0, "Configuration", &config.to_string());
    }
    fields.list(0, "After", &plan.after);
    if !plan.accepted.is_empty() {
        fields.add(0, "Accepted", &plan.accepted.join(", "));
    }
    let restarts: Vec<String> = plan
        .restarts
        .iter()
        .map(|restart| {
            format!(
                "{}: one rolling restart: {} ({})",
                restart.object,
                restart.reason,
                restart.fields.join(", ")
            )
        })
        .collect();
    if restarts.is_empty() {
        fields.add(0, "Restarts", "none");
    }
    fields.list(0, "Restarts", &restarts);
    fields.list(0, "Notes", &plan.notes);
    let mut text = fields.text;
    text += &objects(plan);
    let _ = write!(text, "\nDifferences of adopted objects: {}\n", counted(plan.differences.len(), "object"));
    plan.differences.iter().for_each(|change| text += &object_text(change));
    text
}

/// Table of all objects.
fn objects(plan: &PackagePlan) -> String {
    let mut table = Table::new(&["ACTION", "OBJECT", "REASON"]);
    let identity = |object: &Value| ObjectId::of(object).to_string();
    for catalog in &plan.catalogs {
        table.row(["create", &identity(catalog), "serves the content of the CatalogSource"]);
    }
    for grant in &plan.grants {
        table.row(["create", &identity(grant), "access that a role of the OperatorGroup gave"]);
    }
    for (action, objects, reason) in [
        ("adopt", &plan.adopted, "object of the bundle that exists"),
        ("create", &plan.created, "object of the bundle that does not exist"),
    ] {
        objects.iter().for_each(|object| table.row([action, &object.to_string(), reason]));
    }
    for (action, objects) in [("remove", &plan.removed), ("leave", &plan.left)] {
        let (copies, others): (Vec<_>, Vec<_>) =
            objects.iter().partition(|one| one.object.kind == "ClusterServiceVersion");
        if let Some(Reasoned { object, reason }) = copies.first() {
            let namespaces = counted(copies.len(), "namespace");
            table.row([action, &format!("ClusterServiceVersion {} in {namespaces}", object.name), reason]);
        }
        for Reasoned { object, reason } in others {
            table.row([action, &object.to_string(), reason]);
        }
    }
    format!("\n{}", table.text())
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
