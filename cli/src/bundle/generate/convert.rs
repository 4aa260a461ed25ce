//! Conversion of manifests to a bundle (docs/design/cli.md#bundle-generation).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::list;
use serde_json::Value;

use super::csv::{self, Choices, Content};
use super::deployments;
use super::files::{self, Channels, Existing, Generated};
use super::objects::{Input, Object};
use super::permissions::{self, Account};
use super::summary::{Missing, Report};
use super::webhooks;
use crate::error::CliError;

/// Options of the conversion.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) choices: Choices,
    pub(super) channels: Channels,
    /// New image by the repository of the old one.
    pub(super) images: BTreeMap<String, String>,
    pub(super) skipped_kinds: Vec<String>,
}

/// Bundle, and what its author should know.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) generated: Generated,
    pub(super) report: Report,
    pub(super) missing: Vec<Missing>,
}

/// Converts the objects of the input. Hand-written fields come from the ClusterServiceVersion of the input, then from
/// the existing one.
///
/// # Errors
/// The objects cannot form a bundle. The message has one line per problem.
pub(super) fn convert(
    objects: Vec<Object>,
    existing: &Existing,
    options: &Options,
) -> Result<Converted, CliError> {
    let mut report = Report::default();
    let mut input = Input::new(objects, &options.skipped_kinds, &mut report);
    for deployment in &mut input.deployments {
        deployments::set_images(&mut deployment.value, &options.images);
    }
    if input.deployments.is_empty() {
        report.problem("the input has no Deployment; a bundle installs an operator that a Deployment runs");
    }
    let served = webhooks::find(&input, &mut report);
    let strategies: Vec<Value> = input
        .deployments
        .iter()
        .map(|deployment| {
            let name = deployment.name();
            let is_serving = served.webhook_servers.contains(name) || served.api_servers.contains(name);
            deployments::strategy(deployment, is_serving, &input.certificates, &mut report)
        })
        .collect();
    for certificate in &input.certificates {
        report.skip(certificate, "OLM issues the certificates of webhooks");
    }
    let api_servers = input.deployments.iter().filter(|one| served.api_servers.contains(one.name()));
    let api_servers: BTreeSet<Account> = api_servers.map(Account::of).collect();
    let permissions = permissions::split(&input, &api_servers, &mut report);
    let mut shipped = permissions.shipped;
    shipped.extend(served.remaining_services(&input, &mut report));
    shipped.append(&mut input.shipped);
    shipped.iter_mut().for_each(|object| prepare(object, &mut report));
    let base = csv::merged(input.base.take().map(|base| base.value), existing.csv().cloned());
    let is_new = base["spec"]["displayName"].as_str().is_none_or(str::is_empty);
    let content = Content {
        deployments: strategies,
        permissions: permissions.namespaced,
        cluster_permissions: permissions.cluster,
        webhooks: served.webhooks,
        api_services: served.api_services,
        definitions: &input.definitions,
        examples: &input.examples,
        previous: existing.csv().map_or(&[], |csv| list(csv, "/spec/install/spec/deployments")),
    };
    let csv = csv::csv(base, &options.choices, &content, &mut report);
    shipped.extend(input.definitions.iter().map(webhooks::without_conversion));
    let package = &options.choices.package;
    let generated = files::lay_out(package, &csv, &shipped, &options.channels, existing, &mut report)?;
    for path in &generated.kept {
        report.note(format!("{path} has no object of the input; delete it if it is obsolete"));
    }
    if !report.problems.is_empty() {
        return Err(CliError::findings(report.problems.join("\n")));
    }
    Ok(Converted { missing: csv::missing(&csv, is_new), generated, report })
}

/// Removes the namespace that the installation sets.
fn prepare(object: &mut Object, report: &mut Report) {
    if object.kind() == "Secret" {
        report.note(format!("{}: everybody who can pull the bundle can read its content", object.label()));
    }
    // OLM sets the namespace of no VerticalPodAutoscaler.
    if object.kind() != "VerticalPodAutoscaler"
        && let Some(metadata) = object.value["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
}
