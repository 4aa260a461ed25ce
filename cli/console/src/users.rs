//! Users of a console in the cluster, each with a token of their own (docs/design/console.md#in-the-cluster).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::api::{Api, PostParams};
use olm_cli_core::access_review::is_allowed;
use olm_cli_core::error::CliError;
use olm_cli_core::source::ClusterConnection;
use olm_pack::digest_of;
use olm_runtime::cluster::{describe, within_deadline};
use olm_version::quote;
use tokio::sync::Semaphore;

use super::page::PageError;

/// Time for which an answer of the API server about a user is valid.
const VALIDITY: Duration = Duration::from_secs(15);
/// Limit of kept answers.
const KEPT: usize = 4096;
/// Limit of concurrent reviews, so that invalid tokens do not flood the API server.
const CONCURRENT: usize = 8;

/// Users of the cluster. The console has no credentials itself.
pub(super) struct Users {
    /// Connection without credentials.
    base: Arc<ClusterConnection>,
    answers: Answers,
    reviews: Semaphore,
}

/// User with a token that the API server accepted.
#[derive(Clone)]
pub(super) struct User {
    pub(super) name: String,
    /// Connection with the token.
    pub(super) cluster: Arc<ClusterConnection>,
    /// Digest of the token.
    key: String,
}

impl Users {
    pub(super) fn new(base: Arc<ClusterConnection>) -> Self {
        Self { base, answers: Answers::default(), reviews: Semaphore::new(CONCURRENT) }
    }

    /// User of a token.
    ///
    /// # Errors
    /// 401 if the API server refuses the token, or names no user.
    pub(super) async fn identify(&self, token: &str) -> Result<User, PageError> {
        let refused = |why| PageError::new(StatusCode::UNAUTHORIZED, why);
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .ok()
            .filter(|_| !token.is_empty() && !token.contains(char::is_whitespace))
            .ok_or_else(|| refused("the text is not a token"))?;
        value.set_sensitive(true);
        let cluster = Arc::new(self.base.as_user(value));
        let key = digest_of(token.as_bytes());
        let ask = async {
            let api: Api<SelfSubjectReview> = Api::all(cluster.client().clone());
            let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
            let user = review.status.and_then(|status| status.user_info);
            Ok(user.and_then(|user| user.username).unwrap_or_default())
        };
        let name = self.answer(&key, ask).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 401 => {
                refused("the API server does not accept the token: it is invalid or has expired")
            }
            other => PageError::from(CliError::operational(format!(
                "cannot check the token: {}",
                describe(&other)
            ))),
        })?;
        if name.is_empty() {
            return Err(refused("the API server names no user for the token"));
        }
        Ok(User { name, cluster, key })
    }

    /// Checks that `user` may get the ClusterCatalog `name`, because all users share the content of a catalog.
    ///
    /// # Errors
    /// The user may not, or the API server does not answer.
    pub(super) async fn check_catalog(&self, user: &User, name: &str) -> Result<(), CliError> {
        let ask = async {
            let is_allowed = is_allowed(user.cluster.client(), get_catalog(name)).await?;
            Ok(if is_allowed { "allowed" } else { "denied" }.to_owned())
        };
        let answer = self.answer(&format!("{}/{name}", user.key), ask).await.map_err(|error| {
            CliError::operational(format!("cannot check your permissions: {}", describe(&error)))
        })?;
        match answer.as_str() {
            "allowed" => Ok(()),
            _ => Err(CliError::operational(format!(
                "clustercatalogs.olm.operatorframework.io {} is forbidden: User {} cannot get it",
                quote(name),
                quote(&user.name)
            ))),
        }
    }

    /// Answer to a question, which may be up to [`VALIDITY`] old. Errors are not kept.
    async fn answer(
        &self,
        question: &str,
        ask: impl Future<Output = Result<String, kube::Error>>,
    ) -> Result<String, kube::Error> {
        if let Some(answer) = self.answers.get(question, Instant::now()) {
            return Ok(answer);
        }
        let reviewed = async {
            // Never closed.
            let _permit = self.reviews.acquire().await;
            ask.await
        };
        let answer = within_deadline(reviewed).await?;
        self.answers.keep(question, &answer, Instant::now());
        Ok(answer)
    }
}

/// Answers about users, by the digest of their token and the question.
#[derive(Default)]
struct Answers(Mutex<BTreeMap<String, (Instant, String)>>);

impl Answers {
    fn get(&self, question: &str, now: Instant) -> Option<String> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, answer) = answers.get(question)?;
        (now.duration_since(*since) < VALIDITY).then(|| answer.clone())
    }

    fn keep(&self, question: &str, answer: &str, now: Instant) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= KEPT {
            answers.clear();
        }
        answers.insert(question.to_owned(), (now, answer.to_owned()));
    }
}

/// Permission to get a ClusterCatalog.
fn get_catalog(name: &str) -> ResourceAttributes {
    ResourceAttributes {
        group: Some("olm.operatorframework.io".to_owned()),
        resource: Some("clustercatalogs".to_owned()),
        verb: Some("get".to_owned()),
        name: Some(name.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// Token that an authenticating proxy added to the request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_user_and_access_reviews_expire_and_are_bounded() {
        let (answers, now) = (Answers::default(), Instant::now());
        answers.keep("a", "x", now);
        assert_eq!(answers.get("a", now).as_deref(), Some("x"));
        assert_eq!(answers.get("b", now), None);
        assert_eq!(answers.get("a", now + VALIDITY), None);
        for number in 0..2 * KEPT {
            answers.keep(&number.to_string(), "x", now);
        }
        assert!(answers.0.lock().unwrap().len() <= KEPT);
    }

    #[test]
    fn only_bearer_tokens_are_taken_from_the_header() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("Bearer", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(bearer(&headers), expected, "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
