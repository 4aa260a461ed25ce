//! Service account that applies and deletes the objects of a revision
//! (docs/design/additions.md#service-account-impersonation).

use http::HeaderValue;
use olm_api::annotations;

/// Returns the user name of the service account `<namespace>/<name>`. Accounts of `system_namespace` are refused: they
/// belong to operator-controller and catalogd, and the revision would gain their rights.
pub fn user(account: Option<&String>, system_namespace: &str) -> Result<Option<HeaderValue>, String> {
    let Some(account) = account else { return Ok(None) };
    let user = account
        .split_once('/')
        .filter(|(namespace, name)| ![*namespace, *name].contains(&"") && !name.contains('/'))
        .filter(|(namespace, _)| *namespace != system_namespace)
        .and_then(|(namespace, name)| {
            HeaderValue::from_str(&format!("system:serviceaccount:{namespace}:{name}")).ok()
        });
    user.map(Some).ok_or_else(|| {
        let key = annotations::EXT_SERVICE_ACCOUNT;
        format!(
            "annotation {key}: Invalid value: {account:?}: must be <namespace>/<name> of a service account outside of \
             {system_namespace}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_outside_of_system_namespace_is_accepted() {
        let of = |account: &str| user(Some(&account.to_owned()), "system");
        assert_eq!(user(None, "system"), Ok(None));
        let named = HeaderValue::from_static("system:serviceaccount:ns:installer");
        assert_eq!(of("ns/installer"), Ok(Some(named)));
        for wrong in ["", "installer", "ns/", "/installer", "a/b/c", "ns/a\nb", "system/operator-controller"]
        {
            let error = of(wrong).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "annotation ext.olm.operatorframework.io/service-account: Invalid value: {wrong:?}: must be \
                     <namespace>/<name> of a service account outside of system"
                )
            );
        }
    }
}
