//! Install check of APIServices against the CRDs of the bundle. The API server registers the versions of CRDs as
//! APIServices itself, so one of both would never be served.

use std::collections::BTreeSet;

use olm_version::quote;
use serde_json::Value;

use super::{CRD, text};
use crate::api_services;
use crate::bundle::{group_of, name_of};
use crate::pointer::list;

/// Reports APIServices whose group and version a CRD serves, too.
pub(super) fn served_twice(objects: &[Value]) -> Vec<String> {
    let is_api_service =
        |object: &&Value| group_of(object) == api_services::GROUP && text(object, "/kind") == "APIService";
    let aggregated: BTreeSet<&str> = objects.iter().filter(is_api_service).map(name_of).collect();
    if aggregated.is_empty() {
        return Vec::new();
    }
    let crds = objects.iter().filter(|object| text(object, "/kind") == CRD);
    let served = crds.flat_map(|crd| {
        let versions = list(crd, "/spec/versions").iter();
        versions.filter(|version| version["served"] == true).map(move |version| {
            let name = format!("{}.{}", text(version, "/name"), text(crd, "/spec/group"));
            (name, name_of(crd))
        })
    });
    let twice = served.filter(|(name, _)| aggregated.contains(name.as_str()));
    twice
        .map(|(name, crd)| {
            format!(
                "APIService {}: {CRD} {} serves the same group and version: serve the kinds by one of them, or in \
                 different versions",
                quote(&name),
                quote(crd)
            )
        })
        .collect()
}
