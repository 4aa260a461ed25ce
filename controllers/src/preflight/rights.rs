//! Checks whether the service account that applies an extension's objects has all rights that this needs
//! (docs/design/additions.md#service-account-impersonation). Executed before anything is applied, so that all missing
//! rights are reported at once.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use olm_bundle::rights::{Right, Rights, Rule, Scoped};

use super::{Preflight, collect_some};
use crate::install_error::{InstallError, api_request};

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_CALLS: usize = 16;
/// Maximum number of reviews for one bundle. Real bundles need some hundreds. The API server denies unchecked
/// requests when they are sent.
const MAX_QUESTIONS: usize = 5000;
/// Limit of a message in bytes. Conditions hold 32 KiB.
const MAX_MESSAGE: usize = 16 << 10;

/// A right and its namespace, `None` for cluster scope.
type ScopedRight = (Option<String>, Right);

impl Preflight {
    /// Returns a message with the rights that `account` (`<namespace>/<name>`) lacks, or `None` if it lacks none.
    ///
    /// # Errors
    /// The API server did not answer.
    pub(crate) async fn missing_rights(
        &self,
        account: &str,
        rights: &Rights,
    ) -> Result<Option<String>, InstallError> {
        let (namespace, name) = account.split_once('/').unwrap_or_default();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let found = api_request(accounts.get_metadata_opt(name), "getting the service account").await?;
        if found.is_none() {
            return Ok(Some(format!("service account {name:?} not found in namespace {namespace:?}")));
        }
        let reviewer = AccessReviewer { client: self.client.clone(), namespace, name };
        let mut missing = reviewer.denied(required(&rights.objects)).await?;
        // Roles may grant any right in scopes in which the account may escalate.
        let granted = &rights.granted;
        let escalation = granted.keys().map(|scope| (scope.clone(), escalate(scope.as_ref()))).collect();
        let mut granted = required(granted);
        let scopes: BTreeSet<_> =
            reviewer.denied(escalation).await?.into_iter().map(|(scope, _)| scope).collect();
        granted.retain(|(scope, _)| scopes.contains(scope));
        missing.extend(reviewer.denied(granted).await?);
        Ok((!missing.is_empty()).then(|| message(account, &missing)))
    }
}

/// Client for the access reviews of one account.
struct AccessReviewer<'a> {
    client: Client,
    namespace: &'a str,
    name: &'a str,
}

impl AccessReviewer<'_> {
    /// Returns the rights that the account lacks.
    async fn denied(&self, required: BTreeSet<ScopedRight>) -> Result<BTreeSet<ScopedRight>, InstallError> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let questions = required.into_iter().take(MAX_QUESTIONS).map(|required| {
            let (api, review) = (api.clone(), self.review(&required));
            async move {
                let params = PostParams::default();
                let answer = api.create(&params, &review);
                let answer = api_request(answer, "asking what the service account may do").await?;
                Ok((!answer.status.is_some_and(|status| status.allowed)).then_some(required))
            }
        });
        Ok(collect_some(questions.collect(), MAX_CONCURRENT_CALLS).await?.into_iter().collect())
    }

    fn review(&self, (scope, right): &ScopedRight) -> SubjectAccessReview {
        let Self { namespace, name, .. } = self;
        let mut spec = SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{name}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            ..SubjectAccessReviewSpec::default()
        };
        match right {
            Right::Resource { group, resource, name, verb } => {
                let mut parts = resource.splitn(2, '/').map(str::to_owned);
                spec.resource_attributes = Some(ResourceAttributes {
                    namespace: scope.clone(),
                    group: Some(group.clone()),
                    resource: parts.next(),
                    subresource: parts.next(),
                    name: name.clone(),
                    verb: Some(verb.clone()),
                    ..ResourceAttributes::default()
                });
            }
            Right::Url { path, verb } => {
                spec.non_resource_attributes =
                    Some(NonResourceAttributes { path: Some(path.clone()), verb: Some(verb.clone()) });
            }
        }
        SubjectAccessReview { spec, ..SubjectAccessReview::default() }
    }
}

fn required(rights: &Scoped) -> BTreeSet<ScopedRight> {
    let in_scope = |(scope, rules): (&Option<String>, &BTreeSet<Rule>)| {
        rules.iter().flat_map(Rule::rights).map(|right| (scope.clone(), right)).collect::<Vec<_>>()
    };
    rights.iter().flat_map(in_scope).collect()
}

/// Returns the right to write roles with any rules.
fn escalate(scope: Option<&String>) -> Right {
    Right::Resource {
        group: "rbac.authorization.k8s.io".to_owned(),
        resource: if scope.is_some() { "roles" } else { "clusterroles" }.to_owned(),
        name: None,
        verb: "escalate".to_owned(),
    }
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
    let mut text =
        format!("service account {account:?} requires the following permissions to manage the extension: ");
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
    use super::*;

    fn right(name: Option<&str>, verb: &str) -> Right {
        Right::Resource {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            name: name.map(str::to_owned),
            verb: verb.to_owned(),
        }
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
            message("ns/installer", &missing),
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
        let text = message("ns/installer", &many);
        assert!(text.len() < MAX_MESSAGE + 50, "{}", text.len());
        assert!(text.ends_with(" more") && text.contains("deployment-0000"), "{text}");
    }
}
