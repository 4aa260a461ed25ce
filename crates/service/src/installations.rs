//! Whether another installation leads on this cluster. Leases are per namespace and what leaders write is not, so of two
//! installations in two namespaces only the older one may lead (spec 06 §8.2).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ListParams, ObjectMeta, PartialObjectMeta};
use kube::{Api, Client};

use crate::Component;
use crate::cluster::{describe, within_deadline};
use crate::events::Events;

/// What the Deployments of all installations carry, whoever made them.
const LABEL: &str = "app.kubernetes.io/part-of=olm";
/// Reason of the Event.
const REASON: &str = "MultipleInstallations";
/// How soon we look whether the other installation is gone, and how soon after a failed look.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(1);
/// Installations are few.
const MOST: u32 = 100;

/// Waits until no installation is older than that in `namespace`, and says which one is. Does not wait where Deployments
/// of other namespaces may not be listed.
pub(crate) async fn until_eldest(client: &Client, component: Component, namespace: &str) {
    let all: Api<Deployment> = Api::all(client.clone());
    let name = component.deployment_name();
    let wanted = ListParams::default().labels(LABEL).fields(&format!("metadata.name={name}")).limit(MOST);
    let mut told: Option<(Events, String)> = None;
    loop {
        let listed = within_deadline(all.list_metadata(&wanted)).await;
        let found = match &listed {
            Ok(listed) => &listed.items,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let error = status.message.as_str();
                tracing::warn!(error, "installations in other namespaces are not looked for");
                return;
            }
            Err(error) => {
                tracing::error!(error = describe(error), "installations are not known");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let metadata: Vec<&ObjectMeta> = found.iter().map(|found| &found.metadata).collect();
        let Some(elder) = elder(namespace, &metadata) else {
            return;
        };
        let note = note(name, elder);
        if told.as_ref().is_none_or(|(_, last)| *last != note) {
            tracing::error!("{note}");
            let events = told.map_or_else(|| Events::new(client.clone(), component), |(events, _)| events);
            events.warning(reference(found, namespace, name), REASON, note.clone());
            told = Some((events, note));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The namespace of the oldest installation that is older than that in `namespace`. One without a Deployment, such as a
/// process of a developer, is younger than all others.
fn elder<'a>(namespace: &str, deployments: &[&'a ObjectMeta]) -> Option<&'a str> {
    let age = |one: &&'a ObjectMeta| {
        let made = one.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
        (made, one.namespace.as_deref().unwrap_or_default())
    };
    let (ours, others): (Vec<_>, Vec<_>) =
        deployments.iter().map(age).partition(|(_, found)| *found == namespace);
    let eldest = others.into_iter().min()?;
    ours.first().is_none_or(|ours| eldest < *ours).then_some(eldest.1)
}

fn note(name: &str, elder: &str) -> String {
    format!(
        "Deployment {elder}/{name} is an older installation for the same cluster: this one does not lead before that is \
         gone, or --allow-multiple-installations is given"
    )
}

/// Our own Deployment.
fn reference(found: &[PartialObjectMeta<Deployment>], namespace: &str, name: &str) -> ObjectReference {
    let ours = found.iter().find(|one| one.metadata.namespace.as_deref() == Some(namespace));
    ObjectReference {
        api_version: Some("apps/v1".to_owned()),
        kind: Some("Deployment".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: ours.and_then(|ours| ours.metadata.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    /// Namespace and time of each Deployment, and whom `ours` leaves the lead to.
    type Row<'a> = (&'a [(&'a str, i64)], Option<&'a str>);

    // spec 06 A30, E12
    #[test]
    fn the_older_one_leads() {
        let rows: [Row<'_>; 9] = [
            (&[], None),
            (&[("ours", 5)], None),
            (&[("ours", 5), ("other", 6)], None),
            (&[("ours", 5), ("other", 4)], Some("other")),
            (&[("ours", 5), ("other", 4), ("eldest", 3)], Some("eldest")),
            (&[("ours", 5), ("other", 6), ("eldest", 3)], Some("eldest")),
            // Made in the same second, one of them leads.
            (&[("ours", 5), ("other", 5)], Some("other")),
            (&[("ours", 5), ("theirs", 5)], None),
            (&[("other", 6)], Some("other")),
        ];
        for (deployments, expected) in rows {
            let metadata = |&(namespace, second): &(&str, i64)| ObjectMeta {
                namespace: Some(namespace.to_owned()),
                creation_timestamp: Some(Time(Timestamp::from_second(second).unwrap())),
                ..ObjectMeta::default()
            };
            let metadata: Vec<ObjectMeta> = deployments.iter().map(metadata).collect();
            assert_eq!(elder("ours", &metadata.iter().collect::<Vec<_>>()), expected, "{deployments:?}");
        }
    }
}
