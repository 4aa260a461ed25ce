//! Detection of another installation on this cluster. Leases are per namespace but leaders write cluster-scoped
//! objects, so of two installations in two namespaces only the older one may lead
//! (docs/design/operations.md#multiple-installations).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::api::{ListParams, ObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};
use olm_api::limits::LIST_PAGE;

use crate::Component;
use crate::cluster::{describe, list_all, within_deadline};
use crate::events::Events;
use crate::listing::OurMeta;

/// Label of the Deployments and namespaces of all installations of either implementation. Any user may create such
/// Part of the message about an older installation.
pub const OLDER_INSTALLATION: &str = "is an older installation for the same cluster";
/// a Deployment, but few may label a namespace.
const LABEL: (&str, &str) = ("app.kubernetes.io/part-of", "olm");
/// Reason of the Event.
const REASON: &str = "MultipleInstallations";
/// Poll interval while an older installation exists. `RETRY` is the delay after an error.
const POLL: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_secs(1);

/// Waits until no installation is older than that in `namespace`, and reports the older one. Does not wait if RBAC
/// denies listing Deployments or reading their namespaces.
pub async fn wait_until_oldest(client: &Client, component: Component, namespace: &str) {
    let name = &component.deployment_name();
    let mut reported: Option<(Events, String)> = None;
    loop {
        let (older, ours) = match find_older_installation(client, name, namespace).await {
            Ok(Some(found)) => found,
            Ok(None) => return,
            // After an older installation was seen, a denial is retried: the manifest of that one has replaced the
            // RBAC.
            Err(kube::Error::Api(status)) if status.is_forbidden() && reported.is_none() => {
                let error = status.message.as_str();
                tracing::warn!(error, "not allowed to list installations in other namespaces");
                return;
            }
            Err(error) => {
                tracing::error!(error = describe(&error), "failed to list installations in other namespaces");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let note = note(name, &older, namespace);
        if reported.as_ref().is_none_or(|(_, last)| *last != note) {
            tracing::error!("{note}");
            let events =
                reported.map_or_else(|| Events::new(client.clone(), component), |(events, _)| events);
            events.warning(ours, REASON, note.clone());
            reported = Some((events, note));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// The namespace of the oldest installation that is older than that in `namespace`, and the Deployment of the
/// latter.
async fn find_older_installation(
    client: &Client,
    name: &str,
    namespace: &str,
) -> Result<Option<(String, ObjectReference)>, kube::Error> {
    let all: Api<OurMeta<Deployment>> = Api::all(client.clone());
    let label = format!("{}={}", LABEL.0, LABEL.1);
    let selection = ListParams::default().labels(&label).fields(&format!("metadata.name={name}"));
    let list = async |page| {
        let mut page = within_deadline(all.list(&page)).await?;
        page.items.iter_mut().for_each(|found| reduce(&mut found.metadata));
        Ok::<_, kube::Error>(page)
    };
    let found = list_all(selection.limit(LIST_PAGE), list).await?;
    let metadata: Vec<&ObjectMeta> = found.iter().map(|found| &found.metadata).collect();
    for older in older_namespaces(namespace, &metadata) {
        if is_olm_namespace(client, older).await? {
            return Ok(Some((older.to_owned(), reference(&found, namespace, name))));
        }
    }
    Ok(None)
}

/// Keeps only what is compared: any user of a namespace may create a Deployment with large metadata.
fn reduce(metadata: &mut ObjectMeta) {
    let ObjectMeta { namespace, uid, creation_timestamp, .. } = std::mem::take(metadata);
    *metadata = ObjectMeta { namespace, uid, creation_timestamp, ..ObjectMeta::default() };
}

/// The namespaces of Deployments that are older than that in `namespace`, oldest first. An installation without a
/// Deployment, such as a developer's process, is younger than all others.
fn older_namespaces<'a>(namespace: &str, deployments: &[&'a ObjectMeta]) -> Vec<&'a str> {
    let age = |one: &&'a ObjectMeta| {
        let made = one.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
        (made, one.namespace.as_deref().unwrap_or_default())
    };
    let (ours, mut others): (Vec<_>, Vec<_>) =
        deployments.iter().map(age).partition(|(_, found)| *found == namespace);
    others.retain(|other| ours.first().is_none_or(|ours| other < ours));
    others.sort();
    others.into_iter().map(|(_, found)| found).collect()
}

async fn is_olm_namespace(client: &Client, namespace: &str) -> Result<bool, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = within_deadline(namespaces.get_metadata_opt(namespace)).await?;
    let labels = found.and_then(|found| found.metadata.labels).unwrap_or_default();
    Ok(labels.get(LABEL.0).is_some_and(|value| value == LABEL.1))
}

fn note(name: &str, older: &str, namespace: &str) -> String {
    format!(
        "Deployment {older}/{name} {OLDER_INSTALLATION}: this installation leads only once \
         the older one is removed, or with --allow-multiple-installations. To return to the older installation, apply \
         its manifest again, because installing this one removed its cluster permissions. Then delete only the \
         namespace {namespace}: kubectl delete -f with the manifest of this installation would also delete the CRDs \
         that both use, and with them all extensions"
    )
}

/// Reference to our own Deployment.
fn reference(found: &[OurMeta<Deployment>], namespace: &str, name: &str) -> ObjectReference {
    let ours = found.iter().find(|one| one.metadata.namespace.as_deref() == Some(namespace));
    let uid = ours.and_then(|ours| ours.metadata.uid.clone());
    ObjectReference { uid, ..ObjectRef::<Deployment>::new(name).within(namespace).into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    /// Namespace and creation time (Unix seconds) of each Deployment.
    type Deployments<'a> = &'a [(&'a str, i64)];

    fn metadata(&(namespace, second): &(&str, i64)) -> Value {
        let made = Timestamp::from_second(second).unwrap().to_string();
        json!({"namespace": namespace, "creationTimestamp": made})
    }

    // Cases operations-a30, operations-e12
    #[test]
    fn older_deployment_leads_and_name_breaks_ties() {
        let rows: [(Deployments<'_>, &[&str]); 9] = [
            (&[], &[]),
            (&[("ours", 5)], &[]),
            (&[("ours", 5), ("other", 6)], &[]),
            (&[("ours", 5), ("other", 4)], &["other"]),
            (&[("ours", 5), ("other", 4), ("oldest", 3)], &["oldest", "other"]),
            (&[("ours", 5), ("other", 6), ("oldest", 3)], &["oldest"]),
            // Created in the same second: the namespace name decides.
            (&[("ours", 5), ("other", 5)], &["other"]),
            (&[("ours", 5), ("theirs", 5)], &[]),
            (&[("other", 6)], &["other"]),
        ];
        for (deployments, expected) in rows {
            let metadata: Vec<ObjectMeta> =
                deployments.iter().map(|one| serde_json::from_value(metadata(one)).unwrap()).collect();
            assert_eq!(
                older_namespaces("ours", &metadata.iter().collect::<Vec<_>>()),
                expected,
                "{deployments:?}"
            );
        }
    }

    /// An API server with these Deployments. Namespace `gone` does not exist, `hidden` is forbidden, and those that
    /// begin with `olm` have the label.
    fn client(deployments: Deployments<'_>) -> Client {
        let items: Vec<Value> = deployments.iter().map(|one| json!({"metadata": metadata(one)})).collect();
        let list = json!({"metadata": {}, "items": items});
        let service = service_fn(move |request: http::Request<kube::client::Body>| {
            let failure = |code: u16, reason: &str| {
                (
                    code,
                    json!({"kind": "Status", "status": "Failure", "message": reason, "reason": reason, "code": code}),
                )
            };
            let (code, answer) = match request.uri().path().strip_prefix("/api/v1/namespaces/") {
                None => (200, list.clone()),
                Some("gone") => failure(404, "NotFound"),
                Some("hidden") => failure(403, "Forbidden"),
                Some(name) => {
                    let part_of = if name.starts_with("olm") { "olm" } else { "a-shop" };
                    (200, json!({"metadata": {"name": name, "labels": {(LABEL.0): part_of}}}))
                }
            };
            let answer = kube::client::Body::from(answer.to_string().into_bytes());
            let answer = http::Response::builder().status(code).body(answer);
            async move { Ok::<_, BoxError>(answer?) }
        });
        Client::new(service, "default")
    }

    // docs/design/operations.md#multiple-installations
    #[tokio::test]
    async fn only_labeled_namespaces_count_as_installations() {
        let rows: [(Deployments<'_>, Result<Option<&str>, u16>); 7] = [
            (&[("ours", 5), ("olm", 4)], Ok(Some("olm"))),
            (&[("ours", 5), ("tenant", 4)], Ok(None)),
            (&[("ours", 5), ("tenant", 3), ("olm", 4)], Ok(Some("olm"))),
            (&[("tenant", 3)], Ok(None)),
            (&[("ours", 5), ("gone", 4)], Ok(None)),
            (&[("ours", 5), ("hidden", 4)], Err(403)),
            // Namespaces of younger Deployments are not read.
            (&[("ours", 5), ("hidden", 6)], Ok(None)),
        ];
        for (deployments, expected) in rows {
            let found =
                find_older_installation(&client(deployments), "catalogd-controller-manager", "ours").await;
            let found = match &found {
                Ok(found) => Ok(found.as_ref().map(|(older, _)| older.as_str())),
                Err(kube::Error::Api(status)) => Err(status.code),
                Err(error) => panic!("{error}"),
            };
            assert_eq!(found, expected, "{deployments:?}");
        }
        // Without permission it does not wait.
        wait_until_oldest(&client(&[("hidden", 4)]), Component::Catalogd, "ours").await;
    }

    #[test]
    fn event_note_fits_limit_with_longest_names() {
        let longest = "n".repeat(63);
        let note = note(&Component::OperatorController.deployment_name(), &longest, &longest);
        assert!(note.len() <= 1024, "{}", note.len());
    }
}
