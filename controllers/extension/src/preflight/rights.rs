//! Checks whether the account that applies an extension's objects has all rights that this needs: operator-controller
//! (docs/design/operations.md#hardened-rights), or the service account of the extension
//! (docs/design/additions.md#service-account-impersonation). Executed before anything is applied, so that all missing
//! rights are reported at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use olm_api::conditions::messages::REQUIRES_PERMISSIONS;
use olm_api::limits::LIST_PAGE;
use olm_bundle::rights::{RbacRule, Right, Rights, Scoped};
use olm_controller_core::install_error::{InstallError, api_request};
use olm_runtime::cluster::list_all;
use serde_json::{Value, json};
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::{Preflight, collect_some};

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_CALLS: usize = 16;
/// Maximum number of reviews for one bundle. Real bundles need some hundreds. The API server denies unchecked
/// requests when they are sent.
const MAX_QUESTIONS: usize = 5000;
/// Limit of a message in bytes. Conditions hold 32 KiB.
const MAX_MESSAGE: usize = 16 << 10;
/// Time for which all rights of operator-controller are not reviewed again, so that many installations at once share a review.
/// It is short: the same pods run under `hardened.yaml`, and only this check then keeps a bundle from what operator-controller
/// may do itself, such as reading all Secrets.
const UNRESTRICTED_TIME: Duration = Duration::from_secs(30);
/// ClusterRole of `hardened.yaml` that aggregates the rights of extensions.
const CONTENT_ROLE: &str = "operator-controller-content-namespaced";
/// ClusterRoles that an administrator adds to it.
const ADDED: &str =
    "ext.olm.operatorframework.io/aggregate-to-operator-controller=true,app.kubernetes.io/part-of!=olm";

/// A right and its namespace, `None` for cluster scope.
type ScopedRight = (Option<String>, Right);

impl Preflight {
    /// Returns a message with the rights that `account` (`<namespace>/<name>`), or operator-controller without one, lacks
    /// to apply the objects of the extension, or with those that policies deny operator-controller. `None` if it lacks none.
    ///
    /// # Errors
    /// The API server did not answer.
    pub(crate) async fn missing_rights(
        &self,
        extension: &str,
        account: Option<&str>,
        objects: &[Value],
    ) -> Result<Option<String>, InstallError> {
        let rights = block_in_place(|| Rights::of(objects));
        let Some(account) = account else {
            return self.missing_own_rights(extension, objects, &rights).await;
        };
        let (namespace, name) = account.split_once('/').unwrap_or_default();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let found = api_request(accounts.get_metadata_opt(name), "getting the service account").await?;
        if found.is_none() {
            return Ok(Some(format!("service account {name:?} not found in namespace {namespace:?}")));
        }
        let reviewer = AccessReviewer { client: self.client.clone(), account: Some((namespace, name)) };
        let mut missing = reviewer.denied(required(&rights.objects)).await?;
        missing.extend(reviewer.denied(reviewer.grantable(&rights.granted).await?).await?);
        Ok((!missing.is_empty()).then(|| message(&format!("service account {account:?}"), &missing)))
    }

    /// Returns a message with the rights that operator-controller lacks, or `None` if it lacks none. What a bundle grants
    /// in the whole cluster must be in a ClusterRole of an administrator: `hardened.yaml` lets operator-controller itself
    /// read all Secrets and write objects of OLM.
    async fn missing_own_rights(
        &self,
        extension: &str,
        objects: &[Value],
        rights: &Rights,
    ) -> Result<Option<String>, InstallError> {
        let reviewer = AccessReviewer { client: self.client.clone(), account: None };
        if self.is_unrestricted(&reviewer).await? {
            return Ok(None);
        }
        let mut missing = reviewer.denied(required(&rights.objects)).await?;
        let mut granted = reviewer.grantable(&rights.granted).await?;
        let added = self.added_rules().await?;
        if let Some(added) = &added {
            let is_added =
                |(scope, right): &ScopedRight| scope.is_some() || added.iter().any(|rule| rule.allows(right));
            missing.extend(granted.iter().filter(|one| !is_added(one)).cloned());
            granted.retain(is_added);
        }
        missing.extend(reviewer.denied(granted).await?);
        if missing.is_empty() {
            return if added.is_some() { self.denied_objects(extension, objects).await } else { Ok(None) };
        }
        let missing = message("operator-controller", &missing);
        Ok(Some(format!(
            "{missing}; olm rbac required --extension {extension} --operator-controller prints the roles"
        )))
    }

    /// `true` if operator-controller has all rights. A positive answer is cached: most install files grant them.
    async fn is_unrestricted(&self, reviewer: &AccessReviewer<'_>) -> Result<bool, InstallError> {
        let now = Instant::now();
        if self.unrestricted_until.lock().is_some_and(|until| now < until) {
            return Ok(true);
        }
        let is_unrestricted = reviewer.denied([(None, resource("*", "*", "*"))].into()).await?.is_empty();
        *self.unrestricted_until.lock() = is_unrestricted.then_some(now + UNRESTRICTED_TIME);
        Ok(is_unrestricted)
    }

    /// Rules of the ClusterRoles with which an administrator extends `hardened.yaml`. `None` with another install file.
    async fn added_rules(&self) -> Result<Option<Vec<RbacRule>>, InstallError> {
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let content =
            api_request(roles.get_metadata_opt(CONTENT_ROLE), "getting the ClusterRole for content");
        if content.await?.is_none() {
            return Ok(None);
        }
        let list = async |page| api_request(roles.list(&page), "listing the ClusterRoles for content").await;
        let added = list_all(ListParams::default().labels(ADDED).limit(LIST_PAGE), list).await?;
        let rules = added.into_iter().filter_map(|role| role.rules).flatten();
        Ok(Some(rules.map(|rule| RbacRule::of(&json!(rule))).collect()))
    }
}

/// Client for the access reviews of one account.
struct AccessReviewer<'a> {
    client: Client,
    /// Namespace and name of a service account. `None` is the account of this process.
    account: Option<(&'a str, &'a str)>,
}

impl AccessReviewer<'_> {
    /// Returns the rights that the account lacks.
    async fn denied(&self, required: BTreeSet<ScopedRight>) -> Result<BTreeSet<ScopedRight>, InstallError> {
        let questions = required
            .into_iter()
            .take(MAX_QUESTIONS)
            .map(|required| async move { Ok((!self.is_allowed(&required).await?).then_some(required)) });
        Ok(collect_some(questions.collect(), MAX_CONCURRENT_CALLS).await?.into_iter().collect())
    }

    /// Returns the rights that the account must hold to grant these. It may grant any right in scopes in which it may
    /// escalate.
    async fn grantable(&self, granted: &Scoped) -> Result<BTreeSet<ScopedRight>, InstallError> {
        let escalation = granted.keys().map(|scope| (scope.clone(), escalate(scope.as_ref()))).collect();
        let scopes: BTreeSet<_> =
            self.denied(escalation).await?.into_iter().map(|(scope, _)| scope).collect();
        let mut granted = required(granted);
        granted.retain(|(scope, _)| scopes.contains(scope));
        Ok(granted)
    }

    async fn is_allowed(&self, required: &ScopedRight) -> Result<bool, InstallError> {
        let params = PostParams::default();
        let (resource_attributes, non_resource_attributes) = attributes(required);
        let Some((namespace, name)) = self.account else {
            let spec = SelfSubjectAccessReviewSpec { resource_attributes, non_resource_attributes };
            let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
            let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
            let answer =
                api_request(api.create(&params, &review), "reading the permissions of operator-controller");
            return Ok(answer.await?.status.is_some_and(|status| status.allowed));
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{name}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes,
            non_resource_attributes,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer =
            api_request(api.create(&params, &review), "reading the permissions of the service account");
        Ok(answer.await?.status.is_some_and(|status| status.allowed))
    }
}

/// Returns the attributes of an access review.
fn attributes((scope, right): &ScopedRight) -> (Option<ResourceAttributes>, Option<NonResourceAttributes>) {
    match right {
        Right::Resource { group, resource, name, verb } => {
            let mut parts = resource.splitn(2, '/').map(str::to_owned);
            let attributes = ResourceAttributes {
                namespace: scope.clone(),
                group: Some(group.clone()),
                resource: parts.next(),
                subresource: parts.next(),
                name: name.clone(),
                verb: Some(verb.clone()),
                ..ResourceAttributes::default()
            };
            (Some(attributes), None)
        }
        Right::Url { path, verb } => {
            let attributes = NonResourceAttributes { path: Some(path.clone()), verb: Some(verb.clone()) };
            (None, Some(attributes))
        }
    }
}

fn required(rights: &Scoped) -> BTreeSet<ScopedRight> {
    let in_scope = |(scope, rules): (&Option<String>, &BTreeSet<RbacRule>)| {
        rules.iter().flat_map(RbacRule::rights).map(|right| (scope.clone(), right)).collect::<Vec<_>>()
    };
    rights.iter().flat_map(in_scope).collect()
}

/// Returns the right to write roles with any rules.
fn escalate(scope: Option<&String>) -> Right {
    let roles = if scope.is_some() { "roles" } else { "clusterroles" };
    resource("rbac.authorization.k8s.io", roles, "escalate")
}

fn resource(group: &str, resource: &str, verb: &str) -> Right {
    let [group, resource, verb] = [group, resource, verb].map(str::to_owned);
    Right::Resource { group, resource, name: None, verb }
}

/// Returns a line with the missing verbs, grouped by resource.
fn message(account: &str, missing: &BTreeSet<ScopedRight>) -> String {
    let mut verbs: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (scope, right) in missing {
        let (what, verb) = match right {
            Right::Resource { group, resource, name, verb } => {
                let scope = scope.as_deref().unwrap_or_default();
                let name = name.as_ref().map(|name| format!(" ResourceNames:[{name}]")).unwrap_or_default();
                (format!("Namespace:{scope:?} APIGroups:[{group}] Resources:[{resource}]{name}"), verb)
            }
            Right::Url { path, verb } => (format!("NonResourceURLs:[{path}]"), verb),
        };
        verbs.entry(what).or_default().insert(verb);
    }
    let count = verbs.len();
    let mut text = format!("{account} {REQUIRES_PERMISSIONS} to manage the extension: ");
    for (index, (what, verbs)) in verbs.into_iter().enumerate() {
        let verbs: Vec<&str> = verbs.into_iter().collect();
        let line = format!("{}{what} Verbs:[{}]", if index > 0 { "; " } else { "" }, verbs.join(","));
        if text.len() + line.len() > MAX_MESSAGE {
            text.push_str(&format!("; and {} more", count - index));
            break;
        }
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::{Json, Router};

    use super::*;

    fn right(name: Option<&str>, verb: &str) -> Right {
        Right::Resource {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            name: name.map(str::to_owned),
            verb: verb.to_owned(),
        }
    }

    #[tokio::test]
    async fn all_rights_are_reviewed_once_for_many_revisions() {
        let reviews = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reviews);
        let review = move || {
            // Rights are revoked before the third review.
            let is_allowed = counted.fetch_add(1, Ordering::Relaxed) < 2;
            async move { Json(json!({"spec": {}, "status": {"allowed": is_allowed}})) }
        };
        let client = Client::new(Router::new().fallback(review), "default");
        let preflight = Preflight::new(client.clone());
        let reviewer = AccessReviewer { client, account: None };
        let expire = || *preflight.unrestricted_until.lock() = Some(Instant::now());
        let ask = async |is_allowed: bool, count: usize| {
            assert_eq!(preflight.is_unrestricted(&reviewer).await.unwrap(), is_allowed);
            assert_eq!(reviews.load(Ordering::Relaxed), count);
        };
        ask(true, 1).await;
        ask(true, 1).await;
        expire();
        ask(true, 2).await;
        expire();
        ask(false, 3).await;
        ask(false, 4).await;
    }

    #[test]
    fn missing_rights_are_grouped_by_resource() {
        let missing = BTreeSet::from([
            (Some("ns".to_owned()), right(None, "create")),
            (Some("ns".to_owned()), right(Some("op"), "patch")),
            (Some("ns".to_owned()), right(Some("op"), "get")),
            (None, Right::Url { path: "/metrics".to_owned(), verb: "get".to_owned() }),
        ]);
        assert_eq!(
            message("service account \"ns/installer\"", &missing),
            "service account \"ns/installer\" requires the following permissions to manage the extension: \
             Namespace:\"ns\" APIGroups:[apps] Resources:[deployments] Verbs:[create]; \
             Namespace:\"ns\" APIGroups:[apps] Resources:[deployments] ResourceNames:[op] Verbs:[get,patch]; \
             NonResourceURLs:[/metrics] Verbs:[get]"
        );
    }

    #[test]
    fn long_message_ends_with_number_of_omitted_rights() {
        let many =
            (0..1000).map(|number| (None, right(Some(&format!("deployment-{number:04}")), "get"))).collect();
        let text = message("operator-controller", &many);
        assert!(text.len() < MAX_MESSAGE + 50, "{}", text.len());
        assert!(text.ends_with(" more") && text.contains("deployment-0000"), "{text}");
    }
}
