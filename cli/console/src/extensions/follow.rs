//! Wait for a change on the cluster, so that a page follows it (docs/design/console.md#live-pages).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use futures::future::{Either, select};
use futures::{StreamExt, pin_mut};
use kube::api::{Api, ListParams, WatchParams};
use olm_api::{ClusterExtension, ClusterObjectSet, labels};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use crate::page::PageError;
use crate::visit::Visit;

/// Limit of requests that follow the cluster at the same time.
const MAX_FOLLOWERS: usize = 32;
/// Limit of these requests for each user of a console in the cluster.
const MAX_OF_USER: usize = 8;
/// Longest wait. The page also shows what no watch reports, such as logs.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Wait if the cluster refuses the watch.
const POLL: Duration = Duration::from_secs(3);
/// Longest resourceVersion.
const MAX_VERSION: usize = 64;
/// Longest label value, in bytes.
const MAX_LABEL: usize = 63;

/// Name of the user of each request that follows the cluster. Empty on loopback.
#[derive(Default)]
pub(crate) struct Followers(Mutex<Vec<String>>);

/// Permission to follow the cluster.
pub(super) struct Permit {
    followers: Arc<Followers>,
    user: String,
}

/// Query of a page that follows the cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    /// Not empty for the part of the page that changes.
    fragment: String,
    /// [`Seen`] of the shown part. Empty for no wait.
    seen: String,
}

/// resourceVersions that a page shows, as `EXTENSIONS.REVISIONS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    extensions: String,
    /// Empty for a page without revisions.
    revisions: String,
}

impl Query {
    pub(super) fn is_fragment(&self) -> bool {
        !self.fragment.is_empty()
    }

    /// Waits until something changes after the state that the query names, at most [`MAX_WAIT`]. The work that renders
    /// the part holds the permit: a disconnect does not end it.
    ///
    /// # Errors
    /// Too many requests follow the cluster.
    pub(super) async fn wait(
        &self,
        visit: &Visit,
        cluster: &ClusterConnection,
        name: Option<&str>,
    ) -> Result<Option<Permit>, PageError> {
        if !self.is_fragment() {
            return Ok(None);
        }
        let permit = Arc::clone(&visit.console.followers).enter(visit.visitor.user_name())?;
        if let Some(seen) = Seen::parse(&self.seen) {
            // The end of the time is not an error.
            let _ = timeout(MAX_WAIT, seen.change(cluster, name)).await;
        }
        Ok(Some(permit))
    }
}

impl Followers {
    fn users(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// 503 if too many requests, or too many of this user, follow the cluster.
    fn enter(self: Arc<Self>, user: Option<&str>) -> Result<Permit, PageError> {
        let max_of_user = user.map_or(MAX_FOLLOWERS, |_| MAX_OF_USER);
        let user = user.unwrap_or_default().to_owned();
        let mut users = self.users();
        let of_user = users.iter().filter(|known| **known == user).count();
        if users.len() >= MAX_FOLLOWERS || of_user >= max_of_user {
            let why = format!(
                "too many open pages follow the cluster: {of_user} of this user, {} in all",
                users.len()
            );
            return Err(PageError::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        users.push(user.clone());
        drop(users);
        Ok(Permit { followers: self, user })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut users = self.followers.users();
        if let Some(at) = users.iter().position(|user| *user == self.user) {
            users.swap_remove(at);
        }
    }
}

impl Seen {
    /// Present state of the extension `name` and its revisions, or of all extensions.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn now(
        cluster: &ClusterConnection,
        name: Option<&str>,
        session: &Session,
    ) -> Result<Self, CliError> {
        let (extensions, revisions) = (of_extensions(cluster), of_revisions(cluster));
        let page = |page: ListParams| page.limit(1);
        let listed =
            page(fields(name).map_or_else(ListParams::default, |only| ListParams::default().fields(&only)));
        let extensions =
            cluster.call("ClusterExtensions", extensions.list_metadata(&listed), session).await?;
        let revisions = match owner(name) {
            None => String::new(),
            Some(owner) => {
                let listed = page(ListParams::default().labels(&owner));
                let found =
                    cluster.call("ClusterObjectSets", revisions.list_metadata(&listed), session).await?;
                found.metadata.resource_version.unwrap_or_default()
            }
        };
        Ok(Self { extensions: extensions.metadata.resource_version.unwrap_or_default(), revisions })
    }

    fn parse(text: &str) -> Option<Self> {
        let is_version =
            |text: &str| text.len() <= MAX_VERSION && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let (extensions, revisions) = text.split_once('.')?;
        let valid = !extensions.is_empty() && is_version(extensions) && is_version(revisions);
        valid.then(|| Self { extensions: extensions.to_owned(), revisions: revisions.to_owned() })
    }

    /// Ends at the first change.
    async fn change(&self, cluster: &ClusterConnection, name: Option<&str>) {
        let seconds = MAX_WAIT.as_secs() as u32 + 1;
        let params = || WatchParams::default().timeout(seconds).disable_bookmarks();
        let extensions = async {
            let params = fields(name).map_or_else(params, |only| params().fields(&only));
            first(of_extensions(cluster).watch_metadata(&params, &self.extensions).await).await
        };
        let revisions = async {
            match owner(name).filter(|_| !self.revisions.is_empty()) {
                Some(owner) => {
                    let params = params().labels(&owner);
                    first(of_revisions(cluster).watch_metadata(&params, &self.revisions).await).await
                }
                None => std::future::pending().await,
            }
        };
        pin_mut!(extensions, revisions);
        let seen = match select(extensions, revisions).await {
            Either::Left((seen, _)) | Either::Right((seen, _)) => seen,
        };
        if !seen {
            sleep(POLL).await;
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.extensions, self.revisions)
    }
}

fn of_extensions(cluster: &ClusterConnection) -> Api<ClusterExtension> {
    Api::all(cluster.client().clone())
}

fn of_revisions(cluster: &ClusterConnection) -> Api<ClusterObjectSet> {
    Api::all(cluster.client().clone())
}

fn fields(name: Option<&str>) -> Option<String> {
    name.map(|name| format!("metadata.name={name}"))
}

/// Selector of the revisions. `None` if there can be none.
fn owner(name: Option<&str>) -> Option<String> {
    let name = name.filter(|name| name.len() <= MAX_LABEL)?;
    Some(format!("{}={name}", labels::OWNER_NAME))
}

/// Reports whether the watch has an event. A watch that cannot start or ends with an error has none.
async fn first<E>(
    watch: Result<impl futures::Stream<Item = Result<kube::core::WatchEvent<E>, kube::Error>>, kube::Error>,
) -> bool {
    let Ok(events) = watch else { return false };
    pin_mut!(events);
    matches!(events.next().await, Some(Ok(event)) if !matches!(event, kube::core::WatchEvent::Error(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_resource_versions_are_followed() {
        for text in ["12.34", "12.", "a1.b2"] {
            assert_eq!(Seen::parse(text).map(|seen| seen.to_string()).as_deref(), Some(text));
        }
        let long = format!("{}.1", "1".repeat(65));
        for text in ["", "12", ".", ".1", "1.2.3", "1&watch=0.2", "1/..", "%31.1", "é.1", &long] {
            assert_eq!(Seen::parse(text), None, "{text}");
        }
    }

    #[test]
    fn follower_above_limit_is_refused_until_another_ends() {
        let followers = Arc::new(Followers::default());
        let enter = |user: Option<&str>| Arc::clone(&followers).enter(user).map_err(|error| error.status());
        let mut of_admin: Vec<_> = (0..MAX_OF_USER).map(|_| enter(Some("admin")).unwrap()).collect();
        let full = Some(StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(enter(Some("admin")).err(), full);
        let _others: Vec<_> = (0..MAX_FOLLOWERS - MAX_OF_USER).map(|_| enter(None).unwrap()).collect();
        assert_eq!(enter(Some("lister")).err(), full);
        drop(of_admin.pop());
        assert!(enter(Some("lister")).is_ok());
        assert!(enter(Some("admin")).is_ok());
    }

    #[test]
    fn extension_name_over_63_characters_yields_no_label_selector() {
        assert_eq!(owner(Some(&"a".repeat(64))), None);
        assert_eq!(owner(Some("pipe")).as_deref(), Some("olm.operatorframework.io/owner-name=pipe"));
    }
}
