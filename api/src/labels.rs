//! Label keys and fixed label values (docs/design/api.md#labels, docs/design/apply.md#names-and-limits).

/// Name of a catalog, on the catalog itself, so that extensions can select it.
pub const METADATA_NAME: &str = "olm.operatorframework.io/metadata.name";
/// Kind of the owner of a revision and of every applied object. The value is [`OWNER_KIND_EXTENSION`].
pub const OWNER_KIND: &str = "olm.operatorframework.io/owner-kind";
/// Value of [`OWNER_KIND`].
pub const OWNER_KIND_EXTENSION: &str = "ClusterExtension";
/// Name of the extension that owns a revision, a Secret of a revision, or an applied object.
pub const OWNER_NAME: &str = "olm.operatorframework.io/owner-name";
/// Name of the revision whose objects a Secret holds.
pub const REVISION_NAME: &str = "olm.operatorframework.io/revision-name";
/// Label of a revision created from a Helm release. The value is `true`.
pub const MIGRATED_FROM_HELM: &str = "olm.operatorframework.io/migrated-from-helm";
/// Label of the Secrets of the built-in provider for webhook certificates. The value is `ca` or `serving`.
pub const EXT_WEBHOOK_CERTIFICATE: &str = "ext.olm.operatorframework.io/webhook-certificate";
/// Label of the objects that `olm bundle run` creates. The value is the start of the digest of their catalog.
pub const EXT_BUNDLE_RUN: &str = "ext.olm.operatorframework.io/bundle-run";
/// Standard label on applied objects. The value is [`MANAGED_BY_OLM`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub const MANAGED_BY_OLM: &str = "olm.operatorframework.io";
