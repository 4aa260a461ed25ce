//! `olm migrate` on recordings of classic OLM, with real pods. Classic OLM itself does not run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet, conditions};
use olm_e2e::classic::{Installation, Replay, replay};
use olm_e2e::{Cluster, PATIENCE, Tool, eventually};
use olm_image::Image;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const CSV: &str = "ClusterServiceVersion";
/// Kinds of which the migration deletes objects. All other objects stay.
const REMOVED: [&str; 9] = [
    "Subscription",
    "InstallPlan",
    CSV,
    "Operator",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingWebhookConfiguration",
];

/// Restart counts by UID of the pod and name of the container.
type Pods = BTreeMap<(String, String), i32>;

/// Recorded installation, and a catalog that has its bundles.
struct Case {
    replay: Replay,
    tool: Tool,
    name: String,
    /// Namespace, package and version of each Subscription.
    packages: Vec<(String, String, String)>,
    pods: Pods,
}

impl Case {
    async fn start(case: &str) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let ending: String = uuid::Uuid::new_v4().simple().to_string().chars().take(5).collect();
        let name = format!("migrate-{case}-{ending}");
        let replay = replay(&cluster, Installation::recorded(case, &name)?).await?;
        replay.check_metadata().await?;
        let tool = Tool::new(&cluster)?;
        let mut case = Self { replay, tool, name, packages: Vec::new(), pods: Pods::new() };
        case.serve().await?;
        case.pods = case.pods_now().await?;
        Ok(case)
    }

    /// Pushes the bundles and a catalog, and waits until it is served.
    async fn serve(&mut self) -> Result<()> {
        let cluster = self.replay.cluster.clone();
        let mut catalog = Vec::new();
        let subscriptions: Vec<Value> = self.of_kind("Subscription").cloned().collect();
        for subscription in subscriptions {
            let text = |pointer: &str| {
                subscription.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let (namespace, package) = (text("/metadata/namespace"), text("/spec/name"));
            let csv = text("/status/installedCSV");
            let version = self.replay.installation.object(CSV, &namespace, &csv)?["spec"]["version"].clone();
            let version = version.as_str().context("the CSV has no version")?.to_owned();
            let image = Image::bundle(&self.bundle(&csv, &package)?)?;
            let image = cluster.push(&format!("e2e/{package}"), "v1", &image).await?;
            let property =
                json!({"type": "olm.package", "value": {"packageName": package, "version": version}});
            let channel = text("/spec/channel");
            catalog.extend([
                json!({"schema": "olm.package", "name": package, "defaultChannel": channel}),
                json!({"schema": "olm.channel", "package": package, "name": channel, "entries": [{"name": csv}]}),
                json!({"schema": "olm.bundle", "package": package, "name": csv, "image": image,
                    "properties": [property]}),
            ]);
            self.packages.push((namespace, package, version));
        }
        let text: String = catalog.iter().map(|meta| format!("{meta}\n")).collect();
        let files = BTreeMap::from([("catalog.json".to_owned(), text.into_bytes())]);
        let image = cluster.push(&format!("e2e/{}", self.name), "catalog", &Image::catalog(&files)?).await?;
        let catalogs = cluster.all::<ClusterCatalog>();
        let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": self.name}, "spec": {"source": {"type": "Image", "image": {"ref": image}}}});
        catalogs.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let is_served = |catalog: Option<&ClusterCatalog>| {
            let status = catalog.and_then(|catalog| catalog.status.as_ref());
            status.is_some_and(|status| conditions::is_true(&status.conditions, "Serving"))
        };
        cluster.wait(&catalogs, &self.name, "serving", is_served).await?;
        Ok(())
    }

    /// Files of the bundle `csv`, as the InstallPlan has them.
    fn bundle(&self, csv: &str, package: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        let generated =
            ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Subscription"];
        let steps = self.of_kind("InstallPlan").flat_map(|plan| list(&plan["status"]["plan"]));
        let mut files = BTreeMap::new();
        for step in steps.filter(|step| step["resolving"] == csv) {
            let (kind, name) = (&step["resource"]["kind"], &step["resource"]["name"]);
            let kind = kind.as_str().unwrap_or_default();
            if !generated.contains(&kind) {
                let manifest = step["resource"]["manifest"].as_str().context("a step has no manifest")?;
                let path = format!("manifests/{}-{kind}.yaml", name.as_str().unwrap_or_default());
                files.insert(path, manifest.as_bytes().to_vec());
            }
        }
        ensure!(!files.is_empty(), "no InstallPlan has {csv}");
        let annotations = format!(
            "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  \
             operators.operatorframework.io.bundle.manifests.v1: manifests/\n  \
             operators.operatorframework.io.bundle.metadata.v1: metadata/\n  \
             operators.operatorframework.io.bundle.package.v1: {package}\n"
        );
        files.insert("metadata/annotations.yaml".to_owned(), annotations.into_bytes());
        Ok(files)
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.replay.installation.objects.iter().filter(move |object| object["kind"] == kind)
    }

    async fn pods_now(&self) -> Result<Pods> {
        let namespaces: BTreeSet<&String> = self.packages.iter().map(|(namespace, ..)| namespace).collect();
        let mut pods = Pods::new();
        for namespace in namespaces {
            pods.extend(self.replay.pods(namespace).await?);
        }
        Ok(pods)
    }

    /// Runs `olm migrate` while the Deployments and the webhooks are watched.
    async fn migrate(&self, arguments: &[&str]) -> Result<()> {
        let watch = self.operators().watch().await?;
        let ca = self.tool.path("ca").display().to_string();
        let registry: &[&str] = if arguments[0] == "apply" { &["--ca-dir", &ca] } else { &[] };
        let arguments = [&["migrate"], arguments, registry].concat();
        let ran = tokio::task::block_in_place(|| self.tool.run(&arguments));
        let failures = watch.stop().await?;
        println!("{}", ran?);
        ensure!(failures.is_empty(), "the operator was unavailable: {failures:?}");
        ensure!(self.pods_now().await? == self.pods, "a pod restarted");
        Ok(())
    }

    /// Migrates all packages, and checks the result.
    async fn apply(&self) -> Result<()> {
        // The recording has a dependency that was installed for the dependent.
        let accepted: &[&str] =
            if self.name.starts_with("migrate-harbor") { &["--accept", "DECISION-2"] } else { &[] };
        let names: Vec<String> =
            self.packages.iter().map(|(namespace, package, _)| format!("{namespace}/{package}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.migrate(&[&["apply", "--yes"], accepted, names.as_slice()].concat()).await?;
        for (namespace, package, version) in &self.packages {
            let extension = self.replay.cluster.all::<ClusterExtension>().get(package).await?;
            let installed = extension.status.as_ref().and_then(|status| status.install.as_ref());
            ensure!(installed.is_some_and(|install| install.bundle.version == *version), "{extension:?}");
            let spec = serde_json::to_value(&extension.spec)?;
            ensure!(spec["namespace"] == **namespace, "{spec}");
            ensure!(spec["source"]["catalog"].get("version").is_none(), "the version stays pinned: {spec}");
            ensure!(!extension.annotations().keys().any(|key| key.ends_with("/adopt")), "the digest stays");
        }
        for object in &self.replay.installation.objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            match self.live(object).await? {
                None if REMOVED.contains(&kind) || kind == "MutatingWebhookConfiguration" => {}
                None => bail!("{kind} {} is lost", object["metadata"]["name"]),
                Some(live) => {
                    ensure!(!is_classic(&live), "{kind} {} belongs to classic OLM", live.name_any())
                }
            }
        }
        Ok(())
    }

    /// Returns all packages to classic OLM, dependencies first, and checks the result.
    async fn roll_back(&self) -> Result<()> {
        for (namespace, package, _) in self.packages.iter().rev() {
            self.migrate(&["rollback", "--yes", &format!("{namespace}/{package}")]).await?;
            let sets = self.replay.cluster.all::<ClusterObjectSet>().list(&ListParams::default()).await?;
            let ours = sets.items.iter().filter(|set| set.name_any().starts_with(package.as_str()));
            ensure!(ours.count() == 0, "revisions of {package} exist");
            ensure!(self.replay.cluster.all::<ClusterExtension>().get_opt(package).await?.is_none());
        }
        for object in &self.replay.installation.objects {
            let what = format!("{} {}", object["kind"], object["metadata"]["name"]);
            // Classic OLM makes these again.
            let is_made_by_classic = object["metadata"]["labels"]["olm.copiedFrom"].is_string()
                || ["Operator", "InstallPlan"].iter().any(|kind| object["kind"] == *kind);
            let Some(live) = self.live(object).await? else {
                ensure!(is_made_by_classic, "{what} is lost");
                continue;
            };
            // Classic OLM writes owner and labels of its OperatorConditions again. An InstallPlan of several packages has
            // neither until `finish` deletes it.
            if ["OperatorCondition", "InstallPlan"].iter().any(|kind| object["kind"] == *kind) {
                continue;
            }
            let live = serde_json::to_value(&live.metadata)?;
            for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
                ensure!(live["labels"][key] == *value, "{what} has {live}, expected label {key}");
            }
            let owners = |metadata: &Value| -> BTreeSet<String> {
                let owners = list(&metadata["ownerReferences"]);
                owners.map(|owner| format!("{} {}", owner["kind"], owner["name"])).collect()
            };
            // Copies of the ClusterServiceVersion, and what they own, follow later.
            let is_of_copy = object["metadata"]["labels"]["olm.copiedFrom"].is_string();
            ensure!(is_of_copy || owners(&live) == owners(&object["metadata"]), "{what} has {live}");
            ensure!(
                !live["labels"].to_string().contains("olm.operatorframework.io/owner"),
                "{what} has {live}"
            );
        }
        Ok(())
    }

    async fn live(&self, object: &Value) -> Result<Option<DynamicObject>> {
        let (api, name) = self.replay.api(object).await?;
        Ok(api.get_opt(&name).await?)
    }

    async fn finish(self) -> Result<()> {
        let cluster = self.replay.cluster.clone();
        for (_, package, _) in &self.packages {
            cluster.delete(&cluster.all::<ClusterExtension>(), package).await?;
            cluster.wait_gone(&cluster.all::<ClusterExtension>(), package).await?;
        }
        cluster.delete(&cluster.all::<ClusterCatalog>(), &self.name).await?;
        self.replay.remove().await
    }

    fn operators(&self) -> Operators {
        let cluster = &self.replay.cluster;
        let mut deployments = Vec::new();
        for object in self.of_kind("Deployment") {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            deployments.push((cluster.within::<Deployment>(&text("namespace")), text("name")));
        }
        let has_webhooks = self.of_kind("ValidatingWebhookConfiguration").next().is_some();
        let group = format!("{}.sample.olm.example", self.name);
        let greeting = has_webhooks.then(|| {
            let resource = sample_operator::greetings(&group, "v2");
            let api = Api::<DynamicObject>::namespaced_with(cluster.client.clone(), "default", &resource);
            (api, DynamicObject::new("probe", &resource).data(json!({"spec": {"who": "you"}})))
        });
        Operators { deployments, greeting }
    }
}

/// Deployments of the operators, and an object that their webhooks admit.
struct Operators {
    deployments: Vec<(Api<Deployment>, String)>,
    greeting: Option<(Api<DynamicObject>, DynamicObject)>,
}

impl Operators {
    async fn check(&self) -> Result<()> {
        for (api, name) in &self.deployments {
            let status = api.get(name).await?.status.unwrap_or_default();
            ensure!(status.available_replicas > Some(0), "{name}: {status:?}");
        }
        if let Some((api, greeting)) = &self.greeting {
            let dry_run = PostParams { dry_run: true, ..PostParams::default() };
            api.create(&dry_run, greeting).await?;
        }
        Ok(())
    }

    /// Waits until the webhooks respond, then checks the operators each second. An available pod is not always reachable
    /// yet.
    async fn watch(self) -> Result<Watch> {
        if self.greeting.is_some() {
            eventually("the webhooks respond", PATIENCE, || self.check()).await?;
        }
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let (mut failures, started) = (Vec::new(), Instant::now());
            let mut samples = tokio::time::interval(Duration::from_secs(1));
            loop {
                tokio::select! {
                    _ = samples.tick() => {}
                    _ = &mut stopped => return failures,
                }
                let elapsed = started.elapsed();
                if let Err(error) = self.check().await {
                    failures.push(format!("after {elapsed:.1?}: {error:#}"));
                }
            }
        });
        Ok(Watch { stop, task })
    }
}

/// Samples of each second, until stopped.
struct Watch {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Vec<String>>,
}

impl Watch {
    async fn stop(self) -> Result<Vec<String>> {
        // A failed task reports at its end.
        let _ = self.stop.send(());
        Ok(self.task.await?)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `true` if classic OLM would garbage-collect the object.
fn is_classic(object: &DynamicObject) -> bool {
    let is_csv = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| owner.kind == CSV;
    let has_owner = object.labels().get("olm.owner.kind").is_some_and(|kind| kind == CSV);
    has_owner || object.owner_references().iter().any(is_csv)
}

/// Migrates a case and returns it to classic OLM.
async fn there_and_back(case: &str) -> Result<()> {
    let case = Case::start(case).await?;
    case.apply().await?;
    case.roll_back().await?;
    case.finish().await
}

/// Migrates a case, and deletes the extensions.
async fn migrated(case: &str) -> Result<()> {
    let case = Case::start(case).await?;
    case.apply().await?;
    case.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_of_all_namespaces_migrates_without_restart() -> Result<()> {
    there_and_back("all").await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_of_own_namespace_migrates_without_restart() -> Result<()> {
    migrated("own").await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_of_single_namespace_migrates_without_restart() -> Result<()> {
    migrated("single").await
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_of_several_namespaces_migrates_without_restart() -> Result<()> {
    there_and_back("multi").await
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_answer_during_the_migration() -> Result<()> {
    there_and_back("hooks").await
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_config_becomes_deployment_config_without_restart() -> Result<()> {
    there_and_back("conf").await
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_that_waits_for_approval_is_no_obstacle() -> Result<()> {
    there_and_back("wait").await
}

#[tokio::test(flavor = "multi_thread")]
async fn dependent_and_dependency_migrate_without_restart() -> Result<()> {
    there_and_back("harbor").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_subscriptions_of_a_namespace_migrate_without_restart() -> Result<()> {
    migrated("two").await
}

#[tokio::test(flavor = "multi_thread")]
async fn unsettled_packages_are_refused_and_stay() -> Result<()> {
    for case in ["lift", "fail"] {
        let case = Case::start(case).await?;
        let refused = case.apply().await.map_err(|error| format!("{error:#}"));
        ensure!(refused.is_err_and(|text| text.contains("exit status: 4")), "{} was migrated", case.name);
        for object in &case.replay.installation.objects {
            ensure!(
                case.live(object).await?.is_some(),
                "{} {} is lost",
                object["kind"],
                object["metadata"]["name"]
            );
        }
        case.finish().await?;
    }
    Ok(())
}
