//! ClusterCatalog: a catalog image that catalogd serves (docs/design/api.md#clustercatalog).

use crate::open_enum::open_enum;
use crate::resource::cluster_resource;
use crate::schema::{self, cel};
use crate::{Condition, ObjectMeta, Time, annotations};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Catalog of packages for the whole cluster. catalogd pulls its image from a registry, checks the content, and
/// serves it to ClusterExtensions and other clients.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct ClusterCatalog {
    /// Standard metadata. The name may have up to 63 characters because it is also the value of a label.
    #[schemars(schema_with = "schema::metadata", transform = schema::without("description"))]
    pub metadata: ObjectMeta,
    /// Source, priority and availability of the catalog.
    pub spec: ClusterCatalogSpec,
    /// Observed state: the served content and its URLs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ClusterCatalogStatus>,
}

cluster_resource!(ClusterCatalog, ClusterCatalogSpec, ClusterCatalogStatus, "clustercatalogs");

impl ClusterCatalog {
    /// Image template of the annotations: the first that is not empty, of our key, then of that of classic OLM.
    pub fn image_template(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        let keys = [annotations::EXT_IMAGE_TEMPLATE, annotations::CLASSIC_IMAGE_TEMPLATE];
        let mut values = keys.into_iter().filter_map(|key| annotations.get(key));
        values.find(|value| !value.is_empty()).map(String::as_str)
    }
}

/// Desired state of a ClusterCatalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCatalogSpec {
    /// Source of the content.
    pub source: CatalogSource,
    /// Rank among catalogs that offer the same package: the highest number wins. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX), extend("default" = 0))]
    pub priority: Option<i32>,
    /// Available: the content is served. Unavailable: the content is removed, as if the catalog did not exist.
    /// Defaults to Available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Available"))]
    pub availability_mode: Option<AvailabilityMode>,
}

open_enum! {
    /// Availability of a catalog.
    pub enum AvailabilityMode {
        /// The content is removed.
        Unavailable,
        /// The content is served.
        Available,
    }
}

/// Source of a catalog. The member named by `type` is set, and no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[IMAGE_UNION])))]
pub struct CatalogSource {
    /// Kind of source. Image: an OCI image that holds file-based catalog content.
    #[serde(rename = "type")]
    pub type_: CatalogSourceType,
    /// The image, for type Image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
}

open_enum! {
    /// Kind of catalog source.
    pub enum CatalogSourceType {
        /// An OCI image.
        Image,
    }
}

/// Image to read a catalog from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[NO_POLL_WITH_DIGEST])))]
pub struct ImageSource {
    /// Image reference: domain, path, and a tag or a digest.
    #[serde(rename = "ref")]
    #[schemars(
        length(max = 1000),
        extend("x-kubernetes-validations" = cel(&[
            REF_DOMAIN, REF_NAME, REF_DIGEST_OR_TAG, REF_TAG_LENGTH, REF_TAG,
            REF_DIGEST_ALGORITHM, REF_DIGEST_LENGTH, REF_DIGEST_HEX,
        ]))
    )]
    pub ref_: String,
    /// Interval in minutes at which the registry is polled for new content of a tag. Absent: the registry is not
    /// polled. A reference with a digest must not have an interval, because its content cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), transform = schema::without("format"))]
    pub poll_interval_minutes: Option<i64>,
}

/// Observed state of a ClusterCatalog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCatalogStatus {
    /// Progressing reports the current step or an error, Serving whether the content is available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Source of the served content, with a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_source: Option<ResolvedCatalogSource>,
    /// Address of the served content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urls: Option<CatalogUrls>,
    /// Time at which the served content was unpacked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unpacked: Option<Time>,
    /// Generation of the spec that this status describes. Only set with feature gate StatusSummary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Source of served content, with a digest. The member named by `type` is set, and no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[IMAGE_UNION])))]
pub struct ResolvedCatalogSource {
    /// Kind of source.
    #[serde(rename = "type")]
    pub type_: CatalogSourceType,
    /// The image, for type Image.
    pub image: ResolvedImageSource,
}

/// Image that served content was read from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedImageSource {
    /// Image reference with a digest.
    #[serde(rename = "ref")]
    #[schemars(
        length(max = 1000),
        extend("x-kubernetes-validations" = cel(&[
            REF_DOMAIN, REF_NAME, REF_DIGEST, REF_DIGEST_ALGORITHM, REF_DIGEST_LENGTH, REF_DIGEST_HEX,
        ]))
    )]
    pub ref_: String,
}

/// Addresses of a served catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogUrls {
    /// Base address of all endpoints of this catalog, reachable from inside the cluster.
    #[schemars(length(max = 525), extend("x-kubernetes-validations" = cel(&[URL, URL_SCHEME])))]
    pub base: String,
}

const IMAGE_UNION: (&str, &str) = (
    "(self.type == 'Image') == has(self.image)",
    "image is required when source type is Image, and forbidden otherwise",
);
const NO_POLL_WITH_DIGEST: (&str, &str) = (
    "!(has(self.pollIntervalMinutes) && self.ref.matches('@.*:'))",
    "cannot specify pollIntervalMinutes while using digest-based image",
);
const REF_DOMAIN: (&str, &str) = (
    r"self.matches('^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*(:[0-9]+)?\\b')",
    r#"must start with a valid domain. valid domains must be alphanumeric characters (lowercase and uppercase) separated by the "." character."#,
);
const REF_NAME: (&str, &str) = (
    "self.matches('/[a-z0-9]')",
    r#"a valid name is required. valid names must contain lowercase alphanumeric characters separated only by the ".", "_", "__", "-" characters."#,
);
const REF_DIGEST_OR_TAG: (&str, &str) =
    ("self.matches('@.*:') || self.matches(':.*$')", "must end with a digest or a tag");
const REF_DIGEST: (&str, &str) = ("self.matches('@.*:')", "must end with a digest");
const REF_TAG_LENGTH: (&str, &str) = (
    "self.matches('@.*:') || !self.matches(':.*$') || self.find(':.*$').size() <= 128",
    "tag is invalid. the tag must not be more than 127 characters",
);
const REF_TAG: (&str, &str) = (
    r"self.matches('@.*:') || !self.matches(':.*$') || self.matches(':\\w[\\w.-]*$')",
    r#"tag is invalid. valid tags must begin with a word character (alphanumeric + "_") followed by word characters or ".", and "-" characters"#,
);
const REF_DIGEST_ALGORITHM: (&str, &str) = (
    "!self.matches('@.*:') || self.find('@.*:').matches('@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:')",
    r#"digest algorithm is not valid. valid algorithms must start with an uppercase or lowercase alpha character followed by alphanumeric characters and may contain the "-", "_", "+", and "." characters."#,
);
const REF_DIGEST_LENGTH: (&str, &str) = (
    "!self.matches('@.*:') || self.find(':.*$').size() > 32",
    "digest is not valid. the encoded string must be at least 32 characters",
);
const REF_DIGEST_HEX: (&str, &str) = (
    "!self.matches('@.*:') || self.matches(':[0-9A-Fa-f]*$')",
    "digest is not valid. the encoded string must only contain hex characters (A-F, a-f, 0-9)",
);
const URL: (&str, &str) = ("isURL(self)", "must be a valid URL");
const URL_SCHEME: (&str, &str) =
    ("!isURL(self) || url(self).getScheme() in ['http', 'https']", "scheme must be either http or https");
