//! The `Greeting` API of the sample operator, and the operator as OLM content.
//!
//! A greeting names somebody; the operator answers in its status. The version that answered is part of the
//! answer, so that a test can see which version of the operator runs.

pub mod content;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whom to greet.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "sample.olm.example",
    version = "v1",
    kind = "Greeting",
    namespaced,
    status = "GreetingStatus",
    derive = "PartialEq"
)]
#[derive(PartialEq, Eq)]
pub struct GreetingSpec {
    /// The name to greet.
    pub name: String,
}

/// The operator's answer.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GreetingStatus {
    /// The greeting.
    #[serde(default)]
    pub message: String,
    /// Version of the operator that answered.
    #[serde(default)]
    pub operator_version: String,
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
