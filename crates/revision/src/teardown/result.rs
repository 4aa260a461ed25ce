//! Progress of a removal, and the texts about it. Pure.

use crate::object::ObjectKey;

/// Begin of the text about objects whose deletion the API server denies.
pub const DENIED: &str = "deletions that are denied: ";

/// Progress of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeardownResult {
    /// Objects that are being deleted but still exist, or must be read again.
    pub waiting: Vec<ObjectKey>,
    /// Problems that users must resolve, one line each.
    pub blocked: Vec<String>,
    /// Custom resources of CustomResourceDefinitions that are being deleted, see
    /// [`crate::cluster::Instances::summary`].
    pub terminating: Vec<String>,
    /// Other objects that are being deleted and have finalizers, with these.
    pub held: Vec<String>,
    /// Objects whose deletion, or change of owner, the API server denies, which are also in `waiting`, with its message.
    pub denied: Vec<(ObjectKey, String)>,
    /// `true` if only CustomResourceDefinitions can be removed yet.
    pub(super) is_held: bool,
}

impl TeardownResult {
    /// Result of a removal that users must unblock first.
    pub fn blocked(message: String) -> Self {
        Self { blocked: vec![message], ..Self::default() }
    }

    /// Ends the wait for objects whose deletion is denied, which are these and those of the result.
    pub fn without(mut self, denied: Vec<(ObjectKey, String)>) -> Self {
        for (key, message) in denied {
            if !self.is_denied(&key) {
                self.denied.push((key, message));
            }
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting = waiting.into_iter().filter(|key| !self.is_denied(key)).collect();
        self
    }

    pub(super) fn is_denied(&self, key: &ObjectKey) -> bool {
        self.denied.iter().any(|(denied, _)| denied == key)
    }

    /// Objects whose deletion is denied, one line.
    pub fn denials(&self) -> String {
        let line = |(key, message): &(ObjectKey, String)| format!("{key}: {message}");
        self.denied.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    /// What the removal waits for: custom resources, objects with finalizers, and objects whose deletion is denied.
    pub fn awaited(&self) -> Vec<String> {
        let denied = (!self.denied.is_empty()).then(|| format!("{DENIED}{}", self.denials()));
        self.terminating.iter().chain(&self.held).cloned().chain(denied).collect()
    }

    /// `true` if all objects to remove are gone.
    pub fn is_complete(&self) -> bool {
        self.waiting.is_empty() && self.blocked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    #[test]
    fn denied_objects_end_the_wait_but_stay_named() {
        let key = |name: &str| ObjectKey {
            gvk: GroupVersionKind::gvk("", "v1", "ConfigMap"),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        };
        let denied = |name: &str| (key(name), "policy p".to_owned());
        let result = TeardownResult {
            waiting: vec![key("a"), key("b")],
            denied: vec![denied("a")],
            terminating: vec!["1 x".to_owned()],
            held: vec!["y: finalizer f".to_owned()],
            ..TeardownResult::default()
        };
        let text = "deletions that are denied: /v1, Kind=ConfigMap ns/a: policy p";
        assert_eq!(result.awaited(), ["1 x", "y: finalizer f", text]);
        let result = result.without(vec![denied("a"), denied("c")]);
        assert_eq!((&result.waiting, result.is_complete()), (&vec![key("b")], false));
        assert_eq!(
            result.denials(),
            "/v1, Kind=ConfigMap ns/a: policy p; /v1, Kind=ConfigMap ns/c: policy p"
        );
    }
}
