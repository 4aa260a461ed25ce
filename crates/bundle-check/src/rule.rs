//! Lint rules, each with its check.

use olm_finding::{Declared, Level, Rule};

use Check::{Bundle, Csv, Elsewhere};

use crate::content::{Content, Object};
use crate::report::{BundleFinding, Findings};
use crate::{conversion, csv, dependencies, deployments, edges, files, images, manifests, metadata, pods};

/// Function that finds the violations of a rule. One function may check several rules.
#[derive(Debug)]
pub(crate) enum Check {
    /// Of the whole bundle.
    Bundle(fn(&Content<'_>, &mut Findings)),
    /// Of the ClusterServiceVersion, if there is one.
    Csv(fn(&Object, &mut Findings)),
    /// That of another rule, or of `content.rs` and `rendering.rs`.
    Elsewhere,
}

olm_finding::rules! {
    /// All rules, by group.
    pub(crate) DECLARED: Check;

    // Files: docs/design/bundles.md#image-layout, docs/design/bundles.md#loading.
    FILE_1 "FILE-1" Error (Elsewhere) "metadata/annotations.yaml and manifests/ exist, and manifests/ contains only files"
        "The directory names are fixed; annotations with other names are ignored."
    FILE_2 "FILE-2" Error (Elsewhere) "every file can be parsed, and every manifest is an object with kind and metadata"
        "One invalid file prevents the installation of the whole bundle. Files are YAML 1.1: quote strings such as y, no, on, 0644 and 1.10."
    FILE_3 "FILE-3" Warning (Elsewhere) "a YAML document has one value"
        "Content after the first value is ignored without an error: separate documents with a line `---`."
    FILE_4 "FILE-4" Error (Elsewhere) "the bundle is within the limits on size and number of files, objects and values"
        "Larger bundles are rejected before their content is checked."
    FILE_5 "FILE-5" Warning (Elsewhere) "metadata/properties.yaml has the field properties, metadata/dependencies.yaml the field dependencies"
        "Other fields of these files are ignored."
    FILE_6 "FILE-6" Warning (Bundle(files::repeated)) "a mapping has each key once"
        "Of equal keys only the last one is read. Where the line `---` between two objects is missing, the first one is lost."
    FILE_7 "FILE-7" Warning (Bundle(files::misplaced)) "annotations.yaml, dependencies.yaml and properties.yaml are in metadata/, objects in manifests/"
        "Files elsewhere are ignored, or prevent loading of the bundle."
    FILE_8 "FILE-8" Warning (Elsewhere) "a manifest has one object, which is in its first document"
        "OLM v1 reads all documents, but opm and classic OLM only the first one of a file, even if it is empty."

    // metadata/annotations.yaml: docs/design/cli.md#bundle-annotations.
    ANN_1 "ANN-1" Error (Bundle(metadata::annotations)) "the annotations mediatype.v1, manifests.v1, metadata.v1, package.v1 and channels.v1 are strings, package and channels not empty"
        "Catalogs take package and channels from here, and opm rejects bundles without one of the five. The prefix of all keys is operators.operatorframework.io.bundle."
    ANN_2 "ANN-2" Error (Elsewhere) "mediatype.v1 is registry+v1"
        "Other types of bundles have no ClusterServiceVersion and cannot be installed."
    ANN_3 "ANN-3" Error (Elsewhere) "channel.default.v1 is not empty if set"
        "Omit the annotation if the package's default channel is set elsewhere."
    ANN_4 "ANN-4" Note (Elsewhere) "channel.default.v1 is one of channels.v1"
        "No package can be created from this bundle alone: its default channel would not exist."
    ANN_5 "ANN-5" Note (Elsewhere) "manifests.v1 and metadata.v1 are manifests/ and metadata/"
        "Other values are ignored: the directories always have these names."
    ANN_6 "ANN-6" Error (Elsewhere) "package.v1 is a DNS-1123 subdomain"
        "spec.source.catalog.packageName of a ClusterExtension allows no other names, so the package could not be installed."

    // Properties: docs/design/bundles.md#merged-properties.
    PROP_1 "PROP-1" Error (Bundle(metadata::properties)) "metadata/properties.yaml is a list under `properties` of objects with `type` and `value`"
        "Other fields are ignored, or prevent loading of the bundle. Nested forms such as `- property: {type: …}` are invalid."
    PROP_2 "PROP-2" Warning (Elsewhere) "properties have a value"
        "A property without a value has no effect; strict validation of catalogs rejects it. For known types see PROP-4."
    PROP_3 "PROP-3" Error (Elsewhere) "the annotation olm.properties of the ClusterServiceVersion is a JSON list of objects with type and value"
        "A bundle with an invalid annotation is not loaded."
    PROP_4 "PROP-4" Error (Elsewhere) "properties of known types have the fields of their type"
        "olm.gvk and olm.gvk.required have group, version and kind; olm.package has packageName and version, those of the bundle; olm.package.required has packageName and versionRange; olm.constraint has a condition. opm refuses the whole catalog otherwise."
    PROP_5 "PROP-5" Warning (Elsewhere) "at most one olm.maxOpenShiftVersion, of the form \"4.18\" and quoted"
        "With two values, or a value that is not a minor version, OpenShift cannot be updated at all; unquoted 4.20 means 4.2."
    PROP_6 "PROP-6" Note (Elsewhere) "properties other than olm.maxOpenShiftVersion are in metadata/properties.yaml instead of the annotation olm.properties"
        "The annotation works, but it is JSON inside a string, which editors do not validate."

    // Dependencies: docs/design/resolution.md#dependencies, docs/design/additions.md#dependencies,
    // docs/design/cli.md#lint-rules.
    DEP_1 "DEP-1" Note (Bundle(dependencies::dependencies)) "each required CustomResourceDefinition and APIService of the ClusterServiceVersion has an olm.gvk dependency"
        "If metadata/dependencies.yaml exists, some resolvers ignore other dependencies."
    DEP_2 "DEP-2" Note (Elsewhere) "the range of a required package extends to its next major version"
        "A lower upper bound excludes compatible updates of the required package."
    DEP_3 "DEP-3" Warning (Elsewhere) "a package and an API that one bundle must provide are one olm.constraint with `all`"
        "Two different bundles may satisfy two dependencies."
    DEP_4 "DEP-4" Warning (Elsewhere) "`not` is inside of `all`"
        "Alone, it requires any bundle that does not match."
    DEP_5 "DEP-5" Error (Elsewhere) "metadata/dependencies.yaml is a list under `dependencies` of objects with `type` and `value`"
        "The types are olm.package, olm.gvk, olm.label and olm.constraint."
    DEP_6 "DEP-6" Error (Elsewhere) "every dependency is complete and can be evaluated"
        "olm.gvk has group, version and kind; olm.package has packageName and a version range such as `>=1.0.0 <2.0.0`; olm.label has label; the grammar of olm.constraint is gvk, package, all, any, not or cel, with at most 131072 bytes."
    DEP_7 "DEP-7" Note (Elsewhere) "an olm.constraint has at most 65536 bytes"
        "This is the documented limit; twice that size is accepted."
    DEP_8 "DEP-8" Error (Elsewhere) "an olm.constraint has one of gvk, package, all, any, not and cel"
        "Of several, only the first in this order is evaluated. Combine conditions with `all`."

    // ClusterServiceVersion: docs/design/cli.md#bundle-validation.
    CSV_1 "CSV-1" Error (Bundle(csv::single)) "the manifests contain exactly one ClusterServiceVersion"
        "Of several, the last one would be used without an error."
    CSV_2 "CSV-2" Error (Csv(csv::names)) "metadata.name and spec.replaces are DNS-1123 subdomains of at most 63 characters"
        "The name is that of the bundle in catalogs, and the value of a label."
    CSV_3 "CSV-3" Error (Csv(csv::version)) "spec.version is a semantic version such as 1.2.3"
        "Catalogs order bundles by it and accept no other form."
    CSV_4 "CSV-4" Error (Csv(csv::install_modes)) "spec.installModes lists each mode once, and supports at least one"
        "The modes are OwnNamespace, SingleNamespace, MultiNamespace and AllNamespaces."
    CSV_5 "CSV-5" Warning (Elsewhere) "spec.installModes has only known types"
        "Unknown types are not supported."
    CSV_6 "CSV-6" Note (Csv(csv::minimum_kubernetes)) "spec.minKubeVersion is set"
        "Without it the bundle claims to support every Kubernetes version."
    CSV_7 "CSV-7" Error (Elsewhere) "spec.minKubeVersion is a semantic version such as 1.26.0"
        "Catalog tools reject an invalid value."
    CSV_8 "CSV-8" Note (Csv(csv::examples)) "the annotation alm-examples has one object of each API that the bundle provides"
        "Consoles generate their forms from it."
    CSV_9 "CSV-9" Error (Elsewhere) "the annotation alm-examples is a JSON list of objects of provided APIs"
        "Consoles generate their forms from it, and operator-sdk rejects examples of other APIs."
    CSV_10 "CSV-10" Error (Bundle(csv::release)) "with spec.release, the name is <package>-v<version>-<release>, and olm.substitutesFor is not set"
        "The name identifies a release of a bundle; releases replace olm.substitutesFor."
    CSV_11 "CSV-11" Error (Csv(csv::required_fields)) "apiVersion, spec.displayName, spec.install.strategy and spec.install.spec.deployments are set"
        "The API requires them, and operator-sdk rejects a ClusterServiceVersion without them."
    CSV_12 "CSV-12" Note (Csv(csv::strategy)) "spec.install.strategy is `deployment`"
        "There is no other strategy; the installation ignores the value."
    CSV_13 "CSV-13" Error (Csv(csv::annotation_keys)) "known annotations are spelled in the correct case"
        "An annotation olm.skiprange instead of olm.skipRange has no effect."
    CSV_14 "CSV-14" Error (Csv(csv::skip_range)) "the annotation olm.skipRange is a version range such as `>=1.0.0 <1.2.0`"
        "An invalid range selects nothing, and catalogs with it are rejected."
    CSV_15 "CSV-15" Warning (Csv(csv::api_version)) "the apiVersion of the ClusterServiceVersion is operators.coreos.com/v1alpha1"
        "It is identified by its kind alone, but other tools check the apiVersion, too."
    CSV_16 "CSV-16" Error (Elsewhere) "annotations have keys that Kubernetes allows, and together at most 256 KiB"
        "All of them are copied into the pods of every deployment, where the API server checks them. Shorten alm-examples."
    CSV_17 "CSV-17" Warning (Csv(edges::earlier_bundles)) "spec.replaces and spec.skips have names of bundles of lower versions, such as my-operator.v1.0.0"
        "A version is the name of no bundle, so that installations of it are never upgraded. From a higher version the upgrade would be a downgrade."
    CSV_18 "CSV-18" Warning (Csv(edges::skip_range)) "the annotation olm.skipRange has lower versions only"
        "From a higher version the upgrade would be a downgrade. A range without any lower version has no effect."
    FIELD_1 "FIELD-1" Warning (Bundle(manifests::fields)) "ClusterServiceVersion and CustomResourceDefinitions have only known fields"
        "Unknown fields are dropped at installation: most are misspelled or have the wrong indentation."
    FIELD_2 "FIELD-2" Error (Elsewhere) "numbers fit their fields"
        "A number that is too large for 32 bits changes its value without an error."
    DEPLOY_1 "DEPLOY-1" Error (Elsewhere) "deployments have different names, each a DNS-1123 subdomain"
        "Otherwise rendering fails."
    DEPLOY_2 "DEPLOY-2" Error (Csv(deployments::keyed_lists)) "entries of a list in a pod template have different keys, such as ports their containerPort and protocol"
        "operator-controller applies them server-side, and the API server rejects two entries of one key."
    DEPLOY_3 "DEPLOY-3" Warning (Elsewhere) "a container sets each environment variable once"
        "Only the last value is used."
    DEPLOY_4 "DEPLOY-4" Warning (Csv(pods::watched_namespaces)) "the variable WATCH_NAMESPACE fits spec.installModes"
        "Its value is that of `valueFrom.fieldRef.fieldPath: metadata.annotations['olm.targetNamespaces']` in each install mode. Another value makes the operator watch other namespaces than the installation asks for."
    DEPLOY_5 "DEPLOY-5" Warning (Csv(pods::missing_files)) "arguments name files that a volume has"
        "Certificates of cert-manager, such as that of --metrics-cert-path, are not part of a bundle: the operator exits at its start if the file is missing. `bundle generate --strip-metrics-certs` removes the argument."

    // CRDs and other objects: docs/design/bundles.md#bundle-validators, docs/design/bundles.md#shipped-objects,
    // docs/design/cli.md#bundle-validation, docs/design/cli.md#kinds-in-a-bundle.
    CRD_1 "CRD-1" Error (Elsewhere) "CustomResourceDefinitions have different names, and each owned one is in the bundle"
        "Every name in spec.customresourcedefinitions.owned needs a manifest of a CustomResourceDefinition."
    CRD_2 "CRD-2" Error (Bundle(manifests::owned_crds)) "each owned version and kind is one of its CustomResourceDefinition"
        "Otherwise the CustomResourceDefinition does not serve an API that the ClusterServiceVersion declares."
    CRD_3 "CRD-3" Error (Bundle(manifests::unique_crds)) "one CustomResourceDefinition for each group and kind"
        "The API server would serve only one of them."
    CRD_4 "CRD-4" Warning (Bundle(manifests::unowned_crds)) "each CustomResourceDefinition is owned by the ClusterServiceVersion"
        "It is installed, but not listed as an API of the bundle; operator-sdk rejects the bundle."
    CRD_5 "CRD-5" Error (Bundle(manifests::crd_shape)) "a CustomResourceDefinition has a scope, versions with schemas, and stores one of them"
        "Otherwise the API server rejects it."
    CRD_6 "CRD-6" Error (Bundle(conversion::conversions)) "spec.conversion of a CustomResourceDefinition is complete"
        "Otherwise the API server rejects it: strategy Webhook needs a client configuration and review versions, strategy None has no webhook. Conversions that the ClusterServiceVersion defines replace those of the manifest."
    CRD_7 "CRD-7" Warning (Elsewhere) "a conversion webhook is a ConversionWebhook of the ClusterServiceVersion"
        "OLM creates Service and certificate for no other one: unless the operator does so itself, each request for the custom resources fails."
    OBJ_1 "OBJ-1" Error (Elsewhere) "objects are of the kinds that a bundle may contain"
        "Besides its ClusterServiceVersion and CustomResourceDefinitions, operator-controller refuses other kinds. The list of kinds follows the rules."
    OBJ_2 "OBJ-2" Error (Bundle(manifests::service_accounts)) "no ServiceAccount has the name of one that a deployment uses"
        "Service accounts of deployments are generated from the permissions of the ClusterServiceVersion. Remove the manifest or rename one of the two."
    OBJ_3 "OBJ-3" Warning (Bundle(manifests::namespaces)) "a VerticalPodAutoscaler has a namespace"
        "Its namespace is not set at installation, unlike that of other objects."
    OBJ_4 "OBJ-4" Warning (Elsewhere) "objects have no namespace"
        "All namespaced objects are installed into the namespace of the installation."
    OBJ_5 "OBJ-5" Warning (Bundle(manifests::subjects)) "bindings to service accounts of the bundle name no namespace"
        "The accounts are in the namespace of the installation. permissions and clusterPermissions of the ClusterServiceVersion are bound to them there."
    KUBE_1 "KUBE-1" Error (Bundle(manifests::removed_apis)) "objects are of API versions that Kubernetes still serves"
        "Others cannot be applied. --k8s-version is the Kubernetes version that the bundle targets."
    KUBE_2 "KUBE-2" Error (Bundle(manifests::target_kubernetes)) "spec.minKubeVersion is not higher than the Kubernetes version that the bundle targets"
        "Checked with --k8s-version."

    // Webhooks: docs/design/bundles.md#bundle-validators, docs/design/bundles.md#author-checks.
    WEBHOOK_1 "WEBHOOK-1" Error (Elsewhere) "a bundle with a conversion webhook supports AllNamespaces only"
        "A CustomResourceDefinition has one conversion webhook for the whole cluster."
    WEBHOOK_2 "WEBHOOK-2" Error (Elsewhere) "webhook definitions have different names, a deployment, and owned CustomResourceDefinitions"
        "Otherwise rendering fails."
    WEBHOOK_3 "WEBHOOK-3" Warning (Csv(csv::webhook_types)) "the type of a webhook definition is ValidatingAdmissionWebhook, MutatingAdmissionWebhook or ConversionWebhook"
        "For an unknown type, a certificate and a Service are created, but no webhook."
    WEBHOOK_4 "WEBHOOK-4" Warning (Csv(csv::blocking_webhooks)) "a webhook that fails closed has no rule for all resources, or for pods and other resources that the operator needs to start"
        "While the operator is down, such a webhook blocks the creation of its own pods. Narrow the rule, set an objectSelector, or set failurePolicy: Ignore."
    WEBHOOK_5 "WEBHOOK-5" Warning (Csv(conversion::without_crds)) "a ConversionWebhook has conversionCRDs"
        "Otherwise it converts nothing."

    // Aggregated APIs: docs/design/bundles.md#aggregated-apis.
    API_1 "API-1" Error (Elsewhere) "each group and version of owned APIServices has a valid name and one deployment"
        "Otherwise rendering fails."

    // Images and size: docs/design/cli.md#lint-rules.
    IMG_1 "IMG-1" Note (Csv(images::images)) "images have a digest"
        "The image of a tag may change, and mirrors of disconnected clusters work by digest."
    IMG_2 "IMG-2" Error (Elsewhere) "images are valid image references"
        "registry/repository:tag or registry/repository@sha256:…, without https://."
    IMG_3 "IMG-3" Warning (Csv(pods::operand_images)) "spec.relatedImages has the images in environment variables"
        "Mirrors of a catalog copy the images of the deployments and those of spec.relatedImages. `bundle generate --related-images-from-env` adds them."
    SIZE_1 "SIZE-1" Note (Bundle(manifests::size)) "the bundle, each file compressed, has at most 85 % of 1 MiB"
        "Classic OLM stores a bundle in one ConfigMap."
    SIZE_2 "SIZE-2" Error (Elsewhere) "the bundle, each file compressed, has at most 1 MiB"
        "operator-sdk rejects it: it does not fit into one ConfigMap. Remove descriptions from the schemas of large CustomResourceDefinitions."

    // Features that OLM v1 lacks: docs/design/cli.md#lint-rules.
    V1_1 "V1-1" Warning (Elsewhere) "no dependencies"
        "With --dependency-mode=Reject, which is the default, operator-controller installs no bundle with dependencies."
    V1_2 "V1-2" Warning (Csv(csv::usable_mode)) "one of AllNamespaces, SingleNamespace and OwnNamespace is supported"
        "Several watched namespaces need the feature gate MultiWatchNamespaces."
    V1_3 "V1-3" Warning (Csv(csv::operator_conditions)) "the operator does not need an OperatorCondition"
        "Without gate OperatorConditionCompat, OLM v1 creates no OperatorCondition and sets no OPERATOR_CONDITION_NAME: an operator that requires them fails at its start."
    V1_4 "V1-4" Warning (Csv(csv::api_services)) "no owned APIService"
        "Without gate OwnedAPIServices, operator-controller refuses bundles with aggregated APIs."
    V1_5 "V1-5" Error (Elsewhere) "rules of admission webhooks do not match OLM or other webhooks"
        "All API groups except `*` and olm.operatorframework.io are allowed, and in admissionregistration.k8s.io all resources except webhook configurations."
    V1_6 "V1-6" Warning (Csv(csv::native_apis)) "no spec.nativeAPIs"
        "Only with the feature gate ClusterConstraints does operator-controller check that the cluster serves them."
    RENDER_1 "RENDER-1" Error (Elsewhere) "the bundle can be rendered for every install mode that it supports"
        "Checked with the renderer of operator-controller."
    RENDER_2 "RENDER-2" Error (Elsewhere) "the rendered objects can be applied"
        "Otherwise the API server or operator-controller would reject the objects."
}

/// All rules, by group.
pub fn rules() -> impl Iterator<Item = &'static Rule> + Clone {
    DECLARED.iter().map(|declared| &declared.rule)
}

/// Groups of rules whose errors prevent an installation by OLM v1.
const INSTALLATION: [&str; 8] = ["API", "CRD", "DEPLOY", "KUBE", "OBJ", "RENDER", "V1", "WEBHOOK"];
/// Rules of these groups whose errors other tools report, while OLM v1 installs the bundle.
static TOLERATED: &[&Declared<Check>] = &[&CRD_2, &OBJ_2];
/// Rules about what OLM v1 refuses unless an administrator allows it: dependencies, several watched namespaces and owned
/// APIServices.
static OFF_BY_DEFAULT: &[&Declared<Check>] = &[&V1_1, &V1_2, &V1_4];

/// Reports whether OLM v1 cannot install a bundle with this finding.
pub fn prevents_installation(finding: &BundleFinding) -> bool {
    let id = finding.rule.id;
    let group = id.split_once('-').map_or(id, |(group, _)| group);
    finding.level == Level::Error && INSTALLATION.contains(&group) && !has(TOLERATED, id)
}

/// Reports whether OLM v1 refuses a bundle with this finding by default.
pub fn is_refused_by_default(finding: &BundleFinding) -> bool {
    has(OFF_BY_DEFAULT, finding.rule.id)
}

fn has(rules: &[&Declared<Check>], id: &str) -> bool {
    rules.iter().any(|declared| declared.rule.id == id)
}

/// Rules about mistakes that only show in a cluster, and that the manifests of a project often bring into a bundle.
pub static TRAPS: &[&Rule] = &[
    &FILE_6.rule,
    &CRD_7.rule,
    &OBJ_4.rule,
    &OBJ_5.rule,
    &DEPLOY_4.rule,
    &DEPLOY_5.rule,
    &IMG_3.rule,
    &CSV_17.rule,
    &CSV_18.rule,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rule_ids_are_unique_group_and_number() {
        let ids: BTreeSet<_> = rules().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), rules().count());
        for id in ids {
            let (group, number) = id.split_once('-').unwrap();
            assert!(group.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()), "{id}");
            assert!(number.parse::<u8>().is_ok(), "{id}");
        }
    }
}
