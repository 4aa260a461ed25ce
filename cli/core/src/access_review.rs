//! Question to the API server for the permissions of the user.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};

/// Reports whether the user of `client` has a permission.
///
/// # Errors
/// The API server does not answer, or denies access.
pub async fn is_allowed(client: &Client, permission: ResourceAttributes) -> Result<bool, kube::Error> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(permission), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
