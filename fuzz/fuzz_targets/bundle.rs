//! Fuzzes bundles: any ClusterServiceVersion and properties in a valid package yield objects or an error.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use olm_bundle::{BundleContent, Certificates, RenderOptions, render};

const ANNOTATIONS: &str = "annotations:\n  operators.operatorframework.io.bundle.package.v1: demo\n";

fuzz_target!(|input: (&[u8], &[u8])| {
    let files = BTreeMap::from([
        ("metadata/annotations.yaml".to_owned(), ANNOTATIONS.into()),
        ("manifests/csv.yaml".to_owned(), input.0.to_vec()),
        ("metadata/properties.yaml".to_owned(), input.1.to_vec()),
    ]);
    if let Ok(bundle) = BundleContent::load(&files) {
        let options = RenderOptions {
            install_namespace: "demo",
            config: None,
            certificates: Certificates::CertManager,
            single_own_namespace: true,
            deployment_config: true,
            multi_watch_namespaces: false,
            owned_api_services: true,
            selected_namespaces: None,
            operator_condition: false,
            aggregate_api_roles: true,
        };
        let _ = render(&bundle, &options);
    }
});
