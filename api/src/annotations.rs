//! Annotation keys (docs/design/api.md#annotation-keys, docs/design/apply.md#names-and-limits; our own:
//! docs/design/additions.md#annotations).

/// Name of the bundle that a revision installs.
pub const BUNDLE_NAME: &str = "olm.operatorframework.io/bundle-name";
/// Version of the bundle, on revisions and on every applied object.
pub const BUNDLE_VERSION: &str = "olm.operatorframework.io/bundle-version";
/// Release of the bundle; present, even if empty, exactly when the release is explicitly known.
pub const BUNDLE_RELEASE: &str = "olm.operatorframework.io/bundle-release";
/// Package of the bundle, on revisions and on every applied object.
pub const PACKAGE_NAME: &str = "olm.operatorframework.io/package-name";
/// Image that the bundle was read from.
pub const BUNDLE_REFERENCE: &str = "olm.operatorframework.io/bundle-reference";
/// JSON list of the bundle's properties.
pub const PROPERTIES: &str = "olm.properties";
/// Watch namespaces, joined by commas, on pod templates.
pub const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// Decimal number of the revision that applied an object.
pub const REVISION: &str = "olm.operatorframework.io/revision";
/// Variant of the CRDs.
pub const GENERATOR: &str = "olm.operatorframework.io/generator";
/// What `kubectl apply` remembers; dropped from caches and from bundle objects.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Prefix of the keys that only this implementation knows (docs/design/additions.md#annotations).
pub const EXT_PREFIX: &str = "ext.olm.operatorframework.io/";
/// When somebody asked to look at a catalog's registry, on ClusterCatalogs: a changed value polls once, now.
pub const EXT_REFRESH_REQUESTED_AT: &str = "ext.olm.operatorframework.io/refresh-requested-at";
/// Maximum OpenShift version as written in the bundle's source, on revisions
/// (docs/design/additions.md#maximum-openshift-version).
pub const EXT_MAX_OPENSHIFT_VERSION: &str = "ext.olm.operatorframework.io/max-openshift-version";
/// Properties of the bundle's catalog entry that dependencies are judged by, on revisions made in the modes `Report`
/// and `Check`: a JSON list of `{"type", "value"}` (docs/design/additions.md#dependency-modes).
pub const EXT_CATALOG_PROPERTIES: &str = "ext.olm.operatorframework.io/catalog-properties";
/// `Reject`, `Report` or `Check`, on ClusterExtensions: what becomes of a bundle with dependencies
/// (docs/design/additions.md#dependency-modes).
pub const EXT_DEPENDENCY_MODE: &str = "ext.olm.operatorframework.io/dependency-mode";
/// Property types, joined by commas, on ClusterExtensions: such dependencies of the bundle do not count.
pub const EXT_IGNORE_DEPENDENCIES: &str = "ext.olm.operatorframework.io/ignore-dependencies";
/// `true` or `false`, on ClusterExtensions: it may be upgraded or uninstalled though others need it.
pub const EXT_IGNORE_DEPENDENTS: &str = "ext.olm.operatorframework.io/ignore-dependents";
/// `patch`, `minor` or `major`, on ClusterExtensions: how far one upgrade may go
/// (docs/design/additions.md#upgrade-scope).
pub const EXT_UPGRADE_SCOPE: &str = "ext.olm.operatorframework.io/upgrade-scope";
/// `true` or `false`, on ClusterExtensions: versions that their channel skips are never installed
/// (docs/design/additions.md#skipped-versions).
pub const EXT_EXCLUDE_SKIPPED: &str = "ext.olm.operatorframework.io/exclude-skipped";
/// `Strict`, `Live` or `Warn`, on ClusterExtensions: what becomes of an upgrade that may endanger custom resources
/// (docs/design/additions.md#crd-checks).
pub const EXT_CRD_CHECK: &str = "ext.olm.operatorframework.io/crd-check";
/// `true` or `false`, on ClusterExtensions: while `true` nothing of the extension is applied or upgraded; its status is
/// still told (docs/design/additions.md#pause). Mirrored onto its active revisions, which are then only observed.
pub const EXT_PAUSED: &str = "ext.olm.operatorframework.io/paused";
/// `Delete`, `KeepCRDs` or `BlockIfInUse`, on ClusterExtensions: what an uninstallation does to definitions and their
/// custom resources (docs/design/additions.md#uninstall-policy). Mirrored onto its active revisions.
pub const EXT_UNINSTALL_POLICY: &str = "ext.olm.operatorframework.io/uninstall-policy";
/// Name of a Secret, on ClusterExtensions: the index of a Helm release that is adopted although the extension does not own
/// it.
pub const EXT_ADOPT_RELEASE: &str = "ext.olm.operatorframework.io/adopt-release";
/// Name of the ClusterExtension whose definition it was, on CustomResourceDefinitions that `KeepCRDs` left behind: only
/// an extension of that name may take it back.
pub const EXT_KEPT_FOR: &str = "ext.olm.operatorframework.io/kept-for";
/// `<namespace>/<name>` of the service account as which a revision's objects are applied and removed, on revisions of
/// extensions that name one while the gate `ServiceAccountImpersonation` is on
/// (docs/design/additions.md#service-account-impersonation).
pub const EXT_SERVICE_ACCOUNT: &str = "ext.olm.operatorframework.io/service-account";
/// Identities of a revision's objects, on revisions, so that they can be removed or handed over when the Secrets with its
/// content are lost. Written before any of them is applied.
pub const EXT_OBJECTS: &str = "ext.olm.operatorframework.io/objects";
/// When somebody asked for new webhook certificates, on ClusterExtensions: a changed value renews CA and serving
/// certificates of the built-in provider once. On the Secret of a CA: the value that was last honoured.
pub const EXT_RENEW_WEBHOOK_CERTIFICATES_AT: &str =
    "ext.olm.operatorframework.io/renew-webhook-certificates-at";
/// Since when a Secret holds its serving certificate, RFC 3339.
pub const EXT_CERTIFICATE_SINCE: &str = "ext.olm.operatorframework.io/certificate-since";
