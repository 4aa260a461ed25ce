//! Creates the objects of an installation on the cluster.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::runtime::conditions::is_crd_established;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Installation, certificates, crds, replace};
use crate::{Cluster, PATIENCE, eventually};

const CLASSIC: &str = "operators.coreos.com/";
/// Kinds that installations may share.
const SHARED: [&str; 2] = ["Namespace", "CatalogSource"];

/// Installation of classic OLM on the cluster. Classic OLM itself does not run.
pub struct Replay {
    /// Cluster under test.
    pub cluster: Cluster,
    /// Objects with the UIDs that they have on the cluster.
    pub installation: Installation,
}

/// Applies the CRDs of classic OLM and creates the objects: owners before their dependents, owner references and all
/// other mentions of UIDs rewritten, new certificates, the sample operator's image, and statuses. Waits until the
/// Deployments of succeeded CSVs are available.
///
/// # Errors
/// An object exists, or cannot be created.
pub async fn replay(cluster: &Cluster, mut installation: Installation) -> Result<Replay> {
    apply_crds(cluster).await?;
    let olm =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "olm", "uid": "uid-of-olm"}});
    installation.objects.insert(0, olm);
    certificates::issue(&mut installation.objects)?;
    for object in &mut installation.objects {
        replace(object, "olm.example/sample-operator:devel", &cluster.operator_image);
    }
    let mut replay = Replay { cluster: cluster.clone(), installation };
    replay.create_all().await?;
    replay.write_statuses().await?;
    replay.wait_available().await?;
    Ok(replay)
}

async fn apply_crds(cluster: &Cluster) -> Result<()> {
    let api = cluster.all::<CustomResourceDefinition>();
    for crd in crds()? {
        let name = crd["metadata"]["name"].as_str().context("a CRD has no name")?.to_owned();
        api.patch(&name, &PatchParams::apply("olm-e2e").force(), &Patch::Apply(crd)).await?;
        cluster.wait(&api, &name, "established", is_crd_established()).await?;
    }
    Ok(())
}

impl Replay {
    async fn create_all(&mut self) -> Result<()> {
        let uids: BTreeSet<String> = self.installation.objects.iter().map(uid_of).collect();
        let mut waiting: Vec<usize> = (0..self.installation.objects.len()).collect();
        let mut created = BTreeSet::new();
        while !waiting.is_empty() {
            let mut blocked = Vec::new();
            for index in std::mem::take(&mut waiting) {
                let object = &self.installation.objects[index];
                if owners(object).any(|uid| uids.contains(uid) && !created.contains(uid)) {
                    blocked.push(index);
                    continue;
                }
                let (old, new) = (uid_of(object), self.create(object.clone(), &uids, &created).await?);
                for object in &mut self.installation.objects {
                    replace(object, &old, &new);
                }
                created.insert(new);
            }
            waiting = blocked;
            ensure!(waiting.len() < self.installation.objects.len(), "owner references form a cycle");
        }
        Ok(())
    }

    /// Creates one object without references to owners that are not recorded. Returns its UID.
    async fn create(
        &self,
        mut object: Value,
        recorded: &BTreeSet<String>,
        created: &BTreeSet<String>,
    ) -> Result<String> {
        let manager =
            object["metadata"]["managedFields"][0]["manager"].as_str().unwrap_or("administrator").to_owned();
        let (api, name) = self.api(&object).await?;
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("uid");
            metadata.remove("managedFields");
            if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                owners.retain(|owner| {
                    owner["uid"].as_str().is_some_and(|uid| recorded.contains(uid) || created.contains(uid))
                });
            }
        }
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let parameters = PostParams { field_manager: Some(manager), ..PostParams::default() };
        let made = match api.create(&parameters, &serde_json::from_value(object)?).await {
            Err(kube::Error::Api(status))
                if status.reason == "AlreadyExists" && SHARED.contains(&kind.as_str()) =>
            {
                api.get(&name).await
            }
            result => result,
        };
        made.with_context(|| format!("creating {kind} {name}"))?.uid().context("the object has no UID")
    }

    /// Writes the statuses of classic kinds, and labels of namespaces that contain UIDs.
    async fn write_statuses(&self) -> Result<()> {
        for object in &self.installation.objects {
            let (api, name) = self.api(object).await?;
            let is_classic = object["apiVersion"].as_str().unwrap_or_default().starts_with(CLASSIC);
            if object["kind"] == "Namespace" && object["metadata"]["labels"].is_object() {
                let patch = json!({"metadata": {"labels": object["metadata"]["labels"]}});
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            } else if is_classic && object["status"].is_object() {
                let patch = json!({"status": object["status"]});
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .with_context(|| format!("writing the status of {name}"))?;
            }
        }
        Ok(())
    }

    async fn wait_available(&self) -> Result<()> {
        for object in self.installation.objects.iter().filter(|object| object["kind"] == "Deployment") {
            let (_, name) = self.api(object).await?;
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let owner = object["metadata"]["labels"]["olm.owner"].as_str().unwrap_or_default();
            let csv = self.installation.object("ClusterServiceVersion", namespace, owner)?;
            if csv["status"]["phase"] == "Succeeded" {
                let api = self.cluster.within::<Deployment>(namespace);
                let is_available = |found: Option<&Deployment>| {
                    let status = found.and_then(|found| found.status.as_ref());
                    status.and_then(|status| status.available_replicas).is_some_and(|count| count > 0)
                };
                self.cluster.wait(&api, &name, "available", is_available).await?;
            }
        }
        Ok(())
    }

    /// Checks that the live objects have the UIDs of the installation, and owners and finalizers where it has some.
    ///
    /// # Errors
    /// An object differs.
    pub async fn check_metadata(&self) -> Result<()> {
        for object in &self.installation.objects {
            let (api, name) = self.api(object).await?;
            let live = serde_json::to_value(api.get(&name).await?)?;
            for field in ["uid", "ownerReferences", "finalizers"] {
                let (live, expected) = (&live["metadata"][field], &object["metadata"][field]);
                ensure!(field != "uid" || live == expected, "{name}: {live} instead of {expected}");
                ensure!(live.is_null() == expected.is_null(), "{name}: {field} is {live}");
            }
        }
        Ok(())
    }

    /// Restart counts of all containers in the namespace, by the UID of the pod and the name of the container.
    pub async fn pods(&self, namespace: &str) -> Result<BTreeMap<(String, String), i32>> {
        let pods = self.cluster.within::<Pod>(namespace).list(&ListParams::default()).await?.items;
        let mut found = BTreeMap::new();
        for pod in pods {
            let uid = pod.uid().unwrap_or_default();
            for container in pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()) {
                found.insert((uid.clone(), container.name.clone()), container.restart_count);
            }
        }
        Ok(found)
    }

    /// Deletes all objects of the installation that still exist, except for those that installations share.
    pub async fn remove(self) -> Result<()> {
        for object in &self.installation.objects {
            if SHARED.contains(&object["kind"].as_str().unwrap_or_default()) {
                continue;
            }
            let (api, name) = self.api(object).await?;
            if object["metadata"]["finalizers"].is_array() {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                ignore_missing(api.patch(&name, &PatchParams::default(), &patch).await.map(drop))?;
            }
            ignore_missing(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
        }
        let namespaces = self.cluster.all::<Namespace>();
        for object in self.installation.objects.iter().filter(|object| object["kind"] == "Namespace") {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if name != "olm" {
                self.cluster.delete(&namespaces, name).await?;
            }
        }
        Ok(())
    }

    /// API of the object's kind in its namespace, and its name.
    pub async fn api(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let wanted = GroupVersionKind::gvk(group, version, &kind);
        // A CRD is served some time after it is established.
        let (resource, capabilities) = eventually(&format!("{kind} is served"), PATIENCE, async || {
            Ok(pinned_kind(&self.cluster.client, &wanted).await?)
        })
        .await?;
        let (name, namespace) = (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
        if name.is_empty() {
            bail!("{kind} has no name");
        }
        let client = self.cluster.client.clone();
        Ok((
            match capabilities.scope {
                Scope::Cluster => Api::all_with(client, &resource),
                Scope::Namespaced => Api::namespaced_with(client, &namespace, &resource),
            },
            name,
        ))
    }
}

fn ignore_missing(result: kube::Result<()>) -> Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => Ok(result?),
    }
}

fn uid_of(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str())
}
