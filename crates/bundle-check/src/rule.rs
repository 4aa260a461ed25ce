//! Lint rules with stable IDs.

use serde::{Serialize, Serializer};

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The bundle cannot be installed, or `opm` or `operator-sdk` refuse it.
    Error,
    /// The bundle works, but perhaps not as intended, or not everywhere.
    Warning,
}

impl Level {
    /// Returns `error` or `warning`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// Lint rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Stable ID, `<GROUP>-<number>`.
    pub id: &'static str,
    /// Severity of its findings.
    pub level: Level,
    /// Requirement on the bundle.
    pub demand: &'static str,
    /// Reason for the requirement, and the fix.
    pub reason: &'static str,
}

/// Serializes the rule of a finding as its ID.
pub(crate) fn by_id<S: Serializer>(rule: &&'static Rule, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.id)
}

macro_rules! rules {
    ($($name:ident $id:literal $level:ident $demand:literal $reason:literal)*) => {
        $(pub(crate) static $name: Rule = Rule { id: $id, level: Level::$level, demand: $demand, reason: $reason };)*
        /// All rules, by group.
        pub static RULES: &[&Rule] = &[$(&$name),*];
    };
}

rules! {
    // Files: docs/design/bundles.md#image-layout, docs/design/bundles.md#loading.
    FILE_1 "FILE-1" Error "metadata/annotations.yaml and manifests/ are there, and manifests/ holds files only"
        "The directory names are fixed; annotations that name others are not read."
    FILE_2 "FILE-2" Error "every file can be read, and every manifest is an object with kind and metadata"
        "One file that cannot be read keeps the whole bundle from being installed. YAML is read as 1.1: quote y, no, on, 0644 and 1.10 where text is meant."
    FILE_3 "FILE-3" Warning "nothing follows the first value of a YAML document"
        "What follows is skipped without notice: part documents with a line `---`."
    FILE_4 "FILE-4" Error "the bundle keeps within the limits on size and number of files, objects and values"
        "Larger bundles are refused before anything in them is looked at."
    FILE_5 "FILE-5" Warning "metadata/properties.yaml has the field properties, metadata/dependencies.yaml the field dependencies"
        "Nothing else in these files is read."

    // metadata/annotations.yaml: docs/design/additions.md#bundle-annotations.
    ANN_1 "ANN-1" Error "the annotations mediatype.v1, manifests.v1, metadata.v1, package.v1 and channels.v1 are there, as text, package and channels not empty"
        "Catalogs take package and channels from here, and opm refuses bundles that lack one of the five. All begin with operators.operatorframework.io.bundle."
    ANN_2 "ANN-2" Error "mediatype.v1 is registry+v1"
        "Other types of bundles have no ClusterServiceVersion and cannot be installed from here."
    ANN_3 "ANN-3" Error "channel.default.v1 is not empty where it is there"
        "Leave the annotation out where the package's default channel is set elsewhere."
    ANN_4 "ANN-4" Warning "channel.default.v1 is one of channels.v1"
        "A package cannot be made from this bundle alone: its default channel would not exist."
    ANN_5 "ANN-5" Warning "manifests.v1 and metadata.v1 are manifests/ and metadata/"
        "Other values are not followed: the directories are always read under these names."
    ANN_6 "ANN-6" Error "package.v1 is a DNS-1123 subdomain"
        "spec.source.catalog.packageName of a ClusterExtension takes no other name, so the package could not be asked for."

    // Properties: docs/design/bundles.md#merged-properties.
    PROP_1 "PROP-1" Error "metadata/properties.yaml is a list under `properties` of objects with `type` and `value`"
        "Other fields are dropped or keep the bundle from being loaded. Nested forms such as `- property: {type: …}` are not known."
    PROP_2 "PROP-2" Warning "properties have a value"
        "A property without a value has no effect; catalogs refuse it under strict validation."
    PROP_3 "PROP-3" Error "the annotation olm.properties of the ClusterServiceVersion is a JSON list of objects with type and value"
        "A bundle whose annotation cannot be read is not loaded."
    PROP_4 "PROP-4" Error "properties of known types have the fields of their type"
        "olm.gvk has group, version and kind; olm.package has packageName and version."
    PROP_5 "PROP-5" Warning "at most one olm.maxOpenShiftVersion, of the form \"4.18\" and quoted"
        "With two, or with one that is no minor version, OpenShift cannot be updated at all; unquoted 4.20 means 4.2."
    PROP_6 "PROP-6" Warning "properties are in metadata/properties.yaml instead of the annotation olm.properties"
        "The annotation works, but it is text inside text, which neither editors nor reviewers check."

    // Dependencies: docs/design/resolution.md#dependencies, docs/design/additions.md#dependencies,
    // docs/design/additions.md#lint-rules.
    DEP_1 "DEP-1" Warning "each required CustomResourceDefinition and APIService of the ClusterServiceVersion has an olm.gvk dependency"
        "Where metadata/dependencies.yaml is there, some resolvers look at nothing else."
    DEP_2 "DEP-2" Warning "the range of a required package is open up to its next major version"
        "A tighter upper bound keeps the required package from updates that do not break it."
    DEP_3 "DEP-3" Warning "a package and an API that one bundle has to bring are one olm.constraint with `all`"
        "As two dependencies they may be met by two different bundles."
    DEP_4 "DEP-4" Warning "`not` stands inside of `all`"
        "Alone it asks for some other bundle, whichever, that is not the one named."
    DEP_5 "DEP-5" Error "metadata/dependencies.yaml is a list under `dependencies` of objects with `type` and `value`"
        "The types are olm.package, olm.gvk, olm.label and olm.constraint."
    DEP_6 "DEP-6" Error "every dependency is complete and can be evaluated"
        "olm.gvk has group, version and kind; olm.package has packageName and a version range such as `>=1.0.0 <2.0.0`; olm.label has label; the grammar of olm.constraint is gvk, package, all, any, not or cel, with at most 131072 bytes."
    DEP_7 "DEP-7" Warning "an olm.constraint has at most 65536 bytes"
        "The product documents this limit; twice that is accepted."
    DEP_8 "DEP-8" Error "an olm.constraint has one of gvk, package, all, any, not and cel"
        "Of several, the first in this order counts and the others are ignored. Combine conditions with `all`."

    // ClusterServiceVersion: docs/design/additions.md#bundle-validation.
    CSV_1 "CSV-1" Error "the manifests hold exactly one ClusterServiceVersion"
        "Of several, the last one read would win without notice."
    CSV_2 "CSV-2" Error "metadata.name and spec.replaces are DNS-1123 subdomains of at most 63 characters"
        "The name is that of the bundle in catalogs, and the value of a label."
    CSV_3 "CSV-3" Error "spec.version is a semantic version such as 1.2.3"
        "Catalogs order bundles by it and take no other form."
    CSV_4 "CSV-4" Error "spec.installModes lists each mode once, and supports one"
        "The modes are OwnNamespace, SingleNamespace, MultiNamespace and AllNamespaces."
    CSV_5 "CSV-5" Warning "spec.installModes has known types only"
        "Unknown types count as not supported."
    CSV_6 "CSV-6" Warning "spec.minKubeVersion is there"
        "Without it the bundle claims to run on every Kubernetes."
    CSV_7 "CSV-7" Error "spec.minKubeVersion is a semantic version such as 1.26.0"
        "A value that cannot be read is refused by catalogs' tools."
    CSV_8 "CSV-8" Warning "the annotation alm-examples shows one object of each API that the bundle provides"
        "Consoles make their forms from it."
    CSV_9 "CSV-9" Error "the annotation alm-examples is a JSON list of objects of provided APIs"
        "Consoles make their forms from it, and operator-sdk refuses examples that fit no provided API."
    CSV_10 "CSV-10" Error "with spec.release, the name is <package>-v<version>-<release>, and olm.substitutesFor is not there"
        "A release of a bundle is known by its name; it replaces what olm.substitutesFor was for."
    CSV_11 "CSV-11" Error "apiVersion, spec.displayName, spec.install.strategy and spec.install.spec.deployments are there"
        "The API requires them, and operator-sdk refuses a ClusterServiceVersion without."
    CSV_12 "CSV-12" Warning "spec.install.strategy is `deployment`"
        "There is no other strategy; the value is not looked at when installing."
    CSV_13 "CSV-13" Error "known annotations are spelled in their own case"
        "olm.skiprange is no olm.skipRange: the annotation has no effect."
    CSV_14 "CSV-14" Error "the annotation olm.skipRange is a version range such as `>=1.0.0 <1.2.0`"
        "A range that cannot be read selects nothing, and catalogs with it are refused."
    CSV_15 "CSV-15" Warning "the apiVersion of the ClusterServiceVersion is operators.coreos.com/v1alpha1"
        "It is known by its kind alone; other tools look at its apiVersion, too."
    CSV_16 "CSV-16" Error "annotations have keys that Kubernetes allows, and together at most 256 KiB"
        "All of them are copied into the pods of every deployment, where the API server checks them. Shorten alm-examples."
    FIELD_1 "FIELD-1" Warning "ClusterServiceVersion and CustomResourceDefinitions have known fields only"
        "Unknown fields are dropped before anything is installed: mostly they are misspelled or stand at the wrong depth."
    FIELD_2 "FIELD-2" Error "numbers fit their fields"
        "A 32-bit number that is too large becomes another one without notice."
    DEPLOY_1 "DEPLOY-1" Error "deployments have different names, each a DNS-1123 subdomain"
        "Renders are refused otherwise."

    // CRDs and other objects: docs/design/bundles.md#bundle-validators, docs/design/bundles.md#shipped-objects,
    // docs/design/additions.md#bundle-validation, docs/design/additions.md#kinds-in-a-bundle.
    CRD_1 "CRD-1" Error "definitions have different names, and each owned one is in the bundle"
        "Every name in spec.customresourcedefinitions.owned needs a manifest of a CustomResourceDefinition."
    CRD_2 "CRD-2" Error "each owned version and kind is one of its CustomResourceDefinition"
        "The definition is there, but does not serve what the ClusterServiceVersion promises."
    CRD_3 "CRD-3" Error "one CustomResourceDefinition for each group and kind"
        "The API server would serve one of them only."
    CRD_4 "CRD-4" Warning "each CustomResourceDefinition is owned by the ClusterServiceVersion"
        "It is installed, but not listed as an API of the bundle; operator-sdk refuses the bundle."
    CRD_5 "CRD-5" Error "a CustomResourceDefinition has a scope, versions with schemas, and stores one of them"
        "The API server refuses it otherwise."
    OBJ_1 "OBJ-1" Error "objects are of the kinds that a bundle may ship"
        "Beside ClusterServiceVersion and CustomResourceDefinition: ClusterRole, ClusterRoleBinding, ConfigMap, ConsoleCLIDownload, ConsoleLink, ConsolePlugin, ConsoleQuickStart, ConsoleYAMLSample, NetworkPolicy, PodDisruptionBudget, PodMonitor, PriorityClass, PrometheusRule, Role, RoleBinding, Secret, Service, ServiceAccount, ServiceMonitor and VerticalPodAutoscaler."
    OBJ_2 "OBJ-2" Error "no ServiceAccount has the name of one that a deployment uses"
        "Accounts of deployments come from the permissions of the ClusterServiceVersion. Remove the manifest or rename one of the two."
    OBJ_3 "OBJ-3" Warning "a VerticalPodAutoscaler has the namespace that it is meant for"
        "Its namespace is left as written, unlike that of other objects."
    KUBE_1 "KUBE-1" Error "objects are of API versions that Kubernetes still serves"
        "They cannot be applied. --k8s-version tells which Kubernetes the bundle is for."
    KUBE_2 "KUBE-2" Error "spec.minKubeVersion is not beyond the Kubernetes version that the bundle is for"
        "Judged where --k8s-version is given."

    // Webhooks: docs/design/bundles.md#bundle-validators, docs/design/bundles.md#author-checks.
    WEBHOOK_1 "WEBHOOK-1" Error "a bundle with a conversion webhook supports AllNamespaces only"
        "A definition is converted for the whole cluster, or not at all."
    WEBHOOK_2 "WEBHOOK-2" Error "webhook definitions have different names, a deployment, and definitions that are owned"
        "Renders are refused otherwise."
    WEBHOOK_3 "WEBHOOK-3" Warning "the type of a webhook definition is ValidatingAdmissionWebhook, MutatingAdmissionWebhook or ConversionWebhook"
        "An unknown type makes a certificate and a Service, but no webhook."
    WEBHOOK_4 "WEBHOOK-4" Warning "a webhook that fails closed has no rule for all resources or for pods and the like"
        "While the operator is down, such a webhook blocks the creation of the pod that would answer it, also by OLM. Narrow the rule, give an objectSelector, or set failurePolicy: Ignore."

    // Images and size: docs/design/additions.md#lint-rules.
    IMG_1 "IMG-1" Warning "images are named by digest"
        "What a tag means changes, and mirrors of disconnected clusters work by digest."
    IMG_2 "IMG-2" Error "images are image references"
        "registry/repository:tag or registry/repository@sha256:…, without https://."
    SIZE_1 "SIZE-1" Warning "the bundle, each file compressed, has at most 85 % of 1 MiB"
        "Installers of the previous generation keep a bundle in one ConfigMap."
    SIZE_2 "SIZE-2" Error "the bundle, each file compressed, has at most 1 MiB"
        "operator-sdk refuses it: it does not fit into one ConfigMap. Remove descriptions from the schemas of large definitions."

    // Features that OLM v1 lacks: docs/design/additions.md#lint-rules.
    V1_1 "V1-1" Warning "no dependencies"
        "With --dependency-mode=Reject, which is the default, operator-controller installs no bundle that declares one."
    V1_2 "V1-2" Error "one of AllNamespaces, SingleNamespace and OwnNamespace is supported"
        "Several watched namespaces are not supported unless the gate MultiWatchNamespaces is on."
    V1_3 "V1-3" Warning "the operator does not need an OperatorCondition"
        "No OperatorCondition object is made and no OPERATOR_CONDITION_NAME is set: an operator that insists on them fails at its start."
    V1_4 "V1-4" Error "no owned APIService"
        "Aggregated APIs of bundles are not supported."
    V1_5 "V1-5" Error "rules of admission webhooks leave this system and other webhooks alone"
        "Allowed is any API group but `*` and olm.operatorframework.io, and of admissionregistration.k8s.io any resource but webhook configurations."
    V1_6 "V1-6" Warning "no spec.nativeAPIs"
        "Only with the feature gate ClusterConstraints does operator-controller check that the cluster serves them."
    RENDER_1 "RENDER-1" Error "the bundle can be rendered for every install mode that it supports"
        "Tried with the renderer of operator-controller."
    RENDER_2 "RENDER-2" Error "what is rendered can be applied"
        "The API server, or the protection of the cluster, would refuse the objects."
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rule_ids_are_unique_group_and_number() {
        let ids: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), RULES.len());
        for id in ids {
            let (group, number) = id.split_once('-').unwrap();
            assert!(group.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()), "{id}");
            assert!(number.parse::<u8>().is_ok(), "{id}");
        }
    }
}
