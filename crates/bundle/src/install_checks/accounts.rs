//! Service accounts of OLM: pods that would run with them, Secrets that would get their tokens, and bindings that would
//! extend their rights.

use olm_version::quote;
use serde_json::Value;

use super::title;
use crate::bundle::group_of;
use crate::pointer::{list, text, texts};

const SYSTEM_ACCOUNTS: [&str; 2] = ["catalogd-controller-manager", "operator-controller-controller-manager"];

/// Reports uses of service accounts of OLM in `system_namespace`. Kinds of any group count: they may create pods and
/// bindings, too.
pub(super) fn system_accounts(object: &Value, system_namespace: &str) -> Vec<String> {
    let refused = |what: &str, account: &str| {
        format!("{}: {what} {}, which belongs to OLM itself", title(object), quote(account))
    };
    let mut found = Vec::new();
    if text(object, "/metadata/namespace") == system_namespace {
        let fields = ["serviceAccountName", "serviceAccount"];
        let named = fields.map(|field| text(object, &format!("/spec/template/spec/{field}")));
        let named = named.into_iter().filter(|name| SYSTEM_ACCOUNTS.contains(name));
        found.extend(named.map(|name| refused("its pods use service account", name)));
        let account = text(object, "/metadata/annotations/kubernetes.io~1service-account.name");
        let is_token = group_of(object).is_empty()
            && text(object, "/type") == "kubernetes.io/service-account-token"
            && SYSTEM_ACCOUNTS.contains(&account);
        found.extend(is_token.then(|| refused("it gets a token of service account", account)));
    }
    let bound = list(object, "/subjects").iter().map(|one| {
        let (kind, name) = (text(one, "/kind"), text(one, "/name"));
        match kind {
            "ServiceAccount" => format!("system:serviceaccount:{}:{name}", text(one, "/namespace")),
            _ => name.to_owned(),
        }
    });
    // RoleBindings of OpenShift name users and groups in lists, too.
    let listed = ["/userNames", "/groupNames"].into_iter().flat_map(|field| texts(object, field));
    let is_system = |name: &String| {
        *name == format!("system:serviceaccounts:{system_namespace}")
            || SYSTEM_ACCOUNTS
                .iter()
                .any(|own| *name == format!("system:serviceaccount:{system_namespace}:{own}"))
    };
    let bound = bound.chain(listed.map(str::to_owned)).filter(is_system);
    found.extend(bound.map(|name| refused("it grants permissions to", &name)));
    found
}
