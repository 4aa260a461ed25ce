//! Demands of a bundle on the cluster, and their evaluation (feature gate `ClusterConstraints`).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use olm_fbc::{PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA, Property};
use olm_version::Version;
use serde::Deserialize;
use serde_json::Value;

use crate::constraint::Gvk;

/// Kubernetes version and served kinds of the cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterFacts {
    kubernetes: Option<Version>,
    served: BTreeSet<Gvk>,
}

impl ClusterFacts {
    /// Creates the facts from the API server's `gitVersion` (such as `v1.31.4+k3s1`) and the served kinds. A
    /// pre-release part of the version is ignored: vendors put their build there. With an unreadable version every
    /// `minKubeVersion` is met.
    pub fn new(git_version: &str, served: BTreeSet<Gvk>) -> Self {
        let release = git_version.split(['-', '+']).next().unwrap_or_default();
        Self { kubernetes: Version::parse_tolerant(release).ok(), served }
    }
}

/// `minKubeVersion` and `nativeAPIs` of a bundle. The default has no demands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClusterDemands {
    /// `None` if absent or unreadable.
    min_kube_version: Option<Version>,
    native_apis: Vec<Gvk>,
}

/// Used fields of a ClusterServiceVersion's spec. A field of another type is treated as absent.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    min_kube_version: Value,
    #[serde(rename = "nativeAPIs")]
    native_apis: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Manifest {
    kind: String,
    spec: Metadata,
}

#[derive(Deserialize)]
struct BundleObject {
    data: String,
}

impl ClusterDemands {
    /// Reads the demands from the metadata of the ClusterServiceVersion, or else from the object itself.
    pub(crate) fn of(properties: &[Property]) -> Self {
        let metadata = properties.iter().find(|property| property.kind == PROPERTY_CSV_METADATA);
        let metadata = match metadata {
            Some(property) => property.parse().ok(),
            None => {
                let mut objects =
                    properties.iter().filter(|property| property.kind == PROPERTY_BUNDLE_OBJECT);
                objects.find_map(csv_spec)
            }
        };
        metadata.map(Self::read).unwrap_or_default()
    }

    fn read(metadata: Metadata) -> Self {
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let gvk = |value: &Value| Gvk {
            group: text(value, "group"),
            version: text(value, "version"),
            kind: text(value, "kind"),
        };
        let min_kube_version = metadata.min_kube_version.as_str();
        Self {
            min_kube_version: min_kube_version.and_then(|text| Version::parse_tolerant(text).ok()),
            native_apis: metadata.native_apis.as_array().into_iter().flatten().map(gvk).collect(),
        }
    }

    /// Text of the first demand that the cluster does not meet.
    pub(crate) fn unmet(&self, facts: &ClusterFacts) -> Option<String> {
        if let (Some(least), Some(server)) = (&self.min_kube_version, &facts.kubernetes)
            && least > server
        {
            return Some(format!(
                "CSV version requirement not met: minKubeVersion ({least}) > server version ({server})"
            ));
        }
        let missing = self.native_apis.iter().find(|gvk| !facts.served.contains(gvk));
        missing.map(|gvk| format!("the cluster does not serve the native API {gvk}"))
    }
}

/// Spec of the ClusterServiceVersion, if this object of a bundle is one.
fn csv_spec(property: &Property) -> Option<Metadata> {
    let object: BundleObject = property.parse().ok()?;
    let text = BASE64.decode(object.data).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    (manifest.kind == "ClusterServiceVersion").then_some(manifest.spec)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn property(kind: &str, value: &Value) -> Property {
        Property { kind: kind.to_owned(), value: serde_json::value::to_raw_value(value).unwrap() }
    }

    fn facts(version: &str, kinds: &[&str]) -> ClusterFacts {
        let gvk = |kind: &&str| Gvk { group: "g".into(), version: "v1".into(), kind: (*kind).to_owned() };
        ClusterFacts::new(version, kinds.iter().map(gvk).collect())
    }

    fn metadata(value: &Value) -> ClusterDemands {
        ClusterDemands::of(&[property(PROPERTY_CSV_METADATA, value)])
    }

    #[test]
    fn older_server_does_not_meet_min_kube_version() {
        let older = |least: &str, server: &str| {
            metadata(&json!({"minKubeVersion": least})).unmet(&facts(server, &[])).is_some()
        };
        for (least, server, refused) in [
            ("1.30.0", "v1.29.3", true),
            ("1.30", "v1.30.0", false),
            ("v1.30.1", "v1.30.1-eks-4f4795d", false),
            ("1.31.4", "v1.31.4+k3s1", false),
            ("soon", "v1.29.3", false),
            ("1.30.0", "unknown", false),
            ("", "v1.29.3", false),
        ] {
            assert_eq!(older(least, server), refused, "{least} on {server}");
        }
        assert_eq!(
            metadata(&json!({"minKubeVersion": "1.30.0"})).unmet(&facts("v1.29.3+k3s1", &[])).unwrap(),
            "CSV version requirement not met: minKubeVersion (1.30.0) > server version (1.29.3)"
        );
        assert_eq!(metadata(&json!({"minKubeVersion": 1})), ClusterDemands::default());
    }

    #[test]
    fn unserved_native_api_is_unmet() {
        let demands =
            metadata(&json!({"nativeAPIs": [{"group": "g", "version": "v1", "kind": "A"}, {"kind": "B"}]}));
        assert_eq!(
            demands.unmet(&facts("v1.30.0", &["A"])).unwrap(),
            format!(
                "the cluster does not serve the native API {}",
                Gvk { group: String::new(), version: String::new(), kind: "B".to_owned() }
            )
        );
        let one = metadata(&json!({"nativeAPIs": [{"group": "g", "version": "v1", "kind": "A"}]}));
        assert_eq!(one.unmet(&facts("v1.30.0", &["A", "C"])), None);
        assert!(one.unmet(&facts("v1.30.0", &["C"])).is_some());
    }

    #[test]
    fn demands_are_read_from_metadata_or_bundle_object() {
        let object = |manifest: Value| {
            property(PROPERTY_BUNDLE_OBJECT, &json!({"data": BASE64.encode(manifest.to_string())}))
        };
        let csv = object(
            json!({"kind": "ClusterServiceVersion", "metadata": {}, "spec": {"minKubeVersion": "1.30.0", "install": {}}}),
        );
        let other = object(json!({"kind": "Service", "spec": {"minKubeVersion": "9.0.0"}}));
        let broken = property(PROPERTY_BUNDLE_OBJECT, &json!({"data": "%"}));
        let demands = ClusterDemands::of(&[broken, other, csv.clone()]);
        assert_eq!(demands, metadata(&json!({"minKubeVersion": "1.30.0"})));
        let both = ClusterDemands::of(&[csv, property(PROPERTY_CSV_METADATA, &json!({}))]);
        assert_eq!(both, ClusterDemands::default(), "metadata takes precedence over objects");
    }
}
