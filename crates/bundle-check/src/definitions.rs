//! CustomResourceDefinitions: those that the ClusterServiceVersion owns and those that the bundle ships
//! (docs/design/additions.md#bundle-validation).
//!
//! The renderer checks that names are unique and owned CRDs exist. The install checks test that a name fits its
//! group.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::pointer::text;
use olm_version::quote;
use serde_json::Value;

use crate::content::{Content, Object};
use crate::findings::Findings;
use crate::rule;

/// Checks every shipped and every owned CRD.
pub(crate) fn check(content: &Content, findings: &mut Findings) {
    let mut names: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for definition in content.definitions() {
        let (group, kind) = group_kind(definition);
        match names.get(&(group, kind)) {
            Some(other) if *other != definition.name() => {
                let what = format!("{kind} of group {} is defined by {} already", quote(group), quote(other));
                findings.add(&rule::CRD_3, definition.at("spec.names.kind"), what);
            }
            _ => {
                names.insert((group, kind), definition.name());
            }
        }
        if definition.api_version() == "apiextensions.k8s.io/v1" {
            shape(definition, findings);
        }
    }
    let Some(csv) = content.service_version() else { return };
    let mut owned_kinds = BTreeSet::new();
    let mut owned_names = BTreeSet::new();
    for api in csv.list("/spec/customresourcedefinitions/owned") {
        let name = text(api, "/name");
        owned_names.insert(name);
        owned_kinds.insert((name.split_once('.').map_or("", |(_, group)| group), text(api, "/kind")));
    }
    for definition in content.definitions() {
        // Other versions of an owned kind need no entry.
        if !owned_names.contains(definition.name()) && !owned_kinds.contains(&group_kind(definition)) {
            let what = "not in spec.customresourcedefinitions.owned of the ClusterServiceVersion: add it there, or remove the \
                        manifest";
            findings.add(&rule::CRD_4, definition.place(), what);
        }
    }
    owned(csv, content, findings);
}

fn group_kind(definition: &Object) -> (&str, &str) {
    (definition.text("/spec/group"), definition.text("/spec/names/kind"))
}

/// Version names of a CRD. CRDs of v1beta1 may have a single version outside of the list.
fn versions(definition: &Object) -> Vec<&str> {
    let listed = definition.list("/spec/versions").iter().map(|version| text(version, "/name"));
    listed.chain([definition.text("/spec/version")]).filter(|name| !name.is_empty()).collect()
}

fn owned(csv: &Object, content: &Content, findings: &mut Findings) {
    let by_name: BTreeMap<&str, &Object> =
        content.definitions().map(|definition| (definition.name(), definition)).collect();
    for (index, api) in csv.list("/spec/customresourcedefinitions/owned").iter().enumerate() {
        let place = csv.at(&format!("spec.customresourcedefinitions.owned.{index}"));
        let (name, version, kind) = (text(api, "/name"), text(api, "/version"), text(api, "/kind"));
        if !name.contains('.') {
            let what =
                format!("{}: expected the name of a CustomResourceDefinition, <plural>.<group>", quote(name));
            findings.add(&rule::CRD_2, place.clone().at("name"), what);
        }
        let Some(definition) = by_name.get(name) else { continue };
        let versions = versions(definition);
        if !versions.contains(&version) {
            let what = format!("{name} has no version {}; it has: {}", quote(version), versions.join(", "));
            findings.add(&rule::CRD_2, place.clone().at("version"), what);
        }
        let defined = definition.text("/spec/names/kind");
        if kind != defined {
            let what = format!("{name} defines the kind {}, not {}", quote(defined), quote(kind));
            findings.add(&rule::CRD_2, place.at("kind"), what);
        }
    }
}

/// Checks requirements of the API server for every CRD.
fn shape(definition: &Object, findings: &mut Findings) {
    let scope = definition.text("/spec/scope");
    if !["Cluster", "Namespaced"].contains(&scope) {
        let what = format!("{}: allowed are Cluster and Namespaced", quote(scope));
        findings.add(&rule::CRD_5, definition.at("spec.scope"), what);
    }
    let versions = definition.list("/spec/versions");
    let stored = versions.iter().filter(|version| version.get("storage") == Some(&Value::Bool(true))).count();
    if stored != 1 {
        let what = format!("{stored} versions have storage: true, exactly one must");
        findings.add(&rule::CRD_5, definition.at("spec.versions"), what);
    }
    for (index, version) in versions.iter().enumerate() {
        if !version.pointer("/schema/openAPIV3Schema").is_some_and(Value::is_object) {
            let what = "every version needs schema.openAPIV3Schema";
            findings.add(&rule::CRD_5, definition.at(&format!("spec.versions.{index}")), what);
        }
    }
}
