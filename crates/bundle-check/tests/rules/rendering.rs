//! Rules on the rendered objects.

use super::fixture::{Files, compare};

#[test]
fn invalid_deployment_name_is_an_error() {
    compare(&[(
        Files::good().csv("      - name: lamp\n", "      - name: Lamp_1\n"),
        &[
            "error: manifests/csv.yaml:32: ClusterServiceVersion lamp.v1.2.0: spec.install.spec.deployments[0]: invalid cluster \
           service version strategy deployment name 'Lamp_1': a lowercase RFC 1123 subdomain must consist of lower case \
           alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
           regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') [DEPLOY-1]",
        ],
    )]);
}

// docs/design/bundles.md#author-checks
#[test]
fn failed_install_checks_are_errors_at_the_manifest() {
    let map = |name: &str, text: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: {text}}}\n")
    };
    let files =
        Files::good().with("manifests/c.yaml", &map("c", "b")).with("manifests/d.yaml", &map("c", "d"));
    let found = files.findings();
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert!(only.starts_with("error: manifests/c.yaml:1: ConfigMap \"c\" occurs 2 times"), "{only}");
    assert!(only.ends_with("[RENDER-2]"), "{only}");
    let found = Files::good().crd("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1").findings();
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert!(
        only.starts_with(
            "error: manifests/lamps.crd.yaml:1: CustomResourceDefinition \"lamps.light.example.com\": "
        ),
        "{only}"
    );
}
