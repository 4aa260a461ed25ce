//! Cluster with packages that classic OLM has installed. The classic kinds are CRDs without controllers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use olm_api::ClusterExtension;
use olm_control_plane::{PATIENCE, eventually};
use olm_servers::{
    Bundle, Call, Catalog, Fault, NAMESPACE, Programs, Proxy, Published, Rule, Server, ServerFixture, When,
    Workloads,
};
use serde_json::{Value, json};

const OLM: &str = env!("CARGO_BIN_EXE_olm");
const VERSION: &str = "1.0.0";
const CLASSIC: &str = "operators.coreos.com";
/// Classic kinds: version, kind, plural, scope.
const KINDS: [(&str, &str, &str, &str); 8] = [
    ("v1alpha1", "Subscription", "subscriptions", "Namespaced"),
    ("v1alpha1", "ClusterServiceVersion", "clusterserviceversions", "Namespaced"),
    ("v1alpha1", "InstallPlan", "installplans", "Namespaced"),
    ("v1alpha1", "CatalogSource", "catalogsources", "Namespaced"),
    ("v1", "OperatorGroup", "operatorgroups", "Namespaced"),
    ("v2", "OperatorCondition", "operatorconditions", "Namespaced"),
    ("v1", "Operator", "operators", "Cluster"),
    ("v1", "OLMConfig", "olmconfigs", "Cluster"),
];
/// Kinds of the objects of a package: group, version, kind.
const OBJECTS: [(&str, &str, &str); 11] = [
    (CLASSIC, "v1alpha1", "Subscription"),
    (CLASSIC, "v1alpha1", "ClusterServiceVersion"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "ServiceAccount"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "ReplicaSet"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
];

/// Exit code and output of `olm`. The code of a killed process is -1.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) struct Fixture {
    servers: ServerFixture,
    _controller: Server,
    _catalogd: Server,
    _workloads: Workloads,
}

/// Objects of a package, by kind and name.
pub(crate) type Objects = BTreeMap<String, Value>;

impl Fixture {
    /// Starts the cluster with this number of packages, each in a namespace of its name.
    pub(crate) async fn start(packages: usize) -> Self {
        let programs = Programs::beside(Path::new(OLM).with_file_name("operator-controller")).unwrap();
        let servers = ServerFixture::start(programs).await.unwrap();
        servers.plane.apply_crds(&KINDS.map(crd)).await.unwrap();
        let workloads = Workloads::start(servers.client());
        let catalogd = servers.start_catalogd().await.unwrap();
        let controller = servers.start_controller().await.unwrap();
        let fixture = Self { servers, _controller: controller, _catalogd: catalogd, _workloads: workloads };
        let mut catalog = Catalog::default();
        let bundles: Vec<Bundle> =
            (0..packages).map(|number| Bundle::sample(&Self::name(number), VERSION)).collect();
        for bundle in &bundles {
            let published: Published = fixture.servers.publish(bundle).unwrap();
            catalog = catalog.chain(&[published]);
        }
        fixture.servers.serve("packages", &catalog).await.unwrap();
        let folder = fixture.servers.file("catalog");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("catalog.json"), catalog.text()).unwrap();
        let image = fixture.servers.push_catalog("packages", &catalog).unwrap();
        fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "olm"}})).await;
        fixture
            .create(classic(
                "v1alpha1",
                "CatalogSource",
                "olm",
                "packages",
                json!({"image": image, "sourceType": "grpc"}),
            ))
            .await;
        for bundle in &bundles {
            fixture.install(bundle).await;
        }
        for bundle in &bundles {
            fixture.wait_for_deployment(&bundle.package).await;
        }
        fixture
    }

    /// Name of a package of fixed length, so that no name is a prefix of another.
    pub(crate) fn name(number: usize) -> String {
        format!("m{number:03}")
    }

    pub(crate) fn client(&self) -> Client {
        self.servers.client()
    }

    pub(crate) fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }

    /// Creates an object with its status. Returns its UID.
    pub(crate) async fn create(&self, object: Value) -> String {
        let api = self.api(&object);
        let parsed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let created = api.create(&PostParams::default(), &parsed).await.unwrap();
        if object["status"].is_object() {
            let status = Patch::Merge(json!({"status": object["status"]}));
            api.patch_status(&created.name_any(), &PatchParams::default(), &status).await.unwrap();
        }
        created.uid().unwrap()
    }

    /// Creates the objects that classic OLM makes for the bundle.
    async fn install(&self, bundle: &Bundle) {
        let (name, csv_name) = (bundle.package.as_str(), bundle.name());
        self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
        self.create(classic("v1", "OperatorGroup", name, "group", json!({}))).await;
        let files = bundle.files();
        let mut csv: Value =
            serde_json::from_slice(&files["manifests/operator.clusterserviceversion.yaml"]).unwrap();
        csv["metadata"]["namespace"] = json!(name);
        csv["metadata"]["finalizers"] = json!(["operators.coreos.com/csv-cleanup"]);
        let properties = json!({"properties": [{"type": "olm.package", "value": {"packageName": name, "version": VERSION}}]});
        csv["metadata"]["annotations"] = json!({"operatorframework.io/properties": properties.to_string()});
        csv["status"] = json!({"phase": "Succeeded"});
        let uid = self.create(csv.clone()).await;
        let mut subscription = classic(
            "v1alpha1",
            "Subscription",
            name,
            name,
            json!({
            "name": name, "channel": "stable", "source": "packages", "sourceNamespace": "olm"}),
        );
        subscription["status"] =
            json!({"installedCSV": csv_name, "currentCSV": csv_name, "state": "AtLatestKnown"});
        self.create(subscription).await;
        let reference = json!([{"apiVersion": format!("{CLASSIC}/v1alpha1"), "kind": "ClusterServiceVersion",
            "name": csv_name, "uid": uid, "controller": false, "blockOwnerDeletion": false}]);
        let labels = json!({"olm.owner": csv_name, "olm.owner.kind": "ClusterServiceVersion",
            "olm.owner.namespace": name, "olm.managed": "true", format!("operators.coreos.com/{name}.{name}"): ""});
        let owned = |mut object: Value| {
            object["metadata"]["namespace"] = json!(name);
            object["metadata"]["labels"] = labels.clone();
            object["metadata"]["ownerReferences"] = reference.clone();
            object
        };
        for (path, text) in &files {
            let mut object: Value = serde_json::from_slice(text).unwrap();
            match object["kind"].as_str() {
                Some("CustomResourceDefinition") => {
                    object["metadata"]["labels"] = json!({"olm.managed": "true"});
                    self.create(object).await;
                }
                Some("ConfigMap" | "Service") => drop(self.create(owned(object)).await),
                _ => {
                    assert!(path.contains("clusterserviceversion") || path.contains("annotations"), "{path}")
                }
            }
        }
        self.create(owned(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})))
            .await;
        let install = &csv["spec"]["install"]["spec"];
        let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": install["deployments"][0]["spec"]});
        deployment["spec"]["revisionHistoryLimit"] = json!(1);
        deployment["spec"]["template"]["metadata"]["annotations"] =
            json!({"olm.operatorGroup": "group", "olm.operatorNamespace": name, "olm.targetNamespaces": ""});
        let deployment = self.create(owned(deployment)).await;
        self.create_roles(name, &csv_name, &labels, &install["clusterPermissions"][0]["rules"]).await;
        self.create_pod(name, &deployment).await;
    }

    /// Waits until the Deployment of a package is available: later, its status would be a difference.
    async fn wait_for_deployment(&self, name: &str) {
        let kind = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": name}});
        let deployments = self.api(&kind);
        eventually("the Deployment is available", async || {
            let status = deployments.get(name).await.unwrap().data["status"].take();
            status["availableReplicas"].is_number().then_some(())
        })
        .await;
    }

    async fn create_roles(&self, name: &str, csv: &str, labels: &Value, rules: &Value) {
        let rbac = "rbac.authorization.k8s.io";
        let metadata = json!({"name": format!("{csv}-hash"), "labels": labels});
        let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        self.create(role).await;
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": name});
        let role = json!({"apiGroup": rbac, "kind": "ClusterRole", "name": format!("{csv}-hash")});
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": role, "subjects": [subject]});
        self.create(binding).await;
    }

    /// Creates a pod of the Deployment with its ReplicaSet.
    async fn create_pod(&self, name: &str, deployment: &str) {
        let owner = |kind: &str, uid: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid}]);
        let pod = json!({"containers": [{"name": "operator", "image": "registry.example/operator"}]});
        let labels = json!({"app": name});
        let set = self.create(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": name, "ownerReferences": owner("Deployment", deployment)},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}}));
        let set = set.await;
        let status = json!({"phase": "Running", "containerStatuses": [{"name": "operator", "restartCount": 0,
            "image": "", "imageID": "", "ready": true}]});
        self.create(json!({"apiVersion": "v1", "kind": "Pod", "status": status, "spec": pod,
            "metadata": {"name": name, "namespace": name, "ownerReferences": owner("ReplicaSet", &set)}}))
            .await;
    }

    /// Objects of the package with UIDs, owners, labels of classic OLM and content, without what every write changes.
    pub(crate) async fn objects(&self, package: &str) -> Objects {
        let mut objects = Objects::new();
        for (group, version, kind) in OBJECTS {
            let gvk = GroupVersionKind::gvk(group, version, kind);
            let api: Api<DynamicObject> = Api::all_with(self.client(), &ApiResource::from_gvk(&gvk));
            for object in api.list(&ListParams::default()).await.unwrap() {
                let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
                let is_of_package =
                    if namespace.is_empty() { name.contains(package) } else { namespace == package };
                if !is_of_package || name == "kube-root-ca.crt" || name == "default" {
                    continue;
                }
                let mut object = serde_json::to_value(object).unwrap();
                let metadata = object["metadata"].as_object_mut().unwrap();
                for field in ["managedFields", "resourceVersion", "generation", "creationTimestamp"] {
                    metadata.remove(field);
                }
                objects.insert(format!("{kind} {name}"), object);
            }
        }
        objects
    }

    pub(crate) async fn extension(&self, name: &str) -> ClusterExtension {
        self.servers.extensions().get(name).await.unwrap()
    }

    /// Records this UID as that of the extension in the backup. Returns the annotations of the backup.
    pub(crate) async fn record_extension(&self, package: &str, uid: &str) -> BTreeMap<String, String> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": NAMESPACE}});
        let annotations = json!({"ext.olm.operatorframework.io/migration-extension": uid});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let name = format!("olm-migrate-{package}.{package}");
        let patched = self.api(&secret).patch(&name, &PatchParams::default(), &patch).await.unwrap();
        patched.annotations().clone()
    }

    /// Fails unless the package is an extension, with all objects and without owners of classic OLM.
    pub(crate) async fn is_migrated(&self, package: &str, before: &Objects) {
        self.is_migrated_with(package, before, (None, "stable")).await;
    }

    /// As [`Self::is_migrated`], with this version and these channels of the extension.
    pub(crate) async fn is_migrated_with(
        &self,
        package: &str,
        before: &Objects,
        expected: (Option<&str>, &str),
    ) {
        let extension = self.extension(package).await;
        let catalog = extension.spec.as_ref().unwrap().source.catalog.as_ref().unwrap();
        assert_eq!((catalog.version.as_deref(), catalog.channels.join(",").as_str()), expected);
        let is_left = |key: &String| key.ends_with("/adopt") || key.ends_with("/paused");
        assert!(!extension.annotations().keys().any(is_left), "{extension:?}");
        let after = self.objects(package).await;
        for (key, object) in before {
            let is_removed = key.contains("-hash")
                || key.starts_with("Subscription")
                || key.starts_with("ClusterServiceV");
            let now = after.get(key).map(|now| &now["metadata"]["uid"]);
            assert_eq!(now, Some(&object["metadata"]["uid"]).filter(|_| !is_removed), "{key}");
        }
        let deployment = &after[&format!("Deployment {package}")]["metadata"]["ownerReferences"];
        assert_eq!(deployment[0]["kind"], "ClusterObjectSet", "{deployment}");
        assert!(after.keys().any(|key| key.starts_with("ClusterRole ")), "{:?}", after.keys());
        for (key, object) in &after {
            assert!(!object["metadata"].to_string().contains(CLASSIC), "{key}: {object}");
            assert!(object["metadata"]["labels"].get("olm.owner").is_none(), "{key}: {object}");
        }
    }

    /// Waits until the package is as classic OLM left it. Only what was deleted has another UID.
    pub(crate) async fn is_classic(&self, package: &str, before: &Objects) {
        let plain = |objects: &Objects| {
            let mut objects = objects.clone();
            for (key, object) in &mut objects {
                let is_recreated = key.contains("-hash")
                    || !object["status"]["phase"].is_null()
                    || key.starts_with("Subscr");
                let metadata = object["metadata"].as_object_mut().unwrap();
                if is_recreated {
                    metadata.remove("uid");
                }
                if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                    owners.iter_mut().for_each(|owner| owner["uid"] = Value::Null);
                }
                object.as_object_mut().unwrap().remove("status");
            }
            objects
        };
        let expected = plain(before);
        let mut found = plain(&self.objects(package).await);
        let deadline = std::time::Instant::now() + PATIENCE;
        while found != expected && std::time::Instant::now() < deadline {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            found = plain(&self.objects(package).await);
        }
        for key in expected.keys().chain(found.keys()) {
            assert_eq!(found.get(key), expected.get(key), "{key}");
        }
        eventually("the extension is deleted", async || {
            let found = self.servers.extensions().get_opt(package).await.unwrap();
            found.is_none().then_some(())
        })
        .await;
    }

    /// Makes a ConfigMap the owner of the Subscription, and the Subscription the owner of another ConfigMap and of the
    /// InstallPlan of the package.
    pub(crate) async fn create_owners_and_dependents(&self, package: &str) {
        let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": package}});
        let owner = |object: &Value, uid: &str| {
            let name = &object["metadata"]["name"];
            json!([{"apiVersion": object["apiVersion"], "kind": object["kind"], "name": name, "uid": uid, "controller": true}])
        };
        let (parent, mut child) = (map("parent"), map("child"));
        let uid = self.create(parent.clone()).await;
        let subscription = classic("v1alpha1", "Subscription", package, package, Value::Null);
        let owners = Patch::Merge(json!({"metadata": {"ownerReferences": owner(&parent, &uid)}}));
        let api = self.api(&subscription);
        let uid = api.patch(package, &PatchParams::default(), &owners).await.unwrap().uid().unwrap();
        let spec = json!({"clusterServiceVersionNames": [format!("{package}.v{VERSION}")]});
        let mut plan = classic("v1alpha1", "InstallPlan", package, "install-a", spec);
        plan["status"] = json!({"phase": "Complete"});
        for object in [&mut child, &mut plan] {
            object["metadata"]["ownerReferences"] = owner(&subscription, &uid);
            self.create(object.clone()).await;
        }
    }

    /// Reports whether an object in the namespace of the package exists.
    pub(crate) async fn has(&self, api_version: &str, kind: &str, package: &str, name: &str) -> bool {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": package}});
        self.api(&object).get_opt(name).await.unwrap().is_some()
    }

    /// Waits until an object without owner is collected, and thus those that were created before.
    pub(crate) async fn wait_for_garbage_collection(&self, package: &str) {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"});
        let metadata = json!({"name": "garbage", "namespace": package, "ownerReferences": [owner]});
        self.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).await;
        eventually("garbage is collected", async || {
            (!self.has("v1", "ConfigMap", package, "garbage").await).then_some(())
        })
        .await;
    }

    /// Deletes an object in the namespace of the package.
    pub(crate) async fn delete(&self, api_version: &str, kind: &str, package: &str, name: &str) {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": package}});
        self.api(&object).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Path of a file or folder of the test.
    pub(crate) fn file(&self, name: &str) -> String {
        self.servers.file(name).to_str().unwrap().to_owned()
    }

    /// Creates a Lease whose owner is the held ClusterServiceVersion, and one whose owner does not exist.
    pub(crate) async fn create_late_objects(&self, package: &str) {
        let csv = classic("v1alpha1", "ClusterServiceVersion", package, "", Value::Null);
        let (csvs, name) = (self.api(&csv), format!("{package}.v{VERSION}"));
        let held = eventually("the ClusterServiceVersion is held", async || {
            let csv = csvs.get(&name).await.unwrap();
            (csv.finalizers().len() == 1 && csv.metadata.deletion_timestamp.is_some()).then_some(csv)
        });
        let uid = held.await.uid().unwrap();
        for (lease, uid) in [("late", uid.as_str()), ("orphan", "no-such-owner")] {
            let owner =
                json!({"apiVersion": csv["apiVersion"], "kind": csv["kind"], "name": name, "uid": uid});
            self.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": lease, "namespace": package, "ownerReferences": [owner]}}))
                .await;
        }
    }

    /// Waits until the Lease without owner is deleted. Fails unless the other one exists without owner of classic OLM.
    pub(crate) async fn has_late_objects(&self, package: &str) {
        let leases: Api<DynamicObject> = self
            .api(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": package}}));
        eventually("the Lease without owner is deleted", async || {
            leases.get_opt("orphan").await.unwrap().is_none().then_some(())
        })
        .await;
        let late = leases.get("late").await.unwrap();
        assert!(late.owner_references().is_empty(), "{late:?}");
    }

    /// Runs `olm migrate`.
    pub(crate) async fn olm(&self, args: &[&str]) -> Ran {
        self.run(&self.proxy().await, args).await
    }

    /// Runs `olm migrate` with a fault at the call number `index` that `counts`.
    pub(crate) async fn olm_with(
        &self,
        args: &[&str],
        fault: Fault,
        index: usize,
        when: When,
        counts: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> Ran {
        let proxy = self.proxy().await;
        proxy.add(Rule::new(fault, counts).when(when).skip(index).times(1));
        self.run(&proxy, args).await
    }

    /// Number of calls of `olm migrate` that `counts`.
    pub(crate) async fn count_calls(&self, args: &[&str], counts: impl Fn(&Call) -> bool) -> usize {
        let (ran, calls) = self.calls(args).await;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        calls.iter().filter(|call| counts(call)).count()
    }

    /// Runs `olm migrate`, and returns its calls.
    pub(crate) async fn calls(&self, args: &[&str]) -> (Ran, Vec<Call>) {
        let proxy = self.proxy().await;
        (self.run(&proxy, args).await, proxy.calls(0))
    }

    /// Proxy of one run. Runs are concurrent.
    async fn proxy(&self) -> Proxy {
        let proxy = Proxy::start(self.servers.plane.kubeconfig()).await.unwrap();
        proxy.allow_long_lists();
        proxy
    }

    async fn run(&self, proxy: &Proxy, args: &[&str]) -> Ran {
        let mut command = tokio::process::Command::new(OLM);
        command.arg("migrate").args(args).arg("--kubeconfig").arg(proxy.kubeconfig());
        if args[0] == "apply" {
            command.arg("--catalog").arg(self.servers.file("catalog"));
            command.arg("--ca-dir").arg(self.servers.file("registry"));
        }
        command.env_clear().env("HOME", "/nonexistent").env("TMPDIR", self.servers.file("tmp"));
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        proxy.set_process(child.id().unwrap());
        let output = child.wait_with_output().await.unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn classic(version: &str, kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{CLASSIC}/{version}"), "kind": kind,
        "metadata": {"namespace": namespace, "name": name}, "spec": spec})
}

/// CRD of a classic kind that accepts every field.
fn crd((version, kind, plural, scope): (&str, &str, &str, &str)) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{CLASSIC}")},
        "spec": {"group": CLASSIC, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": any}}]}})
}
