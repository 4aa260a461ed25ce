//! Rules on CRDs, other objects, fields, images, webhooks, Kubernetes versions and size.

use super::fixture::{CRD, Files, compare};

// docs/design/cli.md#bundle-validation: owned CRDs
#[test]
fn crd_rules_report_owned_and_shipped_crds() {
    let good = Files::good;
    compare(&[
        (
            good().csv("      version: v1\n      kind: Lamp\n", "      version: v2\n      kind: Light\n"),
            &[
                "note: manifests/csv.yaml:6: ClusterServiceVersion lamp.v1.2.0: metadata.annotations.alm-examples: no \
                 example of the provided Light of light.example.com/v2 [CSV-8]",
                "error: manifests/csv.yaml:6: ClusterServiceVersion lamp.v1.2.0: metadata.annotations.alm-examples: an \
                 example is a Lamp of light.example.com/v1, which the bundle does not provide [CSV-9]",
                "error: manifests/csv.yaml:22: ClusterServiceVersion lamp.v1.2.0: \
                 spec.customresourcedefinitions.owned[0].version: lamps.light.example.com has no version \"v2\"; it has: v1 \
                 [CRD-2]",
                "error: manifests/csv.yaml:23: ClusterServiceVersion lamp.v1.2.0: \
                 spec.customresourcedefinitions.owned[0].kind: lamps.light.example.com defines the kind \"Lamp\", not \"Light\" \
                 [CRD-2]",
            ],
        ),
        // Case bundles-19
        (
            good().without("manifests/lamps.crd.yaml"),
            &[
                "error: manifests/csv.yaml:21: ClusterServiceVersion lamp.v1.2.0: spec.customresourcedefinitions.owned[0]: cluster \
               service definition references owned custom resource definition 'lamps.light.example.com' not found in bundle \
               [CRD-1]",
            ],
        ),
        (
            good().with("manifests/more.yaml", CRD),
            &[
                "error: manifests/more.yaml:1: CustomResourceDefinition lamps.light.example.com: bundle contains duplicate custom \
               resource definition 'lamps.light.example.com' [CRD-1]",
            ],
        ),
    ]);
}

#[test]
fn crd_rules_report_extra_and_invalid_crds() {
    let good = Files::good;
    let second = CRD.replace("lamps", "lamps2").replace("listKind: LampList, ", "");
    compare(&[
        (
            good().with("manifests/more.yaml", &second),
            &[
                "error: manifests/more.yaml:7: CustomResourceDefinition lamps2.light.example.com: spec.names.kind: Lamp of group \
               \"light.example.com\" is already defined by \"lamps.light.example.com\" [CRD-3]",
            ],
        ),
        (
            good().with("manifests/more.yaml", &second.replace("Lamp", "Other")),
            &["warning: manifests/more.yaml:1: CustomResourceDefinition lamps2.light.example.com: not in \
               spec.customresourcedefinitions.owned of the ClusterServiceVersion: add it there, or remove the manifest \
               [CRD-4]"],
        ),
        (
            good()
                .crd("scope: Namespaced", "scope: Global")
                .crd("storage: true", "storage: false")
                .crd("    schema:\n      openAPIV3Schema: {type: object}\n", ""),
            &[
                "error: manifests/lamps.crd.yaml:8: CustomResourceDefinition lamps.light.example.com: spec.scope: \"Global\"; allowed: Cluster and Namespaced [CRD-5]",
                "error: manifests/lamps.crd.yaml:9: CustomResourceDefinition lamps.light.example.com: spec.versions: 0 versions \
                 have storage: true, expected exactly one [CRD-5]",
                "error: manifests/lamps.crd.yaml:10: CustomResourceDefinition lamps.light.example.com: spec.versions[0]: every \
                 version needs schema.openAPIV3Schema [CRD-5]",
            ],
        ),
    ]);
}

#[test]
fn object_rules_report_kinds_accounts_and_namespaces() {
    let good = Files::good;
    compare(&[
        (good().with("manifests/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"), &[]),
        // docs/design/cli.md#bundle-validation; case bundles-22
        (
            good().with("manifests/p.yaml", "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p1\n"),
            &["error: manifests/p.yaml:2: Pod p1: unsupported resource \"p1\" with kind \"Pod\" [OBJ-1]"],
        ),
        (
            good()
                .with("manifests/s.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: lamp\n"),
            &[
                "error: manifests/s.yaml:4: ServiceAccount lamp: metadata.name: a deployment of the ClusterServiceVersion uses service account \"lamp\", which is generated from its permissions: remove this manifest or rename one of the two [OBJ-2]",
            ],
        ),
        (
            good().with(
                "manifests/v.yaml",
                "apiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata: {name: v}\n",
            ),
            &[
                "warning: manifests/v.yaml:3: VerticalPodAutoscaler v: metadata: the namespace is not set for this kind: set the namespace of the operator [OBJ-3]",
            ],
        ),
    ]);
}

// Case bundles-3: lists are expanded.
#[test]
fn findings_in_list_items_have_line_numbers() {
    let list = "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: p}\n";
    assert_eq!(
        Files::good().with("manifests/l.yaml", list).findings(),
        ["error: manifests/l.yaml:7: Pod p: unsupported resource \"p\" with kind \"Pod\" [OBJ-1]"]
    );
}

// docs/design/bundles.md#author-checks; case bundles-6
#[test]
fn unknown_and_overflowing_fields_are_reported() {
    let good = Files::good;
    compare(&[
        (
            good().csv("- name: manager\n", "- name: manager\n                imagePullPolcy: Always\n"),
            &["warning: manifests/csv.yaml:41: ClusterServiceVersion lamp.v1.2.0: \
               spec.install.spec.deployments[0].spec.template.spec.containers[0].imagePullPolcy: unknown field, dropped when \
               the bundle is installed: check its spelling and its indentation [FIELD-1]"],
        ),
        (
            good().crd("{type: object}", "{type: object, properties: {a: {typ: string}}}"),
            &["warning: manifests/lamps.crd.yaml:14: CustomResourceDefinition lamps.light.example.com: \
               spec.versions[0].schema.openAPIV3Schema.properties.a.typ: unknown field, dropped when the bundle is installed: \
               check its spelling and its indentation [FIELD-1]"],
        ),
        (
            good().csv("selector: {", "minReadySeconds: 99999999999\n          selector: {"),
            &["error: manifests/csv.yaml:34: ClusterServiceVersion lamp.v1.2.0: \
               spec.install.spec.deployments[0].spec.minReadySeconds: the number is too large for this field: allowed: -2147483648 to 2147483647 [FIELD-2]"],
        ),
        (good().csv("spec:\n", "status: {phase: x}\nspec:\n"), &[]),
    ]);
}

#[test]
fn image_rules_report_tags_and_invalid_references() {
    let good = Files::good;
    let digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    compare(&[
        (
            good().csv(
                &format!("image: quay.io/light/lamp{digest}\n  customresource"),
                "image: quay.io/light/lamp:v1\n  customresource",
            ),
            &[
                "note: manifests/csv.yaml:18: ClusterServiceVersion lamp.v1.2.0: spec.relatedImages[0].image: \
               \"quay.io/light/lamp:v1\" has a tag: use a digest [IMG-1]",
            ],
        ),
        (
            good().csv(
                &format!("image: quay.io/light/lamp{digest}\n  customresource"),
                "image: https://quay.io/lamp\n  - {name: x}\n  customresource",
            ),
            &[
                "error: manifests/csv.yaml:18: ClusterServiceVersion lamp.v1.2.0: spec.relatedImages[0].image: \
                 \"https://quay.io/lamp\" is not an image reference: expected registry/repository:tag or \
                 registry/repository@sha256:… [IMG-2]",
                "error: manifests/csv.yaml:19: ClusterServiceVersion lamp.v1.2.0: spec.relatedImages[1].image: the image is \
                 missing [IMG-2]",
            ],
        ),
    ]);
}

fn webhook(fields: &str) -> Files {
    Files::good().csv("  install:\n", &format!("  webhookdefinitions:\n  - {{{fields}}}\n  install:\n"))
}

/// Fields of a validating webhook.
const VALIDATING: &str = "type: ValidatingAdmissionWebhook, generateName: v.lamp.example.com, deploymentName: lamp, containerPort: 443";

/// Rule of a webhook for the creation of these objects.
fn rule(group: &str, resource: &str) -> String {
    format!(
        "rules: [{{apiGroups: [{group}], apiVersions: ['*'], resources: [{resource}], operations: [CREATE]}}]"
    )
}

#[test]
fn webhook_rules_report_invalid_and_vital_rules() {
    let (start, rest) = (VALIDATING, "sideEffects: None, admissionReviewVersions: [v1]");
    let lamps = rule("light.example.com", "'*'");
    compare(&[
        (webhook(&format!("{start}, {rest}, {lamps}")), &[]),
        // Case bundles-21
        (
            webhook(&format!("{start}, {rest}, {}", rule("'*'", "lamps"))),
            &[
                "error: manifests/csv.yaml:25: ClusterServiceVersion lamp.v1.2.0: spec.webhookdefinitions[0]: webhook \
               \"v.lamp.example.com\" contains forbidden rule: admission webhook rules cannot reference API group \"*\" \
               [V1-5]",
            ],
        ),
        (
            webhook(&format!("{start}, {lamps}")),
            &[
                "error: manifests/csv.yaml:25: spec.webhookdefinitions[0]: ValidatingWebhookConfiguration \
                 \"v.lamp.example.com\": webhooks.0.admissionReviewVersions has neither v1 nor v1beta1 [RENDER-2]",
                "error: manifests/csv.yaml:25: spec.webhookdefinitions[0]: ValidatingWebhookConfiguration \
                 \"v.lamp.example.com\": webhooks.0.sideEffects is missing, allowed: None and NoneOnDryRun [RENDER-2]",
            ],
        ),
        (
            webhook(&format!("{start}, {rest}, {}", rule("''", "pods"))),
            &[
                "warning: manifests/csv.yaml:25: ClusterServiceVersion lamp.v1.2.0: spec.webhookdefinitions[0].rules[0]: while \
               the operator is down, every request for \"pods\" is rejected, including those that would start it: narrow the \
               rule, set an objectSelector, or set failurePolicy: Ignore [WEBHOOK-4]",
            ],
        ),
        (webhook(&format!("{start}, {rest}, failurePolicy: Ignore, {}", rule("''", "pods"))), &[]),
        (
            webhook(&format!(
                "{start}, {rest}, objectSelector: {{matchLabels: {{a: b}}}}, {}",
                rule("''", "'*'")
            )),
            &[],
        ),
    ]);
}

#[test]
fn webhook_rules_report_unknown_types_and_conversions() {
    let (rest, lamps) =
        ("sideEffects: None, admissionReviewVersions: [v1]", rule("light.example.com", "'*'"));
    compare(&[
        (
            webhook(&format!(
                "{rest}, {lamps}, type: Strange, generateName: v.lamp.example.com, deploymentName: nowhere"
            )),
            &[
                "error: manifests/csv.yaml:25: ClusterServiceVersion lamp.v1.2.0: spec.webhookdefinitions[0]: webhook of type \
                 'Strange' with name 'v.lamp.example.com' references non-existent deployment 'nowhere' [WEBHOOK-2]",
                "warning: manifests/csv.yaml:25: ClusterServiceVersion lamp.v1.2.0: spec.webhookdefinitions[0].type: unknown \
                 type \"Strange\", for which no webhook is created; allowed: ValidatingAdmissionWebhook, MutatingAdmissionWebhook, \
                 ConversionWebhook [WEBHOOK-3]",
            ],
        ),
        // Case bundles-20
        (
            webhook(
                "type: ConversionWebhook, generateName: c.lamp.example.com, deploymentName: lamp, containerPort: 443, sideEffects: \
                 None, admissionReviewVersions: [v1], conversionCRDs: [lamps.light.example.com]",
            ),
            &[
                "error: manifests/csv.yaml:25: ClusterServiceVersion lamp.v1.2.0: spec.webhookdefinitions[0]: bundle contains \
               conversion webhook \"c.lamp.example.com\" and supports install modes [AllNamespaces OwnNamespace \
               SingleNamespace] - conversion webhooks are only supported for bundles that only support AllNamespaces install \
               mode [WEBHOOK-1]",
            ],
        ),
    ]);
}

// docs/design/cli.md#authoring-commands: --k8s-version
#[test]
fn removed_api_versions_are_errors_for_target_kubernetes() {
    let budget = "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: b}\n";
    let files = Files::good()
        .with("manifests/b.yaml", budget)
        .csv("minKubeVersion: 1.30.0", "minKubeVersion: 1.24.0");
    let finding = "error: manifests/b.yaml:1: PodDisruptionBudget b: apiVersion: Kubernetes 1.25 and later do not serve \
                policy/v1beta1: use policy/v1 [KUBE-1]";
    let needs = "error: manifests/csv.yaml:10: ClusterServiceVersion lamp.v1.2.0: spec.minKubeVersion: the operator needs \
                 Kubernetes 1.24, the bundle targets 1.23 [KUBE-2]";
    // The install checks require the version that every supported cluster serves.
    let never = "error: manifests/b.yaml:1: PodDisruptionBudget \"b\": apiVersion is \"policy/v1beta1\", it must be \
                 policy/v1 [RENDER-2]";
    for (version, expected) in [
        (None, vec![finding]),
        (Some("1.24"), vec![never]),
        (Some("v1.25.3"), vec![finding]),
        (Some("1.31"), vec![finding]),
        (Some("1.23"), vec![never, needs]),
    ] {
        let kubernetes = version.map(|version| version.parse().unwrap());
        assert_eq!(files.findings_for(kubernetes), expected, "{version:?}");
    }
    for wrong in ["", "1", "x.y", "1.31.0.0"] {
        assert!(wrong.parse::<olm_bundle_check::KubernetesMinor>().is_err(), "{wrong}");
    }
}

// docs/design/cli.md#lint-rules: SIZE-1
#[test]
fn bundle_size_warns_at_85_percent_and_fails_above_limit() {
    // Text that hardly compresses: random characters of an alphabet of 64.
    let noise = |bytes: usize| {
        let mut state = 1_u64;
        let text: String = (0..bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                char::from(
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
                        [(state >> 58) as usize],
                )
            })
            .collect();
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{a: \"{text}\"}}\n")
    };
    for (bytes, expected) in [(700_000, None), (950_000, Some("SIZE-1")), (1_100_000, Some("SIZE-2"))] {
        let findings = Files::good().with("manifests/c.yaml", &noise(bytes)).findings();
        let ids: Vec<_> = findings
            .iter()
            .filter_map(|line| line.split_once('[').map(|(_, id)| id.trim_end_matches(']')))
            .collect();
        assert_eq!(ids, expected.into_iter().collect::<Vec<_>>(), "{findings:?}");
    }
}
