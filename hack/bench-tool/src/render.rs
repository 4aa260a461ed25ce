//! Cases of rendering: from the files of a bundle to its objects.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use olm_bundle::{BundleContent, Certificates, RenderOptions, render};
use serde_json::{Map, Value, json};

use crate::RenderArguments;
use crate::content::{Files, Numbers};
use crate::process::memory;
use crate::table::{Table, Target, Unit};

/// Number of rounds. The fastest is compared, because other load only adds time. The median is printed.
const ROUNDS: usize = 31;
/// Real bundles of about the size of the target.
const REAL: [&str; 2] = ["pulp-operator", "vault-config-operator"];
/// Figures of the reference for a bundle of this size: milliseconds and megabytes (performance.md).
const REFERENCE: (f64, f64) = (140.0, 43.0);

/// Measures all cases.
pub(crate) fn measure(arguments: &RenderArguments) -> Result<Table> {
    let mut table = Table::default();
    let generated = generate(arguments.seed)?;
    bench(&mut table, "generated", &generated, None)?;
    for name in REAL {
        match &arguments.field_data {
            Some(data) => {
                let folder = data.join("bundles").join(name);
                let (files, config) = bundle_of(&folder).with_context(|| folder.display().to_string())?;
                bench(&mut table, name, &files, config.as_ref())?;
            }
            None => table.remarks.push(format!("{name} is skipped: OLM_FIELD_DATA is not set")),
        }
    }
    Ok(table)
}

/// Files of a real bundle, and the configuration of its case.
fn bundle_of(folder: &Path) -> Result<(Files, Option<Value>)> {
    let mut files = olm_image::read_folder(folder)?;
    let case: Value = serde_json::from_slice(files.get("case.json").context("no case.json")?)?;
    files.retain(|path, _| path.starts_with("manifests/") || path.starts_with("metadata/"));
    Ok((files, case.get("config").filter(|config| !config.is_null()).cloned()))
}

fn bench(table: &mut Table, name: &str, files: &Files, config: Option<&Value>) -> Result<()> {
    let bytes: usize = files.values().map(Vec::len).sum();
    // Resets the peak memory of earlier cases.
    std::fs::write("/proc/self/clear_refs", "5").context("/proc/self/clear_refs")?;
    let before = memory(std::process::id(), "VmRSS")?;
    let bundle = BundleContent::load(files).with_context(|| name.to_owned())?;
    let options = RenderOptions {
        install_namespace: "install-ns",
        config,
        certificates: Certificates::CertManager,
        single_own_namespace: true,
        deployment_config: true,
        multi_watch_namespaces: false,
        owned_api_services: false,
        selected_namespaces: None,
        operator_condition: false,
        aggregate_api_roles: false,
    };
    let objects = render(&bundle, &options).with_context(|| name.to_owned())?.len();
    drop(bundle);
    let (both, usual) = fastest(|| {
        let bundle = BundleContent::load(black_box(files))?;
        Ok(black_box(render(&bundle, &options)?).len())
    })?;
    let peak = memory(std::process::id(), "VmHWM")?;
    let bundle = BundleContent::load(files)?;
    let (once_read, _) = fastest(|| Ok(black_box(render(black_box(&bundle), &options)?).len()))?;

    let size = bytes as f64 / 1e6;
    let note = format!("{size:.1} MB in {} files, {objects} objects; median {usual:.1} ms", files.len());
    let case = |what: &str| format!("{name}: {what}");
    let (time, space) = REFERENCE;
    table.add(case("read and render"), both, Unit::Milliseconds, time, Target::Limit(20.0), note);
    table.add(case("render, once read"), once_read, Unit::Milliseconds, None, Target::Limit(5.0), "");
    let grown = (peak - before).max(0.0);
    let note = format!("growth of the process over {ROUNDS} rounds, beyond what earlier cases left free");
    table.add(case("memory"), grown, Unit::Megabytes, space, Target::AtMost(1.0), note);
    Ok(())
}

/// Milliseconds of the fastest round and of the median.
fn fastest(mut round: impl FnMut() -> Result<usize>) -> Result<(f64, f64)> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        ensure!(round()? > 0, "nothing was rendered");
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[0], times[ROUNDS / 2]))
}

const CRDS: usize = 12;
/// Size of one CRD in bytes. The rest of 1.3 MB is in the ClusterServiceVersion.
const CRD_SIZE: usize = 68_000;
const DESCRIPTION_SIZE: usize = 120_000;

/// Generates a bundle of 1.3 MB that resembles real operators: mostly schemas with descriptions.
fn generate(seed: u64) -> Result<Files> {
    let mut numbers = Numbers::new(seed);
    let mut files = Files::new();
    let kinds: Vec<String> = (0..CRDS).map(|number| format!("Kind{number}")).collect();
    let plural = |kind: &str| format!("{}s", kind.to_lowercase());
    for kind in &kinds {
        let schema = schema(&mut numbers, CRD_SIZE);
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.bench.example", plural(kind))},
            "spec": {
                "group": "bench.example",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural(kind), "singular": kind.to_lowercase()},
                "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        files.insert(format!("manifests/{}.yaml", plural(kind)), yaml(&crd)?);
    }
    let csv = service_version(&mut numbers, &kinds, &plural);
    files.insert("manifests/operator.clusterserviceversion.yaml".to_owned(), yaml(&csv)?);
    let annotations =
        json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": "bench-operator"}});
    files.insert("metadata/annotations.yaml".to_owned(), yaml(&annotations)?);
    Ok(files)
}

/// Generates a schema of about this number of bytes of YAML.
fn schema(numbers: &mut Numbers, bytes: usize) -> Value {
    let mut sections = Map::new();
    let mut written = 0;
    while written < bytes {
        let mut properties = Map::new();
        for number in 0..8 {
            let description = lines(numbers, 14);
            written += description.len() + 90;
            let kind = ["string", "integer", "boolean"][number % 3];
            properties.insert(
                format!("{}{number}", numbers.word()),
                json!({"description": description, "type": kind}),
            );
        }
        let list = json!({"type": "array", "items": {"type": "object", "properties": properties, "required": ["none"]}});
        sections.insert(format!("{}{}", numbers.word(), sections.len()), list);
    }
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": sections}, "status": {"type": "object"}}})
}

fn service_version(numbers: &mut Numbers, kinds: &[String], plural: &dyn Fn(&str) -> String) -> Value {
    let rules: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"apiGroups": ["bench.example"], "resources": [plural(kind)], "verbs": ["get", "list", "watch", "patch"]}))
        .collect();
    let examples: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"apiVersion": "bench.example/v1", "kind": kind, "metadata": {"name": "sample"}, "spec": {"note": numbers.text(200)}}))
        .collect();
    let webhook = |kind: &str, name: &str, path: &str| {
        json!({
            "type": kind, "generateName": name, "deploymentName": "controller", "containerPort": 443, "targetPort": 9443,
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "webhookPath": path,
            "rules": [{"apiGroups": ["bench.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["*"]}],
        })
    };
    let container = json!({
        "name": "manager", "image": format!("registry.example/bench/controller@{}", numbers.digest()),
        "args": ["--leader-elect"], "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}},
        "env": (0..20).map(|number| json!({"name": format!("SETTING_{number}"), "value": numbers.text(3)})).collect::<Vec<_>>(),
    });
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": "bench-operator.v1.0.0", "annotations": {"alm-examples": Value::from(examples).to_string()}},
        "spec": {
            "displayName": "Bench", "version": "1.0.0", "description": lines(numbers, DESCRIPTION_SIZE / 8),
            "icon": [{"mediatype": "image/png", "base64data": "QUJD".repeat(30_000 / 4)}],
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "customresourcedefinitions": {"owned": kinds.iter().map(|kind| json!({
                "kind": kind, "name": format!("{}.bench.example", plural(kind)), "version": "v1", "description": lines(numbers, 30),
                "specDescriptors": (0..20).map(|_| json!({"path": numbers.word(), "description": numbers.text(8)})).collect::<Vec<_>>(),
            })).collect::<Vec<_>>()},
            "install": {"strategy": "deployment", "spec": {
                "clusterPermissions": [{"serviceAccountName": "controller", "rules": rules}],
                "deployments": [{"name": "controller", "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": "bench"}},
                    "template": {"metadata": {"labels": {"app": "bench"}}, "spec": {"serviceAccountName": "controller", "containers": [container]}},
                }}],
            }},
            "webhookdefinitions": [
                webhook("ValidatingAdmissionWebhook", "check.bench.example", "/check"),
                webhook("MutatingAdmissionWebhook", "fill.bench.example", "/fill"),
            ],
        },
    })
}

/// Text in lines of ten words. YAML has them as a literal block, like the descriptions of manifest generators.
fn lines(numbers: &mut Numbers, words: usize) -> String {
    let text = numbers.text(words);
    let words: Vec<&str> = text.split(' ').collect();
    words.chunks(10).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n")
}

fn yaml(value: &Value) -> Result<Vec<u8>> {
    Ok(serde_saphyr::to_string(value)?.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_bundle_has_the_target_size_and_renders() {
        let files = generate(1).unwrap();
        assert_eq!(files, generate(1).unwrap());
        let bytes: usize = files.values().map(Vec::len).sum();
        assert!((1_200_000..1_450_000).contains(&bytes), "{bytes}");
        let mut table = Table::default();
        bench(&mut table, "generated", &files, None).unwrap();
        assert_eq!(table.rows.len(), 3);
    }

    #[test]
    fn yaml_output_is_parsed_to_the_same_value() {
        let text = lines(&mut Numbers::new(1), 40);
        let value = json!({"a": [{"b": 1, "c": ["x", {"d": {}}]}, "two words"], "text": text, "e": []});
        assert_eq!(olm_yaml::from_slice(&yaml(&value).unwrap()).unwrap(), value);
    }
}
