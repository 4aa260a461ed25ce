//! Policies of `hardened.yaml` and objects that an extension of an earlier version has: they change as far as that gives
//! no more than they have (docs/design/operations.md#hardened-rights).

use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::hardened_policies::{CA, DryRun, secret, start_with_all_rights, webhooks};

const TOKEN: &str = "kubernetes.io/service-account-token";

#[tokio::test(flavor = "multi_thread")]
async fn existing_token_secret_changes_except_for_its_account() {
    let cluster = start_with_all_rights().await;
    let run = DryRun::of(&cluster).await;
    eventually("the policies are active", async || run.create(&secret("apps", "new", TOKEN)).await).await;
    let existing = secret("apps", "existing", TOKEN);
    run.given(&existing).await;
    for patch in [json!({"metadata": {"labels": {"a": "b"}}}), json!({"data": {"more": "YQ=="}})] {
        assert_eq!(run.patch(&existing, &patch).await, None, "{patch}");
    }
    let account = json!({"metadata": {"annotations": {"kubernetes.io/service-account.name": "other"}}});
    let denied = run.patch(&existing, &account).await.unwrap_or_default();
    assert!(denied.contains("a token Secret needs an exception"), "{denied}");
}

/// Patch with the webhook of this configuration after a change.
fn with(configuration: &Value, change: impl Fn(&mut Value)) -> Value {
    let mut webhook = configuration["webhooks"][0].clone();
    change(&mut webhook);
    json!({"webhooks": [webhook]})
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_webhook_on_kubernetes_changes_except_for_what_it_receives() {
    let cluster = start_with_all_rights().await;
    let run = DryRun::of(&cluster).await;
    let any = Value::Null;
    for new in [webhooks("new", ("", "pods"), &any), webhooks("new", ("*", "*/*"), &any)] {
        eventually("the policies are active", async || run.create(&new).await).await;
    }
    for rule in [("", "pods"), ("", "secrets"), ("*", "*/*"), ("olm.operatorframework.io", "*")] {
        let name = format!("existing-{}-{}", rule.0, rule.1).replace(['*', '/'], "x");
        let mut existing = webhooks(&name, rule, &any);
        existing["webhooks"][0]["failurePolicy"] = json!("Ignore");
        run.given(&existing).await;
        for patch in [
            json!({"metadata": {"labels": {"a": "b"}}}),
            with(&existing, |webhook| webhook["clientConfig"]["caBundle"] = json!(CA)),
            with(&existing, |webhook| webhook["timeoutSeconds"] = json!(3)),
            json!({"webhooks": []}),
        ] {
            assert_eq!(run.patch(&existing, &patch).await, None, "{rule:?}: {patch}");
        }
        let added = json!({"webhooks": [existing["webhooks"][0], {"name": "d.e.f", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com"},
            "rules": existing["webhooks"][0]["rules"]}]});
        for patch in [
            added,
            with(&existing, |webhook| webhook["name"] = json!("d.e.f")),
            with(&existing, |webhook| webhook["rules"][0]["operations"] = json!(["*"])),
            with(&existing, |webhook| webhook["rules"][0]["apiVersions"] = json!(["*"])),
            with(&existing, |webhook| webhook["rules"][0]["scope"] = json!("Namespaced")),
            with(&existing, |webhook| webhook["clientConfig"]["service"]["name"] = json!("other")),
            with(&existing, |webhook| webhook["clientConfig"]["service"]["path"] = json!("/other")),
            with(&existing, |webhook| webhook["clientConfig"] = json!({"url": "https://example.com"})),
            with(&existing, |webhook| webhook["failurePolicy"] = json!("Fail")),
            with(&existing, |webhook| webhook["matchPolicy"] = json!("Exact")),
            with(&existing, |webhook| webhook["objectSelector"] = json!({"matchLabels": {"a": "b"}})),
            with(&existing, |webhook| webhook["namespaceSelector"] = json!({"matchLabels": {"a": "b"}})),
            with(&existing, |webhook| {
                webhook["matchConditions"] = json!([{"name": "a", "expression": "true"}]);
            }),
        ] {
            assert!(run.patch(&existing, &patch).await.is_some(), "{rule:?}: {patch}");
        }
        // Its deletion is not a new right.
        assert_eq!(run.delete(&existing).await, None, "{rule:?}");
    }
}
