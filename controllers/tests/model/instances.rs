//! Custom resources of the kinds that the extension's CRDs define, and their operator.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::actor::Actor;
use crate::history::Instance;
use crate::snapshot::{is_deleting, text};
use crate::universe::{DEFINED, Key, group, kind};

impl Actor {
    pub(crate) async fn instance(&mut self) {
        let name = self.intent.name.clone();
        let snapshot = self.snapshot();
        let defined = DEFINED.iter().find_map(|plural| {
            let key = Key::new("CustomResourceDefinition", "", &format!("{plural}.{}", group(&name)));
            let found = snapshot.objects.get(&key).filter(|object| !is_deleting(object))?;
            Some((*plural, text(found, "/metadata/name").to_owned()))
        });
        let Some((plural, crd)) = defined else { return };
        self.instances += 1;
        let object = json!({"apiVersion": format!("{}/v1", group(&name)), "kind": kind(plural),
            "metadata": {"name": format!("instance-{}", self.instances)}, "spec": {}});
        let mut object = object;
        if self.instances % 2 == 1 {
            object["metadata"]["finalizers"] = json!(["model.test/cleanup"]);
        }
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let instances = self.instances_of(plural);
        if let Ok(made) = instances.create(&PostParams::default(), &object).await {
            let uid = made.metadata.uid.unwrap();
            // The watch may not have told yet that the CRD was replaced.
            let crds: Api<CustomResourceDefinition> = Api::all(self.fixture.client());
            let Ok(crd) = crds.get_metadata(&crd).await else { return };
            let crd = crd.uid().unwrap();
            if instances.get_metadata(&made.metadata.name.unwrap()).await.is_err() {
                return;
            }
            let since = made.metadata.resource_version.unwrap().parse().unwrap();
            let made = made.metadata.creation_timestamp.map(|made| made.0);
            self.test_changes.instances.insert(uid.clone(), Instance { crd, since, made, is_over: false });
            self.intent.instances.insert(uid, plural.to_owned());
        }
    }

    pub(crate) fn instances_of(&self, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(&group(&self.intent.name), "v1", kind(plural));
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.fixture.client(), &self.intent.name, &resource)
    }

    pub(crate) async fn no_instances(&mut self) {
        self.instances_are_over();
        for plural in DEFINED {
            // The kind may not exist.
            let _ = self
                .instances_of(plural)
                .delete_collection(&DeleteParams::default(), &ListParams::default())
                .await;
        }
        self.clean_up().await;
    }

    /// Removes the finalizers of custom resources that are being deleted, as a running operator does.
    pub(crate) async fn clean_up(&self) {
        for plural in DEFINED {
            let api = self.instances_of(plural);
            let Ok(found) = api.list(&ListParams::default()).await else { continue };
            for one in found.iter().filter(|one| one.metadata.deletion_timestamp.is_some()) {
                let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                // The custom resource may be deleted already.
                let _ = api.patch(&one.name_any(), &PatchParams::default(), &none).await;
            }
        }
    }

    pub(crate) fn instances_are_over(&mut self) {
        self.intent.instances.clear();
        self.test_changes.instances.values_mut().for_each(|one| one.is_over = true);
    }
}
