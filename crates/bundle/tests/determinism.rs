//! Determinism: the same bundle and options yield the same result, regardless of file names.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use olm_bundle::{BundleContent, Certificates, RenderError, RenderOptions, render, validate};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

const NAMES: [&str; 6] = ["a", "b", "c.example.com", "d.example.com", "", "A_"];
const MODES: [&str; 4] = ["AllNamespaces", "OwnNamespace", "SingleNamespace", "MultiNamespace"];

fn name() -> impl Strategy<Value = &'static str> {
    select(NAMES.to_vec())
}

/// Generates mostly valid names, so that many bundles can be rendered.
fn good_name() -> impl Strategy<Value = &'static str> {
    prop_oneof![12 => select(NAMES[..4].to_vec()), 1 => name()]
}

fn deployment() -> impl Strategy<Value = Value> {
    (good_name(), vec((name(), name()), 0..3)).prop_map(|(name, env)| {
        let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        json!({"name": name, "spec": {"template": {"spec": {"containers": [{"name": "c", "env": env}]}}}})
    })
}

fn permission() -> impl Strategy<Value = Value> {
    (name(), vec(name(), 0..3)).prop_map(|(account, resources)| {
        json!({"serviceAccountName": account, "rules": [{"verbs": ["get"], "resources": resources}]})
    })
}

fn webhook() -> impl Strategy<Value = Value> {
    let kinds = ["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", "ConversionWebhook"];
    (select(kinds.to_vec()), good_name(), good_name(), vec(name(), 0..2), select(vec!["x", "*"])).prop_map(
        |(kind, name, deployment, crds, group)| {
            json!({
                "type": kind, "generateName": name, "deploymentName": deployment, "conversionCRDs": crds,
                "containerPort": 443, "rules": [{"apiGroups": [group]}],
            })
        },
    )
}

fn service_version() -> impl Strategy<Value = Value> {
    let lists = (
        vec(deployment(), 0..4),
        vec(permission(), 0..3),
        vec(permission(), 0..3),
        vec(webhook(), 0..3),
        vec(name(), 0..2),
    );
    (lists, any::<[bool; 4]>()).prop_map(
        |((deployments, permissions, cluster, webhooks, owned), supported)| {
            let modes = MODES.iter().zip(supported);
            let modes: Vec<Value> =
                modes.map(|(mode, supported)| json!({"type": mode, "supported": supported})).collect();
            let owned: Vec<Value> = owned.iter().map(|name| json!({"name": name})).collect();
            json!({
                "kind": "ClusterServiceVersion",
                "metadata": {"name": "op.v1", "annotations": {"k": "v"}},
                "spec": {
                    "installModes": modes,
                    "install": {"spec": {
                        "deployments": deployments, "permissions": permissions, "clusterPermissions": cluster,
                    }},
                    "webhookdefinitions": webhooks,
                    "customresourcedefinitions": {"owned": owned},
                },
            })
        },
    )
}

/// Generates CRDs, and objects of allowed and other kinds.
fn manifest() -> impl Strategy<Value = Value> {
    let kinds = ["CustomResourceDefinition", "ConfigMap", "ClusterRole", "Pod"];
    (select(kinds.to_vec()), good_name())
        .prop_map(|(kind, name)| json!({"kind": kind, "metadata": {"name": name}, "spec": {}}))
}

fn config() -> impl Strategy<Value = Value> {
    let namespaces = ["ns", "other", "", "Bad_"];
    let deployments = (vec((name(), name()), 0..3), any::<bool>()).prop_map(|(env, erase)| {
        let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let mut config = json!({"env": env, "annotations": {"k": "config", "l": "config"}});
        if erase {
            config["affinity"] = json!({});
        }
        config
    });
    let fields = (
        of(select(namespaces.to_vec())),
        of(vec(select(namespaces.to_vec()), 0..3)),
        of(deployments),
        of(Just(json!({"unknown": 1}))),
    );
    fields.prop_map(|(one, several, deployments, unknown)| {
        let mut config = json!({});
        for (field, value) in [
            ("watchNamespace", one.map(Value::from)),
            ("watchNamespaces", several.map(Value::from)),
            ("deploymentConfig", deployments),
            ("extra", unknown),
        ] {
            if let Some(value) = value {
                config[field] = value;
            }
        }
        config
    })
}

fn certificates() -> impl Strategy<Value = Certificates> {
    let providers = [
        Certificates::Builtin,
        Certificates::CertManager,
        Certificates::OpenshiftServiceCa,
        Certificates::None,
    ];
    select(providers.to_vec())
}

/// Files of a bundle, with its manifests named by `names`.
fn files(csv: &Value, manifests: &[Value], names: &[usize]) -> BTreeMap<String, Vec<u8>> {
    let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: op}";
    let mut files = BTreeMap::from([("metadata/annotations.yaml".to_owned(), annotations.into())]);
    for (manifest, number) in std::iter::once(csv).chain(manifests).zip(names) {
        files.insert(format!("manifests/{number}.yaml"), manifest.to_string().into_bytes());
    }
    files
}

proptest! {
    #[test]
    fn rendering_is_deterministic_for_all_options(
        csv in service_version(),
        manifests in vec(manifest(), 0..4),
        config in of(config()),
        certificates in certificates(),
        gates in any::<[bool; 4]>(),
        namespace in select(vec!["ns", "other", ""]),
    ) {
        let files = files(&csv, &manifests, &[0, 1, 2, 3, 4]);
        let [single_own_namespace, deployment_config, multi_watch_namespaces, aggregate_api_roles] = gates;
        let options = RenderOptions {
            install_namespace: namespace,
            config: config.as_ref(),
            certificates,
            single_own_namespace,
            deployment_config,
            multi_watch_namespaces,
            owned_api_services: true,
            selected_namespaces: None,
            operator_condition: false,
            aggregate_api_roles,
        };
        let rendered = render(&BundleContent::load(&files).unwrap(), &options);
        prop_assert_eq!(&rendered, &render(&BundleContent::load(&files).unwrap(), &options));
        match rendered {
            Err(error) => prop_assert!(!error.to_string().is_empty()),
            Ok(objects) => for object in objects {
                let text = object.to_string();
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
            },
        }
    }

    #[test]
    fn fault_order_does_not_depend_on_file_names(
        csv in service_version(),
        manifests in vec(manifest(), 0..5),
        names in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let texts = |names: &[usize]| -> Vec<String> {
            let bundle = BundleContent::load(&files(&csv, &manifests, names)).unwrap();
            validate(&bundle).into_iter().map(|fault| fault.text).collect()
        };
        let (sorted, shuffled) = (texts(&[0, 1, 2, 3, 4, 5]), texts(&names));
        // Objects of other kinds are last, in the order of the files.
        let split = |texts: &[String]| -> (Vec<String>, Vec<String>) {
            texts.iter().cloned().partition(|text| !text.starts_with("unsupported resource "))
        };
        let ((first, mut kinds), (shuffled_first, mut shuffled_kinds)) = (split(&sorted), split(&shuffled));
        prop_assert_eq!(&first, &shuffled_first);
        prop_assert!(sorted.starts_with(&first) && shuffled.starts_with(&first));
        kinds.sort();
        shuffled_kinds.sort();
        prop_assert_eq!(kinds, shuffled_kinds);
    }
}

#[test]
fn generated_bundles_include_valid_and_invalid_ones() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut objects, mut invalid) = (0, 0);
    for _ in 0..400 {
        let csv = service_version().new_tree(&mut runner).unwrap().current();
        let options = RenderOptions {
            install_namespace: "ns",
            config: None,
            certificates: Certificates::Builtin,
            single_own_namespace: false,
            deployment_config: false,
            multi_watch_namespaces: false,
            owned_api_services: true,
            selected_namespaces: None,
            operator_condition: false,
            aggregate_api_roles: false,
        };
        match render(&BundleContent::load(&files(&csv, &[], &[0])).unwrap(), &options) {
            Ok(rendered) => objects += rendered.len(),
            Err(RenderError::Invalid(_)) => invalid += 1,
            Err(_) => {}
        }
    }
    assert!(objects > 50 && invalid > 20, "{objects} objects, {invalid} invalid");
}
