//! Annotation keys (docs/design/api.md#annotation-keys, docs/design/apply.md#names-and-limits; of this
//! implementation: docs/design/additions.md#annotations).

/// Name of the bundle that a revision installs.
pub const BUNDLE_NAME: &str = "olm.operatorframework.io/bundle-name";
/// Version of the bundle, on revisions and on every applied object.
pub const BUNDLE_VERSION: &str = "olm.operatorframework.io/bundle-version";
/// Release of the bundle. Present, even if empty, if and only if the release is explicitly known.
pub const BUNDLE_RELEASE: &str = "olm.operatorframework.io/bundle-release";
/// Package of the bundle, on revisions and on every applied object.
pub const PACKAGE_NAME: &str = "olm.operatorframework.io/package-name";
/// Image that the bundle was read from.
pub const BUNDLE_REFERENCE: &str = "olm.operatorframework.io/bundle-reference";
/// JSON list of the bundle's properties.
pub const PROPERTIES: &str = "olm.properties";
/// Watched namespaces, joined by commas, on pod templates.
pub const TARGET_NAMESPACES: &str = "olm.targetNamespaces";
/// Decimal number of the revision that applied the object.
pub const REVISION: &str = "olm.operatorframework.io/revision";
/// Variant of the CRDs.
pub const GENERATOR: &str = "olm.operatorframework.io/generator";
/// Configuration last applied by `kubectl apply`. Dropped from caches and from bundle objects.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Prefix of the keys of this implementation (docs/design/additions.md#annotations).
pub const EXT_PREFIX: &str = "ext.olm.operatorframework.io/";
/// Time of a refresh request, on ClusterCatalogs. A changed value triggers one immediate poll.
pub const EXT_REFRESH_REQUESTED_AT: &str = "ext.olm.operatorframework.io/refresh-requested-at";
/// Name of a package: its bundle suggested the namespace. On namespaces that `olm install` created
/// (docs/design/cli.md#changing-commands).
pub const EXT_SUGGESTED_FOR: &str = "ext.olm.operatorframework.io/suggested-for";
/// Template of the image reference, on ClusterCatalogs, with variables for the Kubernetes version of the cluster
/// (docs/design/catalogd.md#image-templates).
pub const EXT_IMAGE_TEMPLATE: &str = "ext.olm.operatorframework.io/image-template";
/// Key of classic OLM for [`EXT_IMAGE_TEMPLATE`], which takes precedence.
pub const CLASSIC_IMAGE_TEMPLATE: &str = "olm.catalogImageTemplate";
/// Maximum OpenShift version as written in the bundle's source, on revisions
/// (docs/design/additions.md#maximum-openshift-version).
pub const EXT_MAX_OPENSHIFT_VERSION: &str = "ext.olm.operatorframework.io/max-openshift-version";
/// Properties of the bundle's catalog entry that dependency checks use, on revisions created in the modes `Report`
/// and `Check`: a JSON list of `{"type", "value"}` (docs/design/additions.md#dependency-modes).
pub const EXT_CATALOG_PROPERTIES: &str = "ext.olm.operatorframework.io/catalog-properties";
/// Handling of a bundle with dependencies, on ClusterExtensions: `Reject`, `Report` or `Check`
/// (docs/design/additions.md#dependency-modes).
pub const EXT_DEPENDENCY_MODE: &str = "ext.olm.operatorframework.io/dependency-mode";
/// Property types of ignored dependencies, joined by commas, on ClusterExtensions.
pub const EXT_IGNORE_DEPENDENCIES: &str = "ext.olm.operatorframework.io/ignore-dependencies";
/// Permission to upgrade or uninstall despite dependents, on ClusterExtensions: `true` or `false`.
pub const EXT_IGNORE_DEPENDENTS: &str = "ext.olm.operatorframework.io/ignore-dependents";
/// Extension: `true` replaces the operator although its OperatorCondition prevents it
/// (docs/design/approvals.md#operator-conditions).
pub const EXT_IGNORE_OPERATOR_CONDITION: &str = "ext.olm.operatorframework.io/ignore-operator-condition";
/// Largest allowed upgrade step, on ClusterExtensions: `patch`, `minor` or `major`
/// (docs/design/additions.md#upgrade-scope).
pub const EXT_UPGRADE_SCOPE: &str = "ext.olm.operatorframework.io/upgrade-scope";
/// Upgrade group, on ClusterExtensions in dependency mode `Check`: a name with the syntax of a label value
/// (docs/design/additions.md#upgrade-groups).
pub const EXT_UPGRADE_GROUP: &str = "ext.olm.operatorframework.io/upgrade-group";
/// Exclusion of versions that their channel skips, on ClusterExtensions: `true` or `false`
/// (docs/design/additions.md#skipped-versions).
pub const EXT_EXCLUDE_SKIPPED: &str = "ext.olm.operatorframework.io/exclude-skipped";
/// Roles for the users of the APIs, on ClusterExtensions: `true` or `false` (docs/design/additions.md#api-roles).
pub const EXT_AGGREGATE_API_ROLES: &str = "ext.olm.operatorframework.io/aggregate-api-roles";
/// Changes that wait for an approval, on ClusterExtensions: `Automatic`, `ManualUpgrades` or `Manual`
/// (docs/design/approvals.md#approval).
pub const EXT_APPROVAL: &str = "ext.olm.operatorframework.io/approval";
/// Digest of the approved plan, on ClusterExtensions: `sha256:` and 64 hexadecimal digits.
pub const EXT_APPROVED: &str = "ext.olm.operatorframework.io/approved";
/// Approval of new revisions that grant more permissions, on ClusterExtensions: `true` or `false`.
pub const EXT_APPROVE_PERMISSION_INCREASE: &str = "ext.olm.operatorframework.io/approve-permission-increase";
/// Windows of time for upgrades, on ClusterExtensions (docs/design/approvals.md#upgrade-windows).
pub const EXT_UPGRADE_WINDOW: &str = "ext.olm.operatorframework.io/upgrade-window";
/// Handling of a rollout that exceeds its progress deadline, on ClusterExtensions: `Rollback`
/// (docs/design/approvals.md#automatic-rollback).
pub const EXT_ON_FAILURE: &str = "ext.olm.operatorframework.io/on-failure";
/// Time of a request to apply content again that was rolled back, on ClusterExtensions. A changed value permits one
/// more attempt.
pub const EXT_RETRY_REQUESTED_AT: &str = "ext.olm.operatorframework.io/retry-requested-at";
/// Content that was rolled back, on the revision that restores its predecessor: JSON with digest, revision, bundle and
/// version.
pub const EXT_REFUSED: &str = "ext.olm.operatorframework.io/refused";
/// Handling of upgrades that may break custom resources, on ClusterExtensions: `Strict`, `Live` or `Warn`
/// (docs/design/additions.md#crd-checks).
pub const EXT_CRD_CHECK: &str = "ext.olm.operatorframework.io/crd-check";
/// Pause, on ClusterExtensions: `true` or `false`. While `true`, nothing is applied or upgraded, but status is
/// still reported (docs/design/additions.md#pause). Copied to the active revisions, which are then only observed.
pub const EXT_PAUSED: &str = "ext.olm.operatorframework.io/paused";
/// Handling of CRDs and their custom resources on uninstall, on ClusterExtensions: `Delete`, `KeepCRDs` or
/// `BlockIfInUse` (docs/design/additions.md#uninstall-policy). Copied to the active revisions.
pub const EXT_UNINSTALL_POLICY: &str = "ext.olm.operatorframework.io/uninstall-policy";
/// Replacement of objects without data of their own whose immutable fields differ, on ClusterExtensions: `Allow`
/// (docs/design/apply.md#immutable-fields). Copied to the active revisions.
pub const EXT_REPLACE_IMMUTABLE: &str = "ext.olm.operatorframework.io/replace-immutable";
/// Name of a Secret, on ClusterExtensions: index of a Helm release that is adopted although the extension does not
/// own it.
pub const EXT_ADOPT_RELEASE: &str = "ext.olm.operatorframework.io/adopt-release";
/// Digest of the objects that the first revision adopts, on ClusterExtensions: `sha256:` and 64 hexadecimal digits
/// (docs/design/migration.md#adoption). On revisions: the digest of the objects that the revision adopts.
pub const EXT_ADOPT: &str = "ext.olm.operatorframework.io/adopt";
/// Name of the former owning ClusterExtension, on CRDs retained by `KeepCRDs`. Only an extension of that name may
/// adopt the CRD again.
pub const EXT_KEPT_FOR: &str = "ext.olm.operatorframework.io/kept-for";
/// `<namespace>/<name>` of the service account that is impersonated to apply and delete objects, on revisions of
/// extensions that specify one while the feature gate `ServiceAccountImpersonation` is enabled
/// (docs/design/additions.md#service-account-impersonation).
pub const EXT_SERVICE_ACCOUNT: &str = "ext.olm.operatorframework.io/service-account";
/// Namespaces that `watchNamespaceSelector` of the extension selected, sorted and joined by commas, on revisions
/// (docs/design/namespaces.md#changed-lists).
pub const EXT_TARGET_NAMESPACES: &str = "ext.olm.operatorframework.io/target-namespaces";
/// Identities of the objects of a revision, on revisions. Written before the first apply, so that the objects can
/// be deleted or adopted if the Secrets with their content are lost.
pub const EXT_OBJECTS: &str = "ext.olm.operatorframework.io/objects";
/// Time of a request for new webhook certificates, on ClusterExtensions. A changed value renews CA and serving
/// certificates of the built-in provider once. On the Secret of a CA: the value processed last.
pub const EXT_RENEW_WEBHOOK_CERTIFICATES_AT: &str =
    "ext.olm.operatorframework.io/renew-webhook-certificates-at";
/// Time when the Secret got its serving certificate, RFC 3339.
pub const EXT_CERTIFICATE_SINCE: &str = "ext.olm.operatorframework.io/certificate-since";
