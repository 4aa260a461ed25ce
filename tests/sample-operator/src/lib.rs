//! The `Greeting` API of the sample operator, its webhooks, its aggregated API, and the operator as OLM content.
//!
//! The operator answers a greeting in its status, with its own version, so that a test can see which version runs.

pub mod aggregated;
pub mod certificates;
pub mod content;
pub mod webhooks;

use kube::api::{ApiResource, Object};
use kube::core::GroupVersionKind;
use serde::{Deserialize, Serialize};

/// Finalizer that the operator removes from greetings that are being deleted.
pub const CLEANUP: &str = "sample.olm.example/cleanup";

/// Version of the API that the operator watches.
pub const ANSWERED: &str = "v1";

/// Custom resource that the operator answers. Its group depends on the package, see [`greetings`].
pub type Greeting = Object<GreetingSpec, GreetingStatus>;

/// Spec of a greeting.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct GreetingSpec {
    /// Name to greet.
    pub name: String,
}

/// Status written by the operator.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GreetingStatus {
    /// Text of the answer.
    #[serde(default)]
    pub message: String,
    /// Version of the operator that answered.
    #[serde(default)]
    pub operator_version: String,
}

/// API resource `greetings` of the group in this version.
#[must_use]
pub fn greetings(group: &str, version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(group, version, "Greeting");
    ApiResource::from_gvk_with_plural(&kind, "greetings")
}

/// Status that operator version `version` writes for `spec`.
#[must_use]
pub fn answer(spec: &GreetingSpec, version: &str) -> GreetingStatus {
    GreetingStatus { message: format!("Hello, {}!", spec.name), operator_version: version.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_contains_name_and_operator_version() {
        let status = answer(&GreetingSpec { name: "world".into() }, "1.1.0");
        assert_eq!(status.message, "Hello, world!");
        assert_eq!(status.operator_version, "1.1.0");
    }
}
