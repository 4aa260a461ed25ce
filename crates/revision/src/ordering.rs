//! Order of volumes and their mounts in a pod template (docs/design/migration.md#order-of-volumes). Pure.
//!
//! Their order has no effect, but a server-side apply takes that of the applied object, and a changed template restarts
//! the pods. Classic OLM adds the volumes of certificates in another order than the renderer.

use std::collections::HashMap;

use serde_json::Value;

/// `desired` with the volumes and mounts of its pod template in the order of `live`. Those that `live` lacks follow.
pub fn ordered_like(desired: &Value, live: &Value) -> Value {
    let mut ordered = desired.clone();
    let (Some(pod), Some(live)) =
        (ordered.pointer_mut("/spec/template/spec"), live.pointer("/spec/template/spec"))
    else {
        return ordered;
    };
    order(pod, live, "volumes", "name");
    for containers in ["containers", "initContainers"] {
        let live = live.get(containers).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for container in pod.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(live) = live.iter().find(|live| live.get("name") == container.get("name")) {
                order(container, live, "volumeMounts", "mountPath");
            }
        }
    }
    ordered
}

/// Sorts the list `field` by the positions of the values of `key` in the list of `live`.
fn order(owner: &mut Value, live: &Value, field: &str, key: &str) {
    let Some(list) = owner.get_mut(field).and_then(Value::as_array_mut) else { return };
    let live = live.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = |item: &Value| item.get(key).and_then(Value::as_str).map(str::to_owned);
    let positions: HashMap<String, usize> =
        live.iter().enumerate().filter_map(|(position, item)| Some((name(item)?, position))).collect();
    list.sort_by_key(|item| name(item).and_then(|name| positions.get(&name).copied()).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(volumes: &[&str], mounts: &[&str]) -> Value {
        let volumes: Vec<Value> = volumes.iter().map(|name| json!({"name": name})).collect();
        let mounts: Vec<Value> = mounts.iter().map(|path| json!({"name": "v", "mountPath": path})).collect();
        let container = |name: &str| json!({"name": name, "args": ["b", "a"], "volumeMounts": mounts});
        let containers = [container("m"), container("p")];
        json!({"spec": {"template": {"spec": {"volumes": volumes, "containers": containers}}}})
    }

    #[test]
    fn common_volumes_have_the_order_of_the_live_object() {
        let live = deployment(&["other", "api", "hook"], &["/api", "/hook"]);
        let desired = deployment(&["hook", "new", "api"], &["/hook", "/new", "/api"]);
        let expected = deployment(&["api", "hook", "new"], &["/api", "/hook", "/new"]);
        assert_eq!(ordered_like(&desired, &live), expected);
        assert_eq!(ordered_like(&expected, &live), expected);
    }

    #[test]
    fn other_objects_and_containers_are_unchanged() {
        let desired = deployment(&["b", "a"], &["/b", "/a"]);
        for live in [
            json!({}),
            json!({"spec": {"template": {"spec": {"containers": [{"name": "x"}]}}}}),
            json!({"spec": {"template": {"spec": {"volumes": "a", "containers": {}}}}}),
        ] {
            assert_eq!(ordered_like(&desired, &live), desired, "{live}");
        }
        let account = json!({"kind": "ServiceAccount"});
        assert_eq!(ordered_like(&account, &desired), account);
    }
}
