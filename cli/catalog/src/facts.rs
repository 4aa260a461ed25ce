//! Fields of a bundle's ClusterServiceVersion that pages show.

use olm_fbc::{Bundle, PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA};
use serde_json::Value;

use crate::bundle_details::{bundle_objects, values};

/// Highest number of items of a list in the catalog that a page shows.
const ITEMS: usize = 50;
/// Highest number of characters of a text about an API.
const API_TEXT: usize = 1000;

/// Facts of a bundle. Empty if the catalog does not contain them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BundleFacts {
    /// Name for people.
    pub display_name: String,
    /// Name of the provider.
    pub provider: String,
    /// One sentence.
    pub summary: String,
    /// Markdown.
    pub description: String,
    /// Words that describe the operator.
    pub keywords: Vec<String>,
    /// Categories that the author chose.
    pub categories: Vec<String>,
    /// Capability level from 1 to 5.
    pub capability: Option<u8>,
    /// Maturity in a word.
    pub maturity: String,
    /// Name and address.
    pub links: Vec<(String, String)>,
    /// Name and mail address.
    pub maintainers: Vec<(String, String)>,
    /// Address of the source code.
    pub repository: String,
    /// Image of the operator.
    pub container_image: String,
    /// Who supports the operator.
    pub support: String,
    /// Time at which the bundle was made.
    pub created_at: String,
    /// Lowest version of Kubernetes.
    pub min_kube_version: String,
    /// APIs that the bundle owns.
    pub owned: Vec<OwnedApi>,
}

/// API that a bundle owns.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OwnedApi {
    /// Name of the CustomResourceDefinition.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// Version.
    pub version: String,
    /// Name for people.
    pub display_name: String,
    /// Text about the API.
    pub description: String,
}

/// Levels of the annotation `capabilities`, lowest first.
pub const CAPABILITIES: [&str; 5] =
    ["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];

impl BundleFacts {
    /// Reads `olm.csv.metadata`, else the ClusterServiceVersion among `olm.bundle.object`.
    pub fn of(bundle: &Bundle) -> Self {
        if let Some(metadata) = values(bundle, PROPERTY_CSV_METADATA).next() {
            return Self::new(&metadata, &metadata["crdDescriptions"], &metadata["annotations"]);
        }
        let has_objects = bundle.properties.iter().any(|property| property.kind == PROPERTY_BUNDLE_OBJECT);
        let csv = has_objects.then(|| {
            let mut objects = bundle_objects(bundle);
            objects.find(|object| object["kind"] == "ClusterServiceVersion")
        });
        let of_csv = |csv: Value| {
            let spec = &csv["spec"];
            Self::new(spec, &spec["customresourcedefinitions"], &csv["metadata"]["annotations"])
        };
        csv.flatten().map(of_csv).unwrap_or_default()
    }

    fn new(fields: &Value, crds: &Value, annotations: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let short = |value: &Value| text(value).chars().take(API_TEXT).collect::<String>();
        let pairs = |list: &Value, second: &str| {
            items(list).map(|item| (text(&item["name"]), text(&item[second]))).collect::<Vec<_>>()
        };
        let categories = annotations["categories"].as_str().unwrap_or_default();
        Self {
            display_name: text(&fields["displayName"]),
            provider: text(&fields["provider"]["name"]),
            summary: text(&annotations["description"]),
            description: text(&fields["description"]),
            keywords: items(&fields["keywords"]).map(text).filter(|word| !word.is_empty()).collect(),
            categories: split(categories).collect(),
            capability: level(annotations["capabilities"].as_str().unwrap_or_default()),
            maturity: text(&fields["maturity"]),
            links: pairs(&fields["links"], "url"),
            maintainers: pairs(&fields["maintainers"], "email"),
            repository: text(&annotations["repository"]),
            container_image: text(&annotations["containerImage"]),
            support: text(&annotations["support"]),
            created_at: text(&annotations["createdAt"]),
            min_kube_version: text(&fields["minKubeVersion"]),
            owned: items(&crds["owned"])
                .map(|api| OwnedApi {
                    name: short(&api["name"]),
                    kind: short(&api["kind"]),
                    version: short(&api["version"]),
                    display_name: short(&api["displayName"]),
                    description: short(&api["description"]),
                })
                .collect(),
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten().take(ITEMS)
}

fn split(list: &str) -> impl Iterator<Item = String> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty()).take(ITEMS).map(str::to_owned)
}

/// Capability level, whatever its case.
fn level(text: &str) -> Option<u8> {
    let index = CAPABILITIES.iter().position(|name| name.eq_ignore_ascii_case(text.trim()))?;
    u8::try_from(index + 1).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_of_wrong_type_are_empty() {
        let odd = json!({"displayName": 3, "keywords": "x", "provider": [], "links": [1, {"name": "n"}]});
        let facts = BundleFacts::new(&odd, &json!("x"), &json!(7));
        assert_eq!(
            facts,
            BundleFacts {
                links: vec![(String::new(), String::new()), ("n".into(), String::new())],
                ..BundleFacts::default()
            }
        );
    }

    #[test]
    fn capability_is_a_level_from_1_to_5() {
        for (text, expected) in
            [("Basic Install", Some(1)), (" auto pilot ", Some(5)), ("", None), ("Best", None)]
        {
            assert_eq!(level(text), expected, "{text}");
        }
    }
}
