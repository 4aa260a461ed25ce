//! The `Greeting` API of the sample operator, its webhooks, and the operator as OLM content.
//!
//! A greeting names somebody; the operator answers in its status. The version that answered is part of the
//! answer, so that a test can see which version of the operator runs.

pub mod certificates;
pub mod content;
pub mod webhooks;

use kube::api::{ApiResource, Object};
use kube::core::GroupVersionKind;
use serde::{Deserialize, Serialize};

/// Finalizer that the operator removes from greetings that are deleted.
pub const CLEANUP: &str = "sample.olm.example/cleanup";

/// Version of the API that the operator answers.
pub const ANSWERED: &str = "v1";

/// Somebody to greet. The group depends on the package: [`greetings`] has it.
pub type Greeting = Object<GreetingSpec, GreetingStatus>;

/// Whom to greet.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct GreetingSpec {
    /// The name to greet.
    pub name: String,
}

/// The operator's answer.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GreetingStatus {
    /// The greeting.
    #[serde(default)]
    pub message: String,
    /// Version of the operator that answered.
    #[serde(default)]
    pub operator_version: String,
}

/// The resource `greetings` of the group in this version.
#[must_use]
pub fn greetings(group: &str, version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(group, version, "Greeting");
    ApiResource::from_gvk_with_plural(&kind, "greetings")
}

/// The answer of operator version `version` to `spec`.
#[must_use]
pub fn answer(spec: &GreetingSpec, version: &str) -> GreetingStatus {
    GreetingStatus { message: format!("Hello, {}!", spec.name), operator_version: version.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_whom_and_which_version() {
        let status = answer(&GreetingSpec { name: "world".into() }, "1.1.0");
        assert_eq!(status.message, "Hello, world!");
        assert_eq!(status.operator_version, "1.1.0");
    }
}
