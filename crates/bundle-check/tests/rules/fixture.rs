//! Valid bundle and modifications of it.

use std::collections::BTreeMap;

use olm_bundle_check::{KubernetesMinor, check};

pub(crate) const ANNOTATIONS: &str = "\
annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
  operators.operatorframework.io.bundle.package.v1: lamp
  operators.operatorframework.io.bundle.channels.v1: beta,stable
  operators.operatorframework.io.bundle.channel.default.v1: stable
";

pub(crate) const CSV: &str = r#"apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: lamp.v1.2.0
  annotations:
    alm-examples: '[{"apiVersion": "light.example.com/v1", "kind": "Lamp", "metadata": {"name": "l"}}]'
spec:
  displayName: Lamp
  version: 1.2.0
  minKubeVersion: 1.30.0
  installModes:
  - {type: OwnNamespace, supported: true}
  - {type: SingleNamespace, supported: true}
  - {type: MultiNamespace, supported: false}
  - {type: AllNamespaces, supported: true}
  relatedImages:
  - name: lamp
    image: quay.io/light/lamp@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
  customresourcedefinitions:
    owned:
    - name: lamps.light.example.com
      version: v1
      kind: Lamp
  install:
    strategy: deployment
    spec:
      clusterPermissions:
      - serviceAccountName: lamp
        rules:
        - {apiGroups: [light.example.com], resources: ['*'], verbs: ['*']}
      deployments:
      - name: lamp
        spec:
          selector: {matchLabels: {app: lamp}}
          template:
            metadata: {labels: {app: lamp}}
            spec:
              serviceAccountName: lamp
              containers:
              - name: manager
                image: quay.io/light/lamp@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
"#;

pub(crate) const CRD: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: lamps.light.example.com
spec:
  group: light.example.com
  names: {kind: Lamp, listKind: LampList, plural: lamps, singular: lamp}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object}
";

/// Files of a bundle.
#[derive(Debug, Clone)]
pub(crate) struct Files(pub(crate) BTreeMap<String, Vec<u8>>);

impl Files {
    /// Bundle without findings.
    pub(crate) fn good() -> Self {
        Self(BTreeMap::new())
            .with("metadata/annotations.yaml", ANNOTATIONS)
            .with("manifests/csv.yaml", CSV)
            .with("manifests/lamps.crd.yaml", CRD)
    }

    /// Adds or replaces a file.
    pub(crate) fn with(mut self, path: &str, text: &str) -> Self {
        self.0.insert(path.to_owned(), text.as_bytes().to_vec());
        self
    }

    /// Removes a file.
    pub(crate) fn without(mut self, path: &str) -> Self {
        self.0.remove(path).unwrap();
        self
    }

    /// Replaces `old` in a file, which must contain it.
    pub(crate) fn replaced(mut self, path: &str, old: &str, new: &str) -> Self {
        let file = self.0.get_mut(path).unwrap();
        let text = String::from_utf8(file.clone()).unwrap();
        assert!(text.contains(old), "{path} has no {old}");
        *file = text.replacen(old, new, 1).into_bytes();
        self
    }

    /// Replaces `old` in the ClusterServiceVersion.
    pub(crate) fn csv(self, old: &str, new: &str) -> Self {
        self.replaced("manifests/csv.yaml", old, new)
    }

    /// Replaces `old` in the annotations.
    pub(crate) fn annotations(self, old: &str, new: &str) -> Self {
        self.replaced("metadata/annotations.yaml", old, new)
    }

    /// Replaces `old` in the CRD.
    pub(crate) fn crd(self, old: &str, new: &str) -> Self {
        self.replaced("manifests/lamps.crd.yaml", old, new)
    }

    /// Findings with their levels, one per line.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.findings_for(None)
    }

    /// Findings for this Kubernetes version.
    pub(crate) fn findings_for(&self, kubernetes: Option<KubernetesMinor>) -> Vec<String> {
        let findings = check(&self.0, kubernetes).findings;
        findings.iter().map(|finding| format!("{}: {finding}", finding.level.name())).collect()
    }
}

/// Compares the findings of each bundle.
pub(crate) fn compare(rows: &[(Files, &[&str])]) {
    for (number, (files, expected)) in rows.iter().enumerate() {
        assert_eq!(files.findings(), *expected, "row {number}");
    }
}
