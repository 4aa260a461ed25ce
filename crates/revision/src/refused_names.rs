//! Cause for which a CRD is not established although it is applied: another one has its names
//! (docs/design/apply.md#refused-names).
//!
//! Pure.

use serde_json::Value;

use crate::object::{gvk, is_crd, text};

/// Clause about the names that are taken, with the remedy. Empty if the names are accepted.
pub(crate) fn refused_names(object: &Value) -> String {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let refused = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "NamesAccepted" && condition["status"] == "False");
    let Some(refused) = refused.filter(|_| is_crd(&gvk(object))) else { return String::new() };
    let (message, group) = (text(refused, "/message"), text(object, "/spec/group"));
    format!(
        "; its names are not accepted: {message}: change the names of the other CRD of group {group} that has them, or \
         delete it if it has no custom resources"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn taken_names_of_a_crd_are_explained() {
        let object = |kind: &str, status: &str| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "spec": {"group": "acme.example"}, "status": {"conditions": [
                {"type": "Established", "status": "False", "message": "not all names are accepted"},
                {"type": "NamesAccepted", "status": status, "message": "\"ct\" is already in use"}]}})
        };
        assert_eq!(
            refused_names(&object("CustomResourceDefinition", "False")),
            "; its names are not accepted: \"ct\" is already in use: change the names of the other CRD of group \
             acme.example that has them, or delete it if it has no custom resources"
        );
        assert_eq!(refused_names(&object("CustomResourceDefinition", "True")), "");
        assert_eq!(refused_names(&object("Other", "False")), "");
        assert_eq!(refused_names(&json!({"kind": "CustomResourceDefinition"})), "");
    }
}
