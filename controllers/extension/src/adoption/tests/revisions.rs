//! Installations that the reference made with revisions.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::conditions::{self, Status, types};
use olm_api::{ClusterExtension, ClusterObjectSet, ClusterObjectSetStatus, finalizers, names};
use olm_revision::content::digests;
use olm_revision::generate::{BundleIdentity, Draft, Extension, secret_owner};
use serde_json::{Value, json};

use super::fixture::{ENGINE, Fixture, SYSTEM, eventually, objects, owners};
use crate::adoption::AdoptionState;

const ROLLED_OUT: &str = "True/Succeeded: Revision 1.0.0 has rolled out.";

/// Adds the empty fields that Go types write.
fn as_go_writes(mut objects: Vec<Value>) -> Vec<Value> {
    let deployment = objects.last_mut().unwrap();
    deployment["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["volumes"] = Value::Null;
    pod["securityContext"] = json!({});
    objects
}

impl Fixture {
    /// Installs these objects as the reference does, as a revision 1 that has rolled out.
    async fn install_with_revisions(
        &self,
        extension: &ClusterExtension,
        objects: &[Value],
    ) -> ClusterObjectSet {
        let name = extension.name_any();
        let owner =
            Extension { name: name.clone(), uid: extension.uid().unwrap(), progress_deadline_minutes: None };
        let bundle = BundleIdentity {
            name: format!("{name}.v1.0.0"),
            package: "demo".to_owned(),
            version: "1.0.0".to_owned(),
            image: format!("r.example/{name}:v1.0.0"),
            ..BundleIdentity::default()
        };
        let draft = Draft::new(owner, &bundle, as_go_writes(objects.to_vec())).unwrap();
        let mut revision = draft.number(1, SYSTEM).unwrap();
        revision.set.metadata.finalizers = Some(vec![finalizers::TEARDOWN.to_owned()]);
        let params = PatchParams::apply(names::EXTENSION_CONTROLLER_MANAGER).force();
        let set =
            self.sets().patch(&revision.set.name_any(), &params, &Patch::Apply(&revision.set)).await.unwrap();
        let secrets: Api<Secret> = self.secrets();
        for mut secret in revision.secrets {
            secret.metadata.owner_references = secret_owner(&set).map(|owner| vec![owner]);
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
        for object in draft.phases().iter().flat_map(|phase| &phase.objects) {
            let mut object = object.object.clone();
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = ENGINE.into();
            object["metadata"]["annotations"]["olm.operatorframework.io/revision"] = "1".into();
            object["metadata"]["ownerReferences"] = json!([secret_owner(&set)]);
            let params = PatchParams::apply(ENGINE).force();
            self.api(&object).await.patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
        }
        let mut status =
            ClusterObjectSetStatus { observed_phases: digests(draft.phases()), ..Default::default() };
        for (type_, reason, message) in [
            (types::PROGRESSING, "Succeeded", "Revision 1.0.0 has rolled out."),
            (types::AVAILABLE, "ProbesSucceeded", "Objects are available and pass all probes."),
            (types::SUCCEEDED, "Succeeded", "Revision succeeded rolling out."),
        ] {
            let now = jiff::Timestamp::now();
            conditions::set(&mut status.conditions, type_, Status::True, reason, message, Some(1), now);
        }
        let status = Patch::Merge(json!({"status": status}));
        self.sets().patch_status(&set.name_any(), &PatchParams::default(), &status).await.unwrap()
    }
}

// Case apply-63
#[tokio::test(flavor = "multi_thread")]
async fn revision_of_the_reference_is_kept_unchanged() {
    let fixture = Fixture::start().await;
    let extension = fixture.extension("demo", json!({})).await;
    let installed = objects("demo", &["A"]);
    fixture.install_with_revisions(&extension, &installed).await;
    fixture.make_available(&installed[2]).await;
    let set = fixture.sets().get("demo-1").await.unwrap();
    let before = [fixture.live(&installed[1]).await, fixture.live(&installed[2]).await];

    let known = fixture.revisions("demo").await;
    assert_eq!(fixture.adoption().migrate(&extension, &known).await, Ok(AdoptionState::Complete));
    let running = fixture.run_revisions();
    // The restored ConfigMap shows that the controller reconciles the revision.
    fixture.api(&installed[0]).await.delete("demo", &Default::default()).await.unwrap();
    eventually("the ConfigMap is recreated", async || {
        fixture.api(&installed[0]).await.get_opt("demo").await.unwrap()
    })
    .await;
    fixture.until("demo-1", types::PROGRESSING, ROLLED_OUT).await;
    assert!(!fixture.upgrade(&extension, "1.0.0", &installed).await, "no further revision");
    let now = fixture.sets().get("demo-1").await.unwrap();
    assert_eq!((now.metadata.generation, now.spec), (set.metadata.generation, set.spec));
    assert_eq!(now.status.unwrap().observed_phases, set.status.unwrap().observed_phases);
    assert_eq!([fixture.live(&installed[1]).await, fixture.live(&installed[2]).await], before, "unchanged");
    assert_eq!(fixture.revisions("demo").await.len(), 1);
    running.stop().await;
}

// Case apply-59
#[tokio::test(flavor = "multi_thread")]
async fn recreated_extension_adopts_its_orphaned_revision() {
    let fixture = Fixture::start().await;
    let extension = fixture.extension("demo", json!({})).await;
    let installed = objects("demo", &["A"]);
    fixture.install_with_revisions(&extension, &installed).await;
    fixture.make_available(&installed[2]).await;
    let (set, before) = (fixture.sets().get("demo-1").await.unwrap(), fixture.live(&installed[2]).await);

    // Like a deletion with `--cascade=orphan`.
    let extensions: Api<ClusterExtension> = Api::all(fixture.client());
    extensions.delete("demo", &Default::default()).await.unwrap();
    let orphaned = Patch::Merge(json!({"metadata": {"ownerReferences": []}}));
    fixture.sets().patch("demo-1", &PatchParams::default(), &orphaned).await.unwrap();
    // A late reconcile of the deleted extension must not restore the owner, or the revision would be
    // garbage-collected.
    let late = fixture.try_upgrade(&extension, "1.0.0", &installed).await.unwrap_err();
    assert_eq!(late.message, "patching demo-1 Revision: its ClusterExtension is deleted or being deleted");
    let again = fixture.extension("demo", json!({})).await;
    assert_ne!(again.uid(), extension.uid());

    let known = fixture.revisions("demo").await;
    assert_eq!(fixture.adoption().migrate(&again, &known).await, Ok(AdoptionState::Complete));
    assert!(!fixture.upgrade(&again, "1.0.0", &installed).await);
    let now = fixture.sets().get("demo-1").await.unwrap();
    assert_eq!((now.uid(), now.spec.clone()), (set.uid(), set.spec));
    assert_eq!(
        now.owner_references().iter().map(|owner| Some(owner.uid.clone())).collect::<Vec<_>>(),
        [again.uid()]
    );
    let running = fixture.run_revisions();
    fixture.until("demo-1", types::PROGRESSING, ROLLED_OUT).await;
    assert_eq!(fixture.live(&installed[2]).await, before, "the Deployment is unchanged");
    assert_eq!(owners(&before), ["demo-1*"]);
    running.stop().await;
}
