//! Rules of `olm doctor`: what a finding means, and what to do.
//!
//! The anchor of each rule is a heading of `docs/troubleshooting.md`, and each fault there has a rule: tests compare
//! both.

use olm_api::conditions::messages;
use olm_finding::Declared;
use olm_revision::teardown::DENIED;
use olm_runtime::gates;
use olm_runtime::installations::OLDER_INSTALLATION;
use olm_serving::certificate::AWAITED;
use olm_serving::flags;
use olm_serving::service::LEADERSHIP_LOST;
use serde::{Serialize, Serializer};

/// Rule of `olm doctor`.
pub(super) type DoctorRule = Declared<Signs>;

/// How the fault of a rule is recognized and explained.
#[derive(Debug, Serialize)]
pub(super) struct Signs {
    /// Heading of the document that explains the fault.
    #[serde(rename = "documentation", serialize_with = "documented")]
    pub(super) anchor: &'static str,
    /// Parts of messages or log lines. `…` matches anything.
    #[serde(skip)]
    pub(super) texts: &'static [&'static str],
}

/// Path of a heading, as printed.
fn place(anchor: &str) -> String {
    format!("docs/troubleshooting.md#{anchor}")
}

fn documented<S: Serializer>(anchor: &&'static str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&place(anchor))
}

impl Signs {
    /// Path of the heading, as printed.
    pub(super) fn documentation(&self) -> String {
        place(self.anchor)
    }

    /// Reports whether `message` has one of the texts.
    pub(super) fn matches(&self, message: &str) -> bool {
        self.texts.iter().any(|text| {
            // A status code, not digits of a digest.
            if text.bytes().all(|byte| byte.is_ascii_digit()) {
                return message.split(|c: char| !c.is_alphanumeric()).any(|word| word == *text);
            }
            let mut rest = Some(message);
            for part in text.split('…') {
                rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
            }
            rest.is_some()
        })
    }
}

const fn signs(anchor: &'static str, texts: &'static [&'static str]) -> Signs {
    Signs { anchor, texts }
}

/// First of `rules` that recognizes `message`.
pub(super) fn recognize(rules: &[&'static DoctorRule], message: &str) -> Option<&'static DoctorRule> {
    rules.iter().copied().find(|rule| rule.check.matches(message))
}

/// Failures of an installed or requested bundle, the most specific first.
pub(super) static OF_EXTENSIONS: &[&DoctorRule] = &[
    &NO_BUNDLES,
    &SAME_PRIORITY,
    &NOT_SERVED,
    &DEPENDENCY,
    &CONFIGURATION,
    &COLLISION,
    &CRD_CHECK,
    &VALIDATION,
    &RESOLVED_BUNDLE,
];
/// Causes of a failed step.
pub(super) static CAUSES: &[&DoctorRule] = &[
    &OTHER_WEBHOOK,
    &AUTHORITY,
    &NETWORK,
    &ADMISSION,
    &RIGHTS,
    &CREDENTIALS,
    &NO_IMAGE,
    &NO_NAMESPACE,
    &UNSUPPORTED,
];
/// Failures of a catalog.
pub(super) static OF_CATALOGS: &[&DoctorRule] = &[&CATALOG_IMAGE, &CATALOG_CONTENT];
/// Causes of a deletion that hangs.
pub(super) static OF_DELETIONS: &[&DoctorRule] = &[
    &DENIED_DELETIONS,
    &IN_USE,
    &WAITING,
    &LEFT,
    &WAITING_CRD,
    &DEPENDENTS,
    &REVISION_OBJECTS,
    &UNKNOWN_OBJECTS,
];
/// Log lines of a server that ends or waits.
pub(super) static OF_LOGS: &[&DoctorRule] = &[
    &UNKNOWN_GATE,
    &TLS_PAIR,
    &METRICS_CERTIFICATE,
    &GLOBAL_PULL_SECRET,
    &TLS_PROFILE,
    &AWAITED_CERTIFICATE,
    &LOST_LEADERSHIP,
    &OLDER,
];

const NO_BUNDLE_FOUND: &str = "no-bundles-found-for-package";
const PRIORITY: &str = "found-bundles-for-package--in-multiple-catalogs-with-the-same-priority";
const UNSERVED: &str = "catalog--is-not-being-served";
const REQUIRED: &str = "has-a-dependency-declared-via-property--which-is-currently-not-supported";
const RESOLVED: &str = "error-for-resolved-bundle--with-version-";
const PHASE: &str = "phase--validation-error";
const CONFIG: &str = "invalid-clusterextension-configuration";
const COLLISIONS: &str = "revision-object-collisions-in-phase";
const CRDS: &str = "validating-upgrade-for-crd";
const ROLLING: &str = "revision--is-rolling-out";
const PROBES: &str = "object--missing-statusconditions-is-false-outdated";
const OUTDATED: &str = "deprecated";
const UNEXPECTED: &str = "unexpected-changes-or-no-upgrade";
const CONTENT: &str = "source-catalog-content";
const STORING: &str = "error-storing-fbc";
const WEBHOOK: &str = "failed-calling-webhook-inject-metadata-nameolmoperatorframeworkio";
const DELETION: &str = "deletion-hangs";
const PLATFORM: &str = "the-cluster-cannot-be-upgraded";
const START: &str = "the-servers-do-not-start";
const UNREADY: &str = "a-server-is-not-ready";
const WITHOUT_MESSAGE: &str = "faults-without-a-message";

olm_finding::rules! {
    /// All rules.
    pub(super) RULES: Signs;

    NO_BUNDLES "RESOLVE-1" Error (signs(NO_BUNDLE_FOUND, &["no bundles found for package"]))
        "No selected catalog has the package, a version in the range, or an upgrade edge from the installed version"
        "Run `olm resolve --extension NAME --explain`; then widen version, channels or the selector, or set upgradeConstraintPolicy: SelfCertified if only the edge is missing"
    SAME_PRIORITY "RESOLVE-2" Error (signs(PRIORITY, &["found bundles for package…in multiple catalogs with the same priority"]))
        "Several catalogs with the same priority have the package"
        "Raise spec.priority of one ClusterCatalog, or select one with spec.source.catalog.selector"
    NOT_SERVED "RESOLVE-3" Error (signs(UNSERVED, &["catalog …is not being served"]))
        "A selected catalog has no content, so a better bundle in it may be missed"
        "Repair the ClusterCatalog, exclude it with the selector, or set its availabilityMode: Unavailable"
    DEPENDENCY "RESOLVE-4" Error (signs(REQUIRED, &["has a dependency declared via property…which is currently not supported"]))
        "The bundle requires other packages"
        "Install it with `olm install NAME --with-dependencies`, or set annotation ext.olm.operatorframework.io/dependency-mode"
    UNSATISFIED "RESOLVE-5" Warning (signs(REQUIRED, &[]))
        "A dependency of the installed bundle is not satisfied"
        "Install the package that the message names, such as by `olm install NAME --with-dependencies`"
    RESOLVED_BUNDLE "INSTALL-1" Error (signs(RESOLVED, &[messages::RESOLVED_BUNDLE]))
        "The chosen bundle cannot be installed"
        "The end of the message names the failed step; read the bundle with `olm render IMAGE --namespace NAMESPACE`"
    VALIDATION "INSTALL-2" Error (signs(PHASE, &["phase …validation error", "revision validation error"]))
        "The API server would reject an object of the bundle"
        "Change what the message names; create spec.namespace if it does not exist"
    CONFIGURATION "INSTALL-3" Error (signs(CONFIG, &[olm_bundle::INVALID_CONFIGURATION]))
        "The bundle does not accept spec.config"
        "Correct the field that the message names; `olm config explain NAME` shows the accepted fields"
    COLLISION "INSTALL-4" Error (signs(COLLISIONS, &["revision object collisions in phase"]))
        "An object of the bundle exists already, with another owner or without one"
        "If another extension owns the object, install only one of the two. Delete the object only if nothing uses it: the deletion of a CRD deletes all its custom resources"
    CRD_CHECK "INSTALL-5" Error (signs(CRDS, &["validating upgrade for CRD"]))
        "The new CRD would break custom resources"
        "Review the findings of `olm diff --extension NAME`; then, at your own risk, set annotation ext.olm.operatorframework.io/crd-check to Live or Warn"
    OTHER_FAILURE "INSTALL-6" Error (signs(RESOLVED, &[]))
        "The extension makes no progress"
        "Read the message; `olm status NAME` shows the blocking object"
    NOT_RECONCILED "INSTALL-7" Error (signs(START, &[]))
        "No controller has written a condition"
        "See the log and the Lease of the server: it does not run, does not lead, or may not write"
    NETWORK "CAUSE-1" Error (signs(RESOLVED, &["no such host", "connection refused", "i/o timeout", "dial tcp", "proxyconnect"]))
        "The registry cannot be reached from the pods of the servers"
        "Check DNS, NetworkPolicies and the proxy; without a network, mirror the images (docs/tasks/air-gap.md)"
    AUTHORITY "CAUSE-2" Error (signs(RESOLVED, &["certificate signed by unknown authority", "UnknownIssuer"]))
        "The certificate authority of the registry is not known"
        "Add the CA of the registry (docs/tasks/private-registry.md#certificate-authority)"
    CREDENTIALS "CAUSE-3" Error (signs(RESOLVED, &["unauthorized", "denied", "401", "403"]))
        "The registry denies access: no credentials, or credentials without access to this repository"
        "Add a pull Secret (docs/tasks/private-registry.md#pull-secret)"
    NO_IMAGE "CAUSE-4" Error (signs(RESOLVED, &["manifest unknown", "404"]))
        "The image does not exist"
        "Use a newer catalog, or another version"
    NO_NAMESPACE "CAUSE-5" Error (signs(RESOLVED, &[olm_bundle::NO_NAMESPACE]))
        "No namespace has the labels of watchNamespaceSelector"
        "Label a namespace"
    UNSUPPORTED "CAUSE-6" Error (signs(RESOLVED, &[olm_bundle::UNSUPPORTED]))
        "The bundle needs an install mode or a feature that is off"
        "Turn on the feature gate that `olm status NAME` names (docs/reference/flags.md)"
    RIGHTS "CAUSE-7" Error (signs(RESOLVED, &["is forbidden: ", messages::REQUIRES_PERMISSIONS]))
        "operator-controller or the service account of the extension lacks a permission"
        "Grant the permission (docs/tasks/rights.md); `olm rbac required NAME` prints all that are needed"
    ADMISSION "CAUSE-8" Error (signs(RESOLVED, &["admission webhook …denied the request", "ValidatingAdmissionPolicy '"]))
        "An admission webhook or policy of the cluster denies an object"
        "Change the policy, or the configuration of the extension"
    OTHER_WEBHOOK "CAUSE-9" Error (signs(RESOLVED, &["failed calling webhook"]))
        "The API server cannot call an admission webhook of another component"
        "Repair the server, the Service or the CA bundle of the webhook that the message names"
    ROLLOUT "ROLLOUT-1" Warning (signs(ROLLING, &["Revision …is rolling out."]))
        "An object of the new revision fails its probe, so the rollout does not complete"
        "Find the cause in the status, the Events and the pods of the object; `olm status NAME` names it"
    DEADLINE "ROLLOUT-2" Error (signs(ROLLING, &["Revision has not rolled out for"]))
        "The rollout exceeds its progress deadline"
        "Repair the object that the message names, or request the version that worked; `olm rollback NAME` does so"
    PROBE "ROLLOUT-3" Error (signs(PROBES, &["missing .status.conditions", "is False", "outdated"]))
        "An object of the installed revision fails its probe"
        "Find the cause in the status, the Events and the pods of the object"
    DEPRECATED "UPGRADE-1" Warning (signs(OUTDATED, &["deprecated"]))
        "The author of the catalog deprecates the package, the channel or the installed bundle"
        "Move to the alternative that the message recommends, or pin the version to stay"
    HELD "UPGRADE-2" Note (signs(UNEXPECTED, &[]))
        "The extension is paused, or a rule holds its upgrade back"
        "The message names the command or change that releases it"
    DRIFT "UPGRADE-3" Note (signs(UNEXPECTED, &[]))
        "operator-controller reverted changes of objects of the extension"
        "Change spec.config or the bundle instead of the objects"
    GONE "UPGRADE-4" Warning (signs(UNEXPECTED, &[]))
        "No catalog has the installed bundle any more, so it has no upgrade edge"
        "Add the bundle to a catalog, or move to another version with upgradeConstraintPolicy: SelfCertified"
    ANNOTATION "ANNOTATION-1" Warning (signs(WITHOUT_MESSAGE, &[]))
        "An annotation of an extension has an unknown value, which has the safe effect"
        "Correct the value (docs/reference/annotations.md)"
    CATALOG_IMAGE "CATALOG-1" Error (signs(CONTENT, &[messages::CATALOG_IMAGE]))
        "The image of the catalog cannot be pulled"
        "Run `olm catalog ls IMAGE` on your machine. If it works, check network, CA and pull Secret of catalogd; if it fails, the image or its registry"
    CATALOG_CONTENT "CATALOG-2" Error (signs(STORING, &[messages::CATALOG_CONTENT]))
        "The image has no valid catalog"
        "List the findings with `olm validate IMAGE`, and publish a corrected image"
    CATALOG_WEBHOOK "CATALOG-3" Error (signs(WEBHOOK, &["failed calling webhook \"inject-metadata-name.olm.operatorframework.io\""]))
        "catalogd's admission webhook does not answer, so ClusterCatalogs cannot be changed"
        "Repair catalogd, its Service, or the network between API server and pod; check the CA bundle of the webhook"
    DELETING "DELETE-1" Error (signs(DELETION, &[]))
        "The deletion hangs"
        "`olm status NAME` shows what remains; never remove the finalizers of OLM by hand"
    IN_USE "DELETE-2" Warning (signs(DELETION, &[messages::IN_USE]))
        "Annotation uninstall-policy: BlockIfInUse, and custom resources exist"
        "Delete the custom resources, or remove annotation ext.olm.operatorframework.io/uninstall-policy"
    WAITING "DELETE-3" Warning (signs(DELETION, &["waiting for …finalizer"]))
        "The operator has not removed its finalizers from custom resources"
        "Read the log of the operator; OLM continues without it after 2 minutes"
    LEFT "DELETE-4" Error (signs(DELETION, &["custom resources are left: "]))
        "The operator was deleted before it removed its finalizers"
        "Run the commands that `olm uninstall NAME --wait` prints, which remove the finalizers"
    WAITING_CRD "DELETE-5" Error (signs(DELETION, &["waiting for the deletion of CustomResourceDefinition"]))
        "Custom resources of an earlier installation keep their CRD"
        "Run the commands that `olm uninstall NAME --wait` prints, which remove the finalizers"
    DEPENDENTS "DELETE-6" Warning (signs(DELETION, &[messages::UNINSTALL_WAITS]))
        "Another extension requires this one"
        "Uninstall that extension first, or allow the deletion of this one: `kubectl annotate clusterextension NAME ext.olm.operatorframework.io/ignore-dependents=true`"
    REVISION_OBJECTS "DELETE-7" Error (signs(DELETION, &["removing revision resources that are not owned by another revision"]))
        "An object has a finalizer whose controller does not run"
        "Check that object, and the controller of its finalizer"
    UNKNOWN_OBJECTS "DELETE-8" Error (signs(DELETION, &["objects of revision …are unknown: "]))
        "A Secret of the revision was lost, so its objects are not known"
        "Create the ClusterExtension again, or delete the revision"
    DENIED_DELETIONS "DELETE-9" Error (signs(DELETION, &[DENIED, "deletions are denied: ", "objects are left, because their deletion is denied: "]))
        "An admission policy or a missing permission denies deletions"
        "Change the policy, or grant the permission; delete what is left yourself"
    NOT_UPGRADEABLE "PLATFORM-1" Warning (signs(PLATFORM, &[]))
        "Installed extensions do not support the next version of the platform"
        "Upgrade or uninstall them: `olm cluster-check` lists the upgrades"
    SERVER_DOWN "SERVER-1" Error (signs(START, &[]))
        "A server does not run"
        "Read the last lines of its log, its Events, and the status of its pod"
    SERVER_UNREADY "SERVER-2" Error (signs(UNREADY, &[]))
        "A server runs, but is not ready"
        "See the failing readiness check, and the log of the server"
    SERVER_RESTARTED "SERVER-3" Warning (signs(START, &[]))
        "A server was restarted"
        "Read the log of its previous run; if the reason is OOMKilled, raise its memory limit"
    UNKNOWN_GATE "LOG-1" Error (signs(START, &[gates::UNKNOWN_GATE]))
        "--feature-gates names a gate that this version does not have"
        "Remove the gate, or install a version that has it (docs/reference/flags.md)"
    TLS_PAIR "LOG-2" Error (signs(START, &[flags::TLS_PAIR]))
        "One of --tls-cert and --tls-key is missing"
        "Set both flags, or neither"
    METRICS_CERTIFICATE "LOG-3" Error (signs(START, &[flags::METRICS_CERTIFICATE]))
        "Metrics need a certificate"
        "Set --tls-cert and --tls-key, or --metrics-bind-address=0"
    GLOBAL_PULL_SECRET "LOG-4" Error (signs(START, &[flags::PULL_SECRET_FORMAT, flags::PULL_SECRET_PARTS]))
        "The value of --global-pull-secret is invalid"
        "Write it as NAMESPACE/NAME"
    TLS_PROFILE "LOG-5" Error (signs(START, &["unknown TLS profile", "unknown cipher", "unknown curve", "unknown TLS version"]))
        "A value of --tls-profile or --tls-custom-… is invalid"
        "Use a value of docs/reference/flags.md"
    AWAITED_CERTIFICATE "LOG-6" Error (signs(START, &[AWAITED]))
        "catalogd waits for its certificate, which operator-controller issues"
        "Repair operator-controller; see its log"
    LOST_LEADERSHIP "LOG-7" Warning (signs(START, &[LEADERSHIP_LOST]))
        "The API server did not answer for longer than --leader-elect-renew-deadline"
        "Check the API server and the network to it; the pod restarts by itself"
    OLDER "LOG-8" Error (signs(START, &[OLDER_INSTALLATION]))
        "OLM also runs in another namespace, and leads there"
        "Remove one installation, but not the CRDs (docs/tasks/install.md#another-namespace)"
    EXPIRED "CERT-1" Error (signs(WITHOUT_MESSAGE, &[]))
        "A certificate is not valid now"
        "See the log of its issuer. If that is operator-controller, cert-manager or service-ca, delete the Secret: the issuer creates a new certificate. Renew any other certificate at its source"
    EXPIRES "CERT-2" Warning (signs(WITHOUT_MESSAGE, &[]))
        "A certificate expires within 7 days, and was not renewed"
        "See the log of its issuer: operator-controller, cert-manager or service-ca"
    CA_MISMATCH "CERT-3" Error (signs(WITHOUT_MESSAGE, &[]))
        "The CA bundle of a webhook does not accept the certificate of its server"
        "See the log of the issuer; operator-controller writes the bundle of its own certificates again while it leads"
    CA_MISSING "CERT-4" Error (signs(WITHOUT_MESSAGE, &[]))
        "A webhook of an extension has no CA bundle, so the API server cannot call it"
        "Check that the certificate provider of operator-controller runs: cert-manager, service-ca, or the built-in one"
    CA_EXPIRED "CERT-5" Error (signs(WITHOUT_MESSAGE, &[]))
        "The certificate authority of the built-in certificates is not valid now"
        "See the log of operator-controller, which renews it while it leads. Keep its Secret: clients trust the certificates in it"
    NO_ENDPOINT "NETWORK-1" Error (signs(WITHOUT_MESSAGE, &[]))
        "A Service has no ready endpoint"
        "Repair its pods; compare its selector with their labels"
    POLICY "NETWORK-2" Error (signs(WITHOUT_MESSAGE, &[]))
        "NetworkPolicies isolate a server, and none of them allows its traffic"
        "Apply the NetworkPolicies of the install file again, or allow the traffic"
    NO_LEADER "LEASE-1" Error (signs(WITHOUT_MESSAGE, &[]))
        "No replica renews the Lease, so nothing is reconciled"
        "Read the logs of the pods; check that they can reach the API server"
    SECOND "INSTALLATION-1" Error (signs(WITHOUT_MESSAGE, &[]))
        "OLM v1 is installed in several namespaces, and only the oldest one leads"
        "Remove one installation, but not the CRDs (docs/tasks/install.md#another-namespace)"
    VERSIONS "INSTALLATION-2" Warning (signs(WITHOUT_MESSAGE, &[]))
        "The servers have different versions, or this tool does not support their version"
        "Apply one install file for both servers, and use the tool of the same release"
    CLASSIC "CLASSIC-1" Note (signs(WITHOUT_MESSAGE, &[]))
        "Classic OLM manages packages on this cluster"
        "See which of them can become ClusterExtensions: `olm migrate scan`"
    CLASSIC_TWIN "CLASSIC-2" Error (signs(WITHOUT_MESSAGE, &[]))
        "Classic OLM and a ClusterExtension manage the same package, and would own the same objects"
        "Keep one of the two: delete the ClusterExtension with `olm uninstall NAME --keep-crds`, or delete the Subscription and the ClusterServiceVersion"
    ORPHANS "ORPHAN-1" Warning (signs(WITHOUT_MESSAGE, &[]))
        "Objects have the owner labels of a ClusterExtension that does not exist"
        "Create the ClusterExtension again, which adopts its revisions. Delete the objects only if nothing uses them: the deletion of a CRD deletes all its custom resources"
    PULL_SECRET "SECRET-1" Warning (signs(WITHOUT_MESSAGE, &[]))
        "A pull Secret of a server does not exist, or has no usable credentials"
        "Create it as type kubernetes.io/dockerconfigjson (docs/tasks/private-registry.md#pull-secret)"
    UNSIGNED "SIGNATURE-1" Note (signs(WITHOUT_MESSAGE, &[]))
        "No signature policy is configured: every image is accepted"
        "Mount a policy.json, and set --require-signature-policy (docs/reference/flags.md)"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rule_ids_are_unique_and_texts_end_as_sentences_without_point() {
        let ids: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), RULES.len());
        for rule in RULES {
            assert!(!rule.text.ends_with('.') && !rule.remedy.ends_with('.'), "{}", rule.id);
        }
    }

    #[test]
    fn texts_match_in_order_with_anything_between() {
        assert!(NOT_SERVED.check.matches("x: catalog \"a\" is not being served"));
        assert!(!NOT_SERVED.check.matches("is not being served: catalog "));
        assert!(ROLLOUT.check.matches("Revision 1.0.0 is rolling out."));
        assert!(
            CREDENTIALS.check.matches("answer: 401 Unauthorized")
                && !CREDENTIALS.check.matches("sha256:a401b")
        );
        assert!(!RESOLVED_BUNDLE.check.matches("") && !HELD.check.matches("anything"));
    }
}
