//! Conversion of manifests to a bundle (docs/design/cli.md#bundle-generation).

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::list;
use olm_cli_core::error::CliError;
use olm_version::quote;
use serde_json::Value;

use super::csv::{self, Choices, Content};
use super::deployments;
use super::files::{self, Channels, Existing, Generated};
use super::objects::{Input, Object};
use super::permissions::{self, Account};
use super::summary::{Missing, Report};
use super::traps;
use super::webhooks;

/// Options of the conversion.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) choices: Choices,
    pub(super) channels: Channels,
    /// New image by the repository of the old one.
    pub(super) images: BTreeMap<String, String>,
    pub(super) skipped_kinds: Vec<String>,
    /// Service accounts whose rights are permissions, besides those of Deployments.
    pub(super) service_accounts: Vec<String>,
    pub(super) strips_metrics_certificates: bool,
    /// `true` if images in all environment variables are related images.
    pub(super) relates_images_of_variables: bool,
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
    check_options(&objects, options)?;
    let mut report = Report::default();
    let mut input = Input::new(objects, &options.skipped_kinds, &mut report);
    input.deployments.iter_mut().for_each(|deployment| change(&mut deployment.value, options));
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
    let permissions = permissions::split(&input, &options.service_accounts, &api_servers, &mut report);
    let mut shipped = permissions.shipped;
    shipped.extend(served.remaining_services(&input, &mut report));
    traps::note_namespaces(&input, &mut report);
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
        crds: &input.crds,
        examples: &input.examples,
        previous: existing.csv().map_or(&[], |csv| list(csv, "/spec/install/spec/deployments")),
        relates_variables: options.relates_images_of_variables,
    };
    let csv = csv::csv(base, &options.choices, &content, &mut report);
    shipped.extend(input.crds.iter().map(webhooks::without_conversion));
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

/// Applies the options to a Deployment.
fn change(deployment: &mut Value, options: &Options) {
    deployments::set_images(deployment, &options.images);
    if options.strips_metrics_certificates {
        traps::strip_metrics_certificate(deployment);
    }
}

/// Checks that each value of `--set-image`, `--service-account` and `--skip-kind` concerns an object.
///
/// # Errors
/// A value has no effect. The message names those that have one.
fn check_options(objects: &[Object], options: &Options) -> Result<(), CliError> {
    let names = |known: &BTreeSet<&str>| known.iter().copied().collect::<Vec<_>>().join(", ");
    let deployments = objects.iter().filter(|object| object.kind() == "Deployment");
    let repositories =
        deployments.flat_map(|one| deployments::repositories(&one.value)).collect::<BTreeSet<_>>();
    if let Some(unused) = options.images.keys().find(|name| !repositories.contains(name.as_str())) {
        return Err(CliError::usage(format!(
            "--set-image {}: no container of a Deployment has an image of this repository; theirs are {}",
            quote(unused),
            names(&repositories)
        )));
    }
    let has_certificate =
        |object: &Object| object.kind() == "Deployment" && traps::has_metrics_certificate(&object.value);
    if options.strips_metrics_certificates && !objects.iter().any(has_certificate) {
        let why = "no container of a Deployment has the argument --metrics-cert-path";
        return Err(CliError::usage(format!("--strip-metrics-certs: {why}")));
    }
    let accounts = objects.iter().flat_map(permissions::account_names).collect::<BTreeSet<_>>();
    if let Some(unknown) = options.service_accounts.iter().find(|name| !accounts.contains(name.as_str())) {
        return Err(CliError::usage(format!(
            "--service-account {}: no object of the input is or binds this ServiceAccount; it has {}",
            quote(unknown),
            names(&accounts)
        )));
    }
    let kinds = objects.iter().map(Object::kind).collect::<BTreeSet<_>>();
    match options.skipped_kinds.iter().find(|kind| !kinds.contains(kind.as_str())) {
        Some(unused) => Err(CliError::usage(format!(
            "--skip-kind {}: the input has no object of this kind; its kinds are {}",
            quote(unused),
            names(&kinds)
        ))),
        None => Ok(()),
    }
}

/// Removes the namespace that the installation sets.
fn prepare(object: &mut Object, report: &mut Report) {
    if object.kind() == "Secret" {
        report.note(format!("{}: every user that can pull the bundle can read its content", object.label()));
    }
    // OLM sets the namespace of no VerticalPodAutoscaler.
    if object.kind() != "VerticalPodAutoscaler"
        && let Some(metadata) = object.value["metadata"].as_object_mut()
    {
        metadata.remove("namespace");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One object of each use.
    const OBJECTS: &str = r#"
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: s, labels: {app: d}, annotations: {a: b}},
 spec: {selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {serviceAccountName: a,
 volumes: [{name: v, secret: {secretName: tls}}], containers: [{name: c, image: "c:v1", ports: [{name: p, containerPort: 1}],
 env: [{name: RELATED_IMAGE_X, value: x}], volumeMounts: [{name: v, mountPath: /tmp/k8s-webhook-server/serving-certs}]}]}}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: s}, secrets: []}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r, labels: {l: m}}, rules: [{verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b},
 roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: ServiceAccount, name: a, namespace: s}, {kind: Group, name: g}]}
---
{apiVersion: v1, kind: Service, metadata: {name: svc, namespace: s},
 spec: {selector: {app: d}, ports: [{port: 443, targetPort: p}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: w},
 webhooks: [{name: w.kb.io, clientConfig: {service: {name: svc, namespace: s, path: /p, port: 443}}, rules: [{}]}]}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.x.io},
 spec: {group: x.io, version: v1, service: {name: svc, namespace: s}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ks.y.io, annotations: {a: b}},
 spec: {group: y.io, names: {kind: K, plural: ks}, versions: [{name: v1, served: true, schema: {openAPIV3Schema:
 {description: d}}}], conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1],
 clientConfig: {service: {name: svc, namespace: s}}}}}}
---
{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: c}, spec: {secretName: tls}}
---
{apiVersion: x.io/v1, kind: F, metadata: {name: f}}
---
{apiVersion: y.io/v1, kind: K, metadata: {name: k}}
---
{apiVersion: v1, kind: Secret, metadata: {name: secret, namespace: s}}
---
{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, metadata: {name: o, annotations: {x: y}},
 spec: {version: 0.0.1, replaces: p, installModes: [{type: AllNamespaces}], relatedImages: [{name: n, image: i}],
 customresourcedefinitions: {owned: [{name: ks.y.io, version: v1, kind: K}]},
 apiservicedefinitions: {owned: [{group: x.io, version: v1, kind: F}], required: []}}}
"#;

    fn converted(values: Vec<Value>) -> Result<Converted, String> {
        let object = |value| Object { origin: "f.yaml".into(), is_sample: false, value };
        let objects = values.into_iter().map(object).collect();
        let choices = Choices { package: "p".into(), version: "1.0.0".into(), ..Choices::default() };
        let options = Options { choices, ..Options::default() };
        convert(objects, &Existing::default(), &options).map_err(|error| error.to_string())
    }

    /// JSON pointers of all values below the root.
    fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.replace('/', "~1"), value)).collect()
            }
            Value::Array(items) => {
                items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
            }
            _ => Vec::new(),
        };
        for (key, child) in children {
            let at = format!("{at}/{key}");
            pointers(child, &at, found);
            found.push(at);
        }
    }

    #[test]
    fn order_of_the_input_has_no_effect() {
        let mut values = olm_yaml::all_from_slice(OBJECTS.as_bytes()).unwrap();
        let first = converted(values.clone()).unwrap();
        values.reverse();
        let second = converted(values).unwrap();
        assert_eq!(first.generated.written, second.generated.written);
        assert_eq!(first.report.notes, second.report.notes);
    }

    #[test]
    fn wrong_type_of_any_field_causes_no_panic() {
        let values = olm_yaml::all_from_slice(OBJECTS.as_bytes()).unwrap();
        for (position, value) in values.iter().enumerate() {
            let mut found = Vec::new();
            pointers(value, "", &mut found);
            for pointer in found {
                for wrong in
                    [json!(null), json!("x"), json!(0), json!([]), json!({}), json!([null]), json!({"": []})]
                {
                    let mut changed = values.clone();
                    *changed[position].pointer_mut(&pointer).unwrap() = wrong;
                    let _ = converted(changed);
                }
            }
        }
    }
}
