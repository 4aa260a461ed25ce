//! Lists in limited memory: any user of a namespace may create many objects of 1.5 MB, with our labels.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use olm_api::limits::LIST_PAGE;
use olm_api::names;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Held by the list that is in progress.
static TURN: Semaphore = Semaphore::const_new(1);
/// Time without an answer after which another list may start.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Configuration of a watch whose initial list has pages of [`LIST_PAGE`] objects.
pub fn config() -> watcher::Config {
    watcher::Config::default().page_size(LIST_PAGE)
}

/// Turn of a caller that lists a page, until it is dropped.
pub async fn turn() -> Option<SemaphorePermit<'static>> {
    // The semaphore is never closed.
    TURN.acquire().await.ok()
}

/// Metadata of an object of kind `K`: identity, owners, and labels and annotations of our groups. In memory, other labels
/// and managed fields can be ten times as large as in JSON.
#[derive(Clone, Debug)]
pub struct OurMeta<K> {
    /// The metadata.
    pub metadata: ObjectMeta,
    kind: PhantomData<fn() -> K>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    owner_references: Option<Vec<OwnerReference>>,
    #[serde(default, deserialize_with = "ours")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "ours")]
    annotations: BTreeMap<String, String>,
}

/// The entries with keys of our groups.
fn ours<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Ours;

    impl<'de> Visitor<'de> for Ours {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("labels or annotations")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut ours = BTreeMap::new();
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                let is_ours = key.split_once('/').is_some_and(|(group, _)| group.ends_with(names::GROUP));
                if is_ours {
                    ours.insert(key.into_owned(), map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(ours)
        }
    }

    deserializer.deserialize_map(Ours)
}

impl<'de, K> Deserialize<'de> for OurMeta<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object { metadata } = Object::deserialize(deserializer)?;
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: metadata.creation_timestamp,
            owner_references: metadata.owner_references,
            labels: Some(metadata.labels),
            annotations: Some(metadata.annotations),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, kind: PhantomData })
    }
}

impl<K: Resource> Resource for OurMeta<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The events of a watch whose initial list starts when no other one of the process is in progress.
pub fn in_turn<K: Send>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send {
    stream::unfold((events.boxed(), Turn::Over), |(mut events, mut turn)| async move {
        let event = turn.next(&mut events).await?;
        Some((event, (events, turn)))
    })
}

/// State of a watch.
enum Turn {
    /// It lists nothing.
    Over,
    /// It begins a list with its next page.
    Due,
    /// It lists, and no other one does.
    Held { _permit: SemaphorePermit<'static> },
}

impl Turn {
    async fn next<S: Stream<Item = watcher::Result<Event<K>>> + Unpin, K>(
        &mut self,
        events: &mut S,
    ) -> Option<watcher::Result<Event<K>>> {
        if matches!(self, Self::Due) {
            *self = turn().await.map_or(Self::Over, |permit| Self::Held { _permit: permit });
        }
        let answer = match self {
            Self::Held { .. } => timeout(LONGEST_SILENCE, events.next()).await.ok(),
            Self::Over | Self::Due => Some(events.next().await),
        };
        let event = match answer {
            Some(event) => event,
            None => {
                *self = Self::Over;
                events.next().await
            }
        };
        match &event {
            Some(Ok(Event::Init)) => *self = Self::Due,
            Some(Ok(Event::InitApply(_))) => {}
            _ => *self = Self::Over,
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn metadata_has_identity_owners_and_our_labels() {
        let object = json!({"kind": "PartialObjectMetadata", "metadata": {
            "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"fieldsV1": {"f:metadata": {}}}],
            "labels": {"app": "b", "olm.operatorframework.io/owner-name": "demo", "a.example/b": "c"},
            "annotations": {"ext.olm.operatorframework.io/paused": "true", "note": "d"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "v"}]}});
        let meta: OurMeta<ConfigMap> = serde_json::from_value(object.clone()).unwrap();
        let mut expected: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
        expected.managed_fields = None;
        expected.labels.as_mut().unwrap().retain(|key, _| key.starts_with("olm."));
        expected.annotations.as_mut().unwrap().retain(|key, _| key.starts_with("ext."));
        assert_eq!(meta.metadata, expected);
        assert!(serde_json::from_str::<OurMeta<ConfigMap>>(r#"{"metadata": {"name": "a\u0062"}}"#).is_ok());
    }

    type Sender = mpsc::UnboundedSender<watcher::Result<Event<()>>>;

    fn watch() -> (Sender, impl Stream<Item = watcher::Result<Event<()>>> + Send) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let events = stream::unfold(receiver, |mut receiver: mpsc::UnboundedReceiver<_>| async move {
            Some((receiver.recv().await?, receiver))
        });
        (sender, in_turn(events))
    }

    #[tokio::test(start_paused = true)]
    async fn list_waits_until_the_one_in_progress_ends_or_is_silent() {
        // `None`: the first list gets no further answer.
        for end in [Some(Ok(Event::InitDone)), Some(Err(watcher::Error::NoResourceVersion)), None] {
            let ((first, first_events), (second, second_events)) = (watch(), watch());
            let (mut first_events, mut second_events) = (pin!(first_events), pin!(second_events));
            for sender in [&first, &second] {
                sender.send(Ok(Event::Init)).unwrap();
                sender.send(Ok(Event::InitApply(()))).unwrap();
            }
            assert!(matches!(first_events.next().await, Some(Ok(Event::Init))));
            assert!(matches!(second_events.next().await, Some(Ok(Event::Init))));
            assert!(matches!(first_events.next().await, Some(Ok(Event::InitApply(())))));
            let waiting = timeout(LONGEST_SILENCE / 2, second_events.next()).await;
            assert!(waiting.is_err(), "the first list is in progress");
            let is_silent = end.is_none();
            end.into_iter().for_each(|end| first.send(end).unwrap());
            let began = Instant::now();
            let (ended, listed) =
                tokio::join!(timeout(2 * LONGEST_SILENCE, first_events.next()), second_events.next());
            assert_eq!(ended.is_err(), is_silent);
            assert!(matches!(listed, Some(Ok(Event::InitApply(())))));
            assert_eq!(began.elapsed(), if is_silent { 2 * LONGEST_SILENCE } else { Duration::ZERO });
        }
    }
}
