//! Rules on conversions between the versions of a CRD.

use super::fixture::{Files, compare};

/// Bundle whose CRD has this `spec.conversion`.
fn with(conversion: &str) -> Files {
    Files::good().crd("  scope: Namespaced\n", &format!("  scope: Namespaced\n  conversion: {conversion}\n"))
}

/// Fields of CRD-6 in the findings of a bundle.
fn refused(conversion: &str) -> Vec<String> {
    let findings = with(conversion).findings();
    let of_rule = findings.iter().filter(|finding| finding.ends_with("[CRD-6]"));
    assert_eq!(of_rule.clone().count(), findings.len(), "{findings:?}");
    let field = |finding: &String| {
        let rest = finding.split("lamps.light.example.com: ").nth(1).unwrap();
        rest.split(": ").next().unwrap().to_owned()
    };
    of_rule.map(field).collect()
}

#[test]
fn incomplete_conversion_is_refused_as_by_the_api_server() {
    const WEBHOOK: &str = "spec.conversion.webhook";
    let service = |service: &str| {
        format!(
            "{{strategy: Webhook, webhook: {{conversionReviewVersions: [v1], clientConfig: {{service: {service}}}}}}}"
        )
    };
    let versions = |versions: &str| {
        format!(
            "{{strategy: Webhook, webhook: {{conversionReviewVersions: {versions}, clientConfig: {{url: 'https://a.example/x'}}}}}}"
        )
    };
    let client = |client: &str| {
        format!("{{strategy: Webhook, webhook: {{conversionReviewVersions: [v1], clientConfig: {client}}}}}")
    };
    let of = |field: &str| vec![format!("{WEBHOOK}.{field}")];
    for (conversion, expected) in [
        ("null".to_owned(), vec![]),
        ("{strategy: None}".to_owned(), vec![]),
        ("{strategy: None, webhook: {conversionReviewVersions: []}}".to_owned(), vec![]),
        ("{strategy: None, webhook: {conversionReviewVersions: [v1]}}".to_owned(), vec![WEBHOOK.to_owned()]),
        ("{}".to_owned(), vec!["spec.conversion.strategy".to_owned()]),
        ("{strategy: webhook}".to_owned(), vec!["spec.conversion.strategy".to_owned()]),
        ("{strategy: Webhook}".to_owned(), vec!["spec.conversion".to_owned()]),
        ("{strategy: Webhook, webhook: null}".to_owned(), vec!["spec.conversion".to_owned()]),
        (client("{}"), of("clientConfig")),
        (client("{url: 'https://a', service: {name: s, namespace: ns}}"), of("clientConfig")),
        (client("{url: 'http://a'}"), of("clientConfig.url")),
        (client("{url: 'https://u@a/x?y'}"), of("clientConfig.url")),
        (client("{url: 'https://a:1/x'}"), vec![]),
        (service("{namespace: ns}"), of("clientConfig.service.name")),
        (service("{name: s}"), of("clientConfig.service.namespace")),
        (service("{name: s, namespace: ns, port: 0}"), of("clientConfig.service.port")),
        (service("{name: s, namespace: ns, port: 65536}"), of("clientConfig.service.port")),
        (service("{name: s, namespace: ns, path: a}"), of("clientConfig.service.path")),
        (service("{name: s, namespace: ns, path: //a}"), of("clientConfig.service.path")),
        (versions("[]"), of("conversionReviewVersions")),
        (versions("null"), of("conversionReviewVersions")),
        (versions("[v2]"), of("conversionReviewVersions")),
        (versions("[v1, v1]"), of("conversionReviewVersions[1]")),
        (versions("[v1, V.2]"), of("conversionReviewVersions[1]")),
        (versions("[v1beta1, v2]"), vec![]),
    ] {
        assert_eq!(refused(&conversion), expected, "{conversion}");
    }
}

#[test]
fn conversion_webhook_outside_of_the_csv_is_reported() {
    let foreign = "{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: webhook-service, namespace: system}}}}";
    let webhook = "  webhookdefinitions:\n  - {type: ConversionWebhook, generateName: c.lamps.example.com, deploymentName: lamp, containerPort: 443, sideEffects: None, admissionReviewVersions: [v1], conversionCRDs: [lamps.light.example.com]}\n  install:\n";
    let only_all = |files: Files| {
        files
            .csv("OwnNamespace, supported: true", "OwnNamespace, supported: false")
            .csv("SingleNamespace, supported: true", "SingleNamespace, supported: false")
    };
    compare(&[
        (
            with(foreign),
            &["warning: manifests/lamps.crd.yaml:9: CustomResourceDefinition lamps.light.example.com: \
               spec.conversion.webhook.clientConfig.service: every request for lamps needs Service \"webhook-service\" of \
               namespace \"system\", which OLM does not create, and for which it sets no caBundle: list the \
               CustomResourceDefinition in conversionCRDs of a ConversionWebhook of the ClusterServiceVersion, or remove \
               spec.conversion [CRD-7]"],
        ),
        (only_all(with(foreign)).csv("  install:\n", webhook), &[]),
        // The definition replaces what is incomplete.
        (only_all(with("{strategy: Webhook}")).csv("  install:\n", webhook), &[]),
        (
            only_all(Files::good()).csv("  install:\n", &webhook.replace("[lamps.light.example.com]", "[]")),
            &["warning: manifests/csv.yaml:25: ClusterServiceVersion lamp.v1.2.0: \
               spec.webhookdefinitions[0].conversionCRDs: the webhook converts nothing: list the names of its \
               CustomResourceDefinitions [WEBHOOK-5]"],
        ),
    ]);
}
