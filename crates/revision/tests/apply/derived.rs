//! Fields that the API server derives from others
//! (docs/design/apply.md#owners-of-fields).

use olm_revision::engine::Revision;
use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, deployment, phase};

/// Revision 1 with `old` and its successor with `new`, both applied.
async fn upgraded(fixture: &Fixture, name: &str, old: &[&Value], new: &[&Value]) -> Revision {
    let mut first = fixture.revision(name, 1, vec![phase("deploy", old)]).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    assert_eq!(actions(&fixture.complete(&first).await), vec![Action::Idle; old.len()]);
    let mut second = fixture.revision(name, 2, vec![phase("deploy", new)]).await;
    second.siblings = vec![first.owner.uid];
    second.probes = Default::default();
    fixture.complete(&second).await;
    second
}

#[tokio::test]
async fn derived_fields_follow_their_source() {
    let fixture = &mut Fixture::start().await;
    let ns = "derived";
    fixture.namespace(ns).await;
    let plain = deployment(ns, "op");
    let mut named = plain.clone();
    named["spec"]["template"]["spec"]["serviceAccountName"] = json!("op");
    let policy = |name: &str, spec: Value| {
        let mut policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": ns}, "spec": {"podSelector": {}}});
        policy["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        policy
    };
    let egress = json!({"egress": [{"to": [{"podSelector": {}}]}]});
    let old = [&named, &policy("gains", json!({})), &policy("loses", egress.clone())];
    let new = [&plain, &policy("gains", egress), &policy("loses", json!({}))];
    let second = upgraded(fixture, ns, &old, &new).await;
    let pod = fixture.get(&plain).await.unwrap()["spec"]["template"]["spec"].clone();
    assert_eq!((pod.get("serviceAccountName"), pod.get("serviceAccount")), (None, None));
    for (policy, types) in [(new[1], json!(["Ingress", "Egress"])), (new[2], json!(["Ingress"]))] {
        assert_eq!(fixture.get(policy).await.unwrap()["spec"]["policyTypes"], types);
    }
    fixture.restart();
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Idle; 3]);
}
