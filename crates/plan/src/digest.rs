//! Digest of a plan (docs/design/approvals.md#approval).

use olm_bundle::{BundleContent, Certificates, RenderError, RenderOptions, render};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Digest of what an approval covers, `sha256:…`: the digest of the bundle's image, the configuration, and the
/// rendered objects. It does not depend on the issuer of certificates. `objects` are those of these options.
///
/// # Errors
/// The bundle cannot be rendered.
pub fn digest(
    bundle: &BundleContent,
    options: &RenderOptions<'_>,
    objects: &[Value],
    image: &str,
) -> Result<String, RenderError> {
    if options.certificates == Certificates::Builtin {
        return Ok(of_content(image, options.config, objects));
    }
    // The built-in issuer adds no objects.
    let options = RenderOptions { certificates: Certificates::Builtin, ..*options };
    Ok(of_content(image, options.config, &render(bundle, &options)?))
}

/// Digest over canonical JSON: sorted keys, no spaces.
fn of_content(image: &str, config: Option<&Value>, objects: &[Value]) -> String {
    let config = config.map_or_else(|| "null".to_owned(), Value::to_string);
    let mut hash = Sha256::new();
    hash.update(format!("{{\"config\":{config},\"image\":{},\"objects\":[", Value::from(image)));
    // One by one, because objects can take much memory.
    for (index, object) in objects.iter().enumerate() {
        hash.update(if index > 0 { "," } else { "" });
        hash.update(object.to_string());
    }
    hash.update("]}");
    format!("sha256:{}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn digest_covers_image_configuration_and_objects() {
        let objects = [json!({"kind": "A", "spec": {"b": 1, "a": [1.5, null]}})];
        let config = json!({"watchNamespace": "a"});
        let digest = of_content("sha256:1", Some(&config), &objects);
        // A fixed value: approvals must outlive an upgrade of the server.
        assert_eq!(digest, "sha256:1d2f9093f9c5950d5e3b0c9993d39e22878642bbaadd3870303bee8f6cc5d4bf");
        let sorted: Value =
            serde_json::from_str(r#"{"spec": {"a": [1.5, null], "b": 1}, "kind": "A"}"#).unwrap();
        assert_eq!(of_content("sha256:1", Some(&config), &[sorted]), digest);
        for other in [
            of_content("sha256:2", Some(&config), &objects),
            of_content("sha256:1", None, &objects),
            of_content("sha256:1", Some(&json!({})), &objects),
            of_content("sha256:1", Some(&config), &[]),
        ] {
            assert_ne!(other, digest);
        }
    }

    #[test]
    fn digest_does_not_depend_on_certificate_issuer() {
        let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";
        let csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "demo.v1.0.0"},
            "spec": {"installModes": [{"type": "AllNamespaces", "supported": true}],
                "webhookdefinitions": [{"type": "ValidatingAdmissionWebhook", "admissionReviewVersions": ["v1"],
                    "deploymentName": "demo", "generateName": "v.demo.io", "sideEffects": "None",
                    "webhookPath": "/", "containerPort": 443}],
                "install": {"strategy": "deployment", "spec": {"deployments": [{"name": "demo", "spec": {
                    "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "m", "image": "i"}]}}}}]}}}});
        let files = BTreeMap::from([
            ("metadata/annotations.yaml".to_owned(), annotations.into()),
            ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
        ]);
        let bundle = BundleContent::load(&files).unwrap();
        let of = |certificates| {
            let options = RenderOptions { install_namespace: "ns", certificates, ..RenderOptions::default() };
            let rendered = render(&bundle, &options).unwrap();
            (digest(&bundle, &options, &rendered, "sha256:1").unwrap(), rendered)
        };
        let all =
            [Certificates::Builtin, Certificates::CertManager, Certificates::OpenshiftServiceCa].map(of);
        assert!(all[0].0 == all[1].0 && all[0].0 == all[2].0);
        assert!(all[0].1 != all[1].1 && all[0].1 != all[2].1);
    }
}
