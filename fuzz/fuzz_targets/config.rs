//! Fuzzes inline configuration: any document, with bundles of every combination of install modes, is accepted or
//! yields the same error each time.
//!
//! The first byte chooses install modes and gates, the rest is the configuration.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use olm_bundle::{BundleContent, Certificates, RenderError, RenderOptions, config_schema, config_warnings, render};
use serde_json::json;

const ANNOTATIONS: &str = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";
const MODES: [&str; 4] = ["AllNamespaces", "OwnNamespace", "SingleNamespace", "MultiNamespace"];

fuzz_target!(|input: &[u8]| {
    let Some((choice, text)) = input.split_first() else { return };
    let Ok(config) = olm_yaml::from_slice(text) else { return };
    let bit = |number: usize| choice >> number & 1 == 1;
    let modes =
        MODES.iter().enumerate().map(|(number, mode)| json!({"type": mode, "supported": bit(number)}));
    let container = json!({"name": "c", "env": [{"name": "A", "value": "b"}]});
    let deployment = json!({"name": "d", "spec": {"template": {"spec": {"containers": [container]}}}});
    let csv = json!({
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "a.v1"},
        "spec": {"installModes": modes.collect::<Vec<_>>(), "install": {"spec": {"deployments": [deployment]}}},
    });
    let files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), ANNOTATIONS.into()),
        ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
    ]);
    let bundle = BundleContent::load(&files).expect("the bundle is valid");
    let options = RenderOptions {
        install_namespace: "ns",
        config: Some(&config),
        certificates: Certificates::None,
        single_own_namespace: bit(4),
        deployment_config: bit(5),
        multi_watch_namespaces: bit(6),
        owned_api_services: true,
        selected_namespaces: None,
        operator_condition: false,
        aggregate_api_roles: true,
    };
    let rendered = render(&bundle, &options);
    assert_eq!(rendered, render(&bundle, &options));
    if let Err(error) = rendered {
        assert!(!error.to_string().is_empty());
        assert!(!matches!(error, RenderError::Invalid(_) | RenderError::Generate(_)), "{error}");
    }
    let _ = (config_schema(&bundle, bit(5), bit(6)), config_warnings(&bundle, &config));
});
