//! Values shaped like manifests: known fields in their places, and sometimes other content instead.
//!
//! Text from a fuzzer is rarely a ClusterServiceVersion. Here its bytes choose between possible values of a field,
//! so that the code after the parser is reached as well.

#![allow(dead_code)]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

const NAMES: [&str; 14] = [
    "a",
    "b",
    "c",
    "d",
    "ns",
    "a.example.com",
    "b.example.com",
    "",
    "A_",
    "*",
    "default",
    "webhook-cert",
    "olm.operatorframework.io",
    "a-name-that-is-so-long-that-whatever-is-added-to-it-must-be-cut-off",
];

const FIELDS: [&str; 24] = [
    "type",
    "properties",
    "items",
    "additionalProperties",
    "enum",
    "required",
    "default",
    "nullable",
    "oneOf",
    "not",
    "minimum",
    "maxLength",
    "pattern",
    "format",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "name",
    "value",
    "metadata",
    "spec",
    "a",
    "b",
];

/// Generator that chooses by the bytes of the fuzzer. Once they are used up, it chooses the first option.
pub(crate) struct Shapes<'a, 'b>(pub(crate) &'b mut Unstructured<'a>);

impl Shapes<'_, '_> {
    pub(crate) fn flag(&mut self) -> Result<bool> {
        self.0.arbitrary()
    }

    /// `true` once in `among` times.
    fn rarely(&mut self, among: u8) -> Result<bool> {
        Ok(self.0.arbitrary::<u8>()? % among == among - 1)
    }

    fn one(&mut self, of: &[&str]) -> Result<Value> {
        Ok(json!(self.0.choose(of)?))
    }

    pub(crate) fn name(&mut self) -> Result<String> {
        if self.rarely(24)? {
            let length = self.0.int_in_range(0..=12)?;
            return Ok(String::from_utf8_lossy(self.0.bytes(length)?).into_owned());
        }
        Ok((*self.0.choose(&NAMES)?).to_owned())
    }

    /// List of up to `most` results of `item`.
    fn list(&mut self, most: usize, mut item: impl FnMut(&mut Self) -> Result<Value>) -> Result<Value> {
        let count = self.0.int_in_range(0..=most)?;
        (0..count).map(|_| item(self)).collect::<Result<Vec<_>>>().map(Value::Array)
    }

    fn texts(&mut self) -> Result<Value> {
        self.list(3, |shapes| Ok(json!(shapes.name()?)))
    }

    fn text_map(&mut self) -> Result<Value> {
        let count = self.0.int_in_range(0..=2)?;
        let entries = (0..count).map(|_| Ok((self.name()?, json!(self.name()?))));
        entries.collect::<Result<Map<_, _>>>().map(Value::Object)
    }

    /// Any JSON value.
    pub(crate) fn any(&mut self, depth: usize) -> Result<Value> {
        Ok(match self.0.int_in_range(0..=if depth == 0 { 6 } else { 9 })? {
            0 => Value::Null,
            1 => json!(self.flag()?),
            2 => json!(self.0.int_in_range(-3..=70_000)?),
            3 => json!(self.0.arbitrary::<i64>()?),
            4 => json!(self.0.arbitrary::<f64>()?),
            5 => self.one(&[
                "string",
                "object",
                "array",
                "integer",
                "1Gi",
                "100m",
                "date-time",
                "a",
                "[",
                "2",
            ])?,
            6 => json!(self.name()?),
            7 => self.list(3, |shapes| shapes.any(depth - 1))?,
            _ => self.fields(depth - 1)?,
        })
    }

    fn fields(&mut self, depth: usize) -> Result<Value> {
        let count = self.0.int_in_range(0..=4)?;
        let entries = (0..count).map(|_| {
            let field = (*self.0.choose(&FIELDS)?).to_owned();
            Ok((field, self.any(depth)?))
        });
        entries.collect::<Result<Map<_, _>>>().map(Value::Object)
    }

    /// Usually sets the field to `value`, sometimes to another value or not at all.
    fn set(&mut self, object: &mut Value, field: &str, value: Value) -> Result<()> {
        match self.0.arbitrary::<u8>()? {
            0..220 => object[field] = value,
            255 => object[field] = self.any(2)?,
            _ => {}
        }
        Ok(())
    }

    /// Object with these fields, some of them possibly missing or changed.
    fn object<const N: usize>(&mut self, fields: [(&str, Value); N]) -> Result<Value> {
        let mut object = json!({});
        for (field, value) in fields {
            self.set(&mut object, field, value)?;
        }
        Ok(object)
    }

    fn metadata(&mut self) -> Result<Value> {
        let (name, labels, annotations) = (self.name()?, self.text_map()?, self.text_map()?);
        self.object([("name", json!(name)), ("labels", labels), ("annotations", annotations)])
    }

    fn environment(&mut self) -> Result<Value> {
        self.list(3, |shapes| {
            let (name, value) = (shapes.name()?, shapes.name()?);
            shapes.object([("name", json!(name)), ("value", json!(value))])
        })
    }

    fn resources(&mut self) -> Result<Value> {
        let quantity = self.one(&["1", "100m", "1Gi", "1e3", "-0.1n", "x"])?;
        self.object([("limits", json!({"cpu": quantity, "memory": 5}))])
    }

    fn volumes(&mut self) -> Result<Value> {
        self.list(2, |shapes| Ok(json!({"name": shapes.name()?, "emptyDir": shapes.any(1)?})))
    }

    fn mounts(&mut self) -> Result<Value> {
        let paths = ["/a", "/tmp/k8s-webhook-server/serving-certs", "/apiserver.local.config/certificates"];
        self.list(2, |shapes| Ok(json!({"name": shapes.name()?, "mountPath": shapes.one(&paths)?})))
    }

    fn container(&mut self) -> Result<Value> {
        let (name, env, mounts) = (self.name()?, self.environment()?, self.mounts()?);
        let resources = self.resources()?;
        self.object([
            ("name", json!(name)),
            ("env", env),
            ("volumeMounts", mounts),
            ("resources", resources),
            ("image", json!("i")),
        ])
    }

    fn deployment(&mut self) -> Result<Value> {
        let containers = self.list(2, Self::container)?;
        let (volumes, affinity, metadata) = (self.volumes()?, self.affinity()?, self.metadata()?);
        let pod = self.object([("containers", containers), ("volumes", volumes), ("affinity", affinity)])?;
        let labels = self.text_map()?;
        let template = self.object([("metadata", metadata), ("spec", pod)])?;
        let spec = self.object([("selector", json!({"matchLabels": labels})), ("template", template)])?;
        let (name, label) = (self.name()?, self.text_map()?);
        self.object([("name", json!(name)), ("spec", spec), ("label", label)])
    }

    fn affinity(&mut self) -> Result<Value> {
        let terms = self.list(1, |shapes| shapes.any(1))?;
        let node = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let pod =
            json!({"preferredDuringSchedulingIgnoredDuringExecution": self.list(1, |shapes| shapes.any(1))?});
        self.object([("nodeAffinity", node), ("podAffinity", pod)])
    }

    fn permission(&mut self) -> Result<Value> {
        let rules = self.list(2, |shapes| {
            let (verbs, groups, resources) = (shapes.texts()?, shapes.texts()?, shapes.texts()?);
            shapes.object([("verbs", verbs), ("apiGroups", groups), ("resources", resources)])
        })?;
        let account = self.name()?;
        self.object([("serviceAccountName", json!(account)), ("rules", rules)])
    }

    fn webhook(&mut self) -> Result<Value> {
        let kind =
            self.one(&["ValidatingAdmissionWebhook", "MutatingAdmissionWebhook", "ConversionWebhook", "x"])?;
        let (name, deployment) = (self.name()?, self.name()?);
        let rules = self.list(2, |shapes| {
            let groups = shapes.one(&["a", "*", "admissionregistration.k8s.io"])?;
            Ok(json!({"apiGroups": [groups], "resources": shapes.texts()?, "operations": ["*"]}))
        })?;
        let (port, target, definitions) = (self.any(0)?, self.any(0)?, self.texts()?);
        self.object([
            ("type", kind),
            ("generateName", json!(name)),
            ("deploymentName", json!(deployment)),
            ("rules", rules),
            ("conversionCRDs", definitions),
            ("admissionReviewVersions", json!(["v1"])),
            ("sideEffects", json!("None")),
            ("webhookPath", json!("/p")),
            ("containerPort", if port.is_i64() { port } else { json!(9443) }),
            ("targetPort", if target.is_i64() { target } else { json!("web") }),
        ])
    }

    pub(crate) fn service_version(&mut self) -> Result<Value> {
        let modes = ["AllNamespaces", "OwnNamespace", "SingleNamespace", "MultiNamespace"];
        let modes = modes.map(|mode| Ok(json!({"type": mode, "supported": self.flag()?})));
        let modes = modes.into_iter().collect::<Result<Vec<_>>>()?;
        let deployments = self.list(3, Self::deployment)?;
        let permissions = self.list(2, Self::permission)?;
        let cluster = self.list(2, Self::permission)?;
        let strategy = self.object([
            ("deployments", deployments),
            ("permissions", permissions),
            ("clusterPermissions", cluster),
        ])?;
        let webhooks = self.list(3, Self::webhook)?;
        let owned =
            self.list(2, |shapes| Ok(json!({"name": shapes.name()?, "version": "v1", "kind": "A"})))?;
        let services = self.list(2, |shapes| {
            Ok(json!({"name": "a", "group": format!("{}.example.com", shapes.name()?), "version": "v1", "kind": "A",
                "deploymentName": shapes.name()?}))
        })?;
        let spec = self.object([
            ("installModes", json!(modes)),
            ("install", json!({"strategy": "deployment", "spec": strategy})),
            ("webhookdefinitions", webhooks),
            ("apiservicedefinitions", json!({"owned": services})),
            ("customresourcedefinitions", json!({"owned": owned})),
            ("version", json!("1.0.0")),
        ])?;
        let mut metadata = self.metadata()?;
        if self.rarely(4)? {
            let property = json!([{"type": "olm.gvk", "value": self.any(2)?}]);
            metadata["annotations"] = json!({"olm.properties": property.to_string()});
        }
        Ok(json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": metadata, "spec": spec,
        }))
    }

    pub(crate) fn crd(&mut self) -> Result<Value> {
        let version = |shapes: &mut Self| {
            let mut schema = json!({"type": "object", "properties": shapes.properties(3)?});
            if shapes.rarely(8)? {
                schema = shapes.any(3)?;
            }
            let (served, stored) = (shapes.flag()?, shapes.flag()?);
            shapes.object([
                ("served", json!(served)),
                ("storage", json!(stored)),
                ("schema", json!({"openAPIV3Schema": schema})),
            ])
        };
        // API servers accept no two versions with the same name.
        let mut versions = Vec::new();
        for name in ["v1", "v2", "v1beta1", "x"] {
            if self.flag()? {
                let mut version = version(self)?;
                version["name"] = json!(name);
                versions.push(version);
            }
        }
        let scope = self.one(&["Namespaced", "Cluster"])?;
        let conversion = self.one(&["None", "Webhook"])?;
        let spec = self.object([
            ("group", json!("example.com")),
            ("names", json!({"kind": "A", "plural": "a", "singular": "a", "listKind": "AList"})),
            ("versions", json!(versions)),
            ("scope", scope),
            ("conversion", json!({"strategy": conversion})),
        ])?;
        Ok(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()?}, "spec": spec, "status": {"storedVersions": ["v1"]},
        }))
    }

    fn properties(&mut self, depth: usize) -> Result<Value> {
        let mut properties = json!({});
        for name in ["spec", "a", "b"] {
            if self.flag()? {
                let mut schema = self.fields(2)?;
                if depth > 0 && self.flag()? {
                    schema["properties"] = self.properties(depth - 1)?;
                }
                properties[name] = schema;
            }
        }
        Ok(properties)
    }

    /// Manifest of another kind, often an allowed one.
    pub(crate) fn other(&mut self) -> Result<Value> {
        let kinds = ["ConfigMap", "Service", "ClusterRole", "PriorityClass", "ConfigMapList", "Pod"];
        let (kind, metadata, items) = (self.one(&kinds)?, self.metadata()?, self.list(2, |s| s.any(2))?);
        Ok(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "items": items}))
    }

    /// Configuration of a ClusterExtension.
    pub(crate) fn config(&mut self) -> Result<Value> {
        if self.rarely(16)? {
            return self.any(3);
        }
        let mut config = json!({});
        if self.flag()? {
            let namespace = json!(self.name()?);
            self.set(&mut config, "watchNamespace", namespace)?;
        }
        if self.rarely(4)? {
            let namespaces = self.texts()?;
            self.set(&mut config, "watchNamespaces", namespaces)?;
        }
        if self.flag()? {
            let (env, volumes, mounts) = (self.environment()?, self.volumes()?, self.mounts()?);
            let (resources, affinity) = (self.resources()?, self.affinity()?);
            let (selector, annotations, tolerations) = (
                self.text_map()?,
                self.text_map()?,
                self.list(2, |shapes| Ok(json!({"key": shapes.name()?})))?,
            );
            let deployments = self.object([
                ("env", env),
                ("volumes", volumes),
                ("volumeMounts", mounts),
                ("resources", resources),
                ("affinity", affinity),
                ("nodeSelector", selector),
                ("annotations", annotations),
                ("tolerations", tolerations),
            ])?;
            self.set(&mut config, "deploymentConfig", deployments)?;
        }
        Ok(config)
    }
}
