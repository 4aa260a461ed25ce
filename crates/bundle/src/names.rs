//! Names of generated objects (docs/design/bundles.md#generated-names). Every installed revision contains them, so
//! they must never change.

use serde_json::Value;
use sha2::{Digest, Sha224};

use crate::csv::Permission;
use crate::go_json;

/// Intended maximum length of a name in the reference. See [`join`] for the exception.
const NAME_BYTES: usize = 63;

/// Joins `base` and `suffix` with a hyphen, and truncates `base` so that the name has at most 63 bytes.
///
/// As in the reference, the length check ignores the hyphen: two parts of 63 bytes in total yield 64.
pub(crate) fn join(base: &str, suffix: &str) -> String {
    if base.len() + suffix.len() <= NAME_BYTES {
        return format!("{base}-{suffix}");
    }
    let kept = base.floor_char_boundary(NAME_BYTES.saturating_sub(suffix.len() + 1));
    format!("{}-{suffix}", &base[..kept])
}

/// Name of the Role or ClusterRole, and of its binding, for one permission.
pub(crate) fn role(csv_name: &str, permission: &Permission) -> String {
    join(&format!("{csv_name}-{}", permission.account()), &hash(&permission_text(permission)))
}

/// Name of the Service of a deployment that serves webhooks or an aggregated API.
pub(crate) fn serving_service(deployment: &str) -> String {
    join(&deployment.replace('.', "-"), "service")
}

/// Name of the RoleBinding in `kube-system` of an aggregated API server. Neither name contains a dot, so names of two
/// namespaces differ.
pub(crate) fn auth_reader(service: &str, namespace: &str) -> String {
    format!("{service}.{namespace}-auth-reader")
}

/// Name of the ClusterRoleBinding of an aggregated API server.
pub(crate) fn auth_delegator(service: &str, namespace: &str) -> String {
    format!("{service}.{namespace}-auth-delegator")
}

/// Name of the serving certificate of such a Service, and of its Secret.
pub(crate) fn certificate(service: &str) -> String {
    join(service, "cert")
}

/// Name of the Issuer of a certificate.
pub(crate) fn issuer(certificate: &str) -> String {
    join(certificate, "selfsigned-issuer")
}

/// SHA-224 of `json` and a line feed, in base 36.
fn hash(json: &str) -> String {
    let digest = Sha224::new().chain_update(json).chain_update(b"\n").finalize();
    base36(&digest)
}

/// Converts a big-endian unsigned number to base 36 without leading zeros.
fn base36(number: &[u8]) -> String {
    let mut number = number.to_vec();
    let mut digits = Vec::new();
    while number.iter().any(|byte| *byte != 0) {
        let mut remainder = 0u32;
        for byte in &mut number {
            let part = remainder * 256 + u32::from(*byte);
            *byte = u8::try_from(part / 36).unwrap_or(u8::MAX);
            remainder = part % 36;
        }
        digits.push(char::from_digit(remainder, 36).unwrap_or('0'));
    }
    if digits.is_empty() {
        digits.push('0');
    }
    digits.iter().rev().collect()
}

/// JSON of a permission for its hash: keys in declaration order, not sorted.
fn permission_text(permission: &Permission) -> String {
    let account = go_json::text(&Value::from(permission.service_account_name.as_str()));
    let rules = match &permission.rules {
        None => "null".to_string(),
        Some(rules) => format!("[{}]", rules.iter().map(rule_text).collect::<Vec<_>>().join(",")),
    };
    format!(r#"{{"serviceAccountName":{account},"rules":{rules}}}"#)
}

/// JSON of a rule in normal form: `verbs` always, other keys only if not empty.
fn rule_text(rule: &Value) -> String {
    let keys = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];
    let present = keys.iter().filter_map(|key| rule.get(key).map(|value| (key, value)));
    let entries: Vec<String> =
        present.map(|(key, value)| format!("\"{key}\":{}", go_json::text(value))).collect();
    format!("{{{}}}", entries.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::typed::{Type, convert};

    #[test]
    fn joined_names_are_truncated_by_bytes() {
        // docs/design/bundles.md#name-truncation; case bundles-35
        let rows = [
            ("short".to_string(), "cert", "short-cert".to_string()),
            ("a".repeat(55), "service", format!("{}-service", "a".repeat(55))),
            ("a".repeat(56), "service", format!("{}-service", "a".repeat(56))),
            ("a".repeat(57), "service", format!("{}-service", "a".repeat(55))),
            ("c".repeat(45), "selfsigned-issuer", format!("{}-selfsigned-issuer", "c".repeat(45))),
            ("c".repeat(46), "selfsigned-issuer", format!("{}-selfsigned-issuer", "c".repeat(46))),
            ("d".repeat(80), "selfsigned-issuer", format!("{}-selfsigned-issuer", "d".repeat(45))),
            (String::new(), "service", "-service".to_string()),
            ("é".repeat(40), "service", format!("{}-service", "é".repeat(27))),
        ];
        for (base, suffix, expected) in rows {
            assert_eq!(join(&base, suffix), expected);
        }
    }

    #[test]
    fn webhook_names_derive_from_the_deployment_name() {
        // docs/design/bundles.md#webhook-service-names; cases bundles-35, bundles-49
        let long = "a-very-long-deployment-name-used-to-show-how-truncation-happens.v1";
        let rows = [
            (
                "widget.controller.v1".to_string(),
                "widget-controller-v1-service".to_string(),
                "widget-controller-v1-service-cert".to_string(),
                "widget-controller-v1-service-cert-selfsigned-issuer".to_string(),
            ),
            (
                "w".repeat(55),
                format!("{}-service", "w".repeat(55)),
                format!("{}-se-cert", "w".repeat(55)),
                format!("{}-selfsigned-issuer", "w".repeat(45)),
            ),
            (
                "w".repeat(56),
                format!("{}-service", "w".repeat(56)),
                format!("{}-s-cert", "w".repeat(56)),
                format!("{}-selfsigned-issuer", "w".repeat(45)),
            ),
            (
                long.to_string(),
                "a-very-long-deployment-name-used-to-show-how-truncation-service".to_string(),
                "a-very-long-deployment-name-used-to-show-how-truncation-se-cert".to_string(),
                "a-very-long-deployment-name-used-to-show-how--selfsigned-issuer".to_string(),
            ),
            (
                "harbor.pilot.controller".to_string(),
                "harbor-pilot-controller-service".to_string(),
                "harbor-pilot-controller-service-cert".to_string(),
                "harbor-pilot-controller-service-cert-selfsigned-issuer".to_string(),
            ),
        ];
        for (deployment, expected_service, expected_certificate, expected_issuer) in rows {
            let service = serving_service(&deployment);
            let certificate = certificate(&service);
            assert_eq!(service, expected_service);
            assert_eq!(certificate, expected_certificate);
            assert_eq!(issuer(&certificate), expected_issuer);
        }
    }

    #[test]
    fn name_hashes_match_documented_vectors() {
        // docs/design/bundles.md#role-names: vector 12
        assert_eq!(hash("\"a\""), "1lu1qv1451mq7gv9upu1cx8ffffi07rel5xvbvvc44dh");
        assert_eq!(hash("null"), "2im0kl1kwvzn46sr4cdtkvmdzrlurvj51xdzhwdht8l0");
        assert_eq!(hash("{}"), "16jfjhihxbzhfhs1k5mimq740kvioi98pfbea9q6qtf9");
        assert_eq!(base36(&[0, 0]), "0");
    }

    #[test]
    fn role_names_match_documented_vectors() {
        // docs/design/bundles.md#role-names; cases bundles-35, bundles-36
        let acme = "acme-operator.v1.0.0";
        let long = "a-really-long-operator-name-for-truncation.v10.20.30";
        let widgets = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["acme.example.com"], "resources": ["widgets"]});
        let namespaces =
            json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["namespaces"]});
        let configmaps = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"]}]);
        let patch = json!([{"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a&b", "<c>"]}]);
        let pods = json!([{"verbs": ["create", "delete"], "apiGroups": ["", "apps"], "resources": ["pods", "deployments"]}]);
        let rows = [
            (
                acme,
                "acme-sa",
                json!([widgets]),
                "acme-operator.v1.0.-otg18jyukam8qy60u83z7jqub9pb0j4pe7qohltqn1h",
            ),
            (
                acme,
                "acme-sa",
                json!([widgets, namespaces]),
                "acme-operator.v1.0.-lh2aowhc7eusvz0cw88un5klfjumjsquh1n074p8rou",
            ),
            (acme, "", configmaps.clone(), "acme-operator.v1.0-2eir5ux3vvqfchrk6xy818jvl4eedjxwr1jzhtti0eqz"),
            (acme, "default", configmaps, "acme-operator.v1.0-1eknqx7jcobtyvvi8tdi8ptig6cep72yiq8q6ytska44"),
            (acme, "acme-sa", json!([]), "acme-operator.v1.0-28lz4ybqj206eqcmlpfqexxa60cv7iw3hhncq9j7avpp"),
            (acme, "acme-sa", json!(null), "acme-operator.v1.0-254he8orhze45h2twxrolto073dua25pemeedpk4rpsg"),
            (
                acme,
                "acme-sa",
                json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]),
                "acme-operator.v1.0-12390qblu49j8l5q7ll6rtm4il2c8x9yyzunsv43xaq7",
            ),
            ("x", "y", patch, "x-y-vg15t1xaiks19sulq645wdv0uc8i3co3plb3luks5ac"),
            (
                "tiny.v1",
                "a",
                json!([{"verbs": ["get"], "apiGroups": [], "resources": null}]),
                "tiny.v1-a-f36p3xbp6r37ffktowl1vmrnbthtmu1g9xb0wd9kp61",
            ),
            (
                long,
                "controller-manager-service-account",
                pods,
                "a-really-long-oper-2nw67zg1mivl9atdr2pcs54rmtiop1pwdf9uql4op6aw",
            ),
            (
                acme,
                "acme-sa",
                json!([{"apiGroups": ["acme.example.com"], "resources": ["widgets"]}]),
                "acme-operator.v1.0-2173xtutxzk47y9xgea2xnq7ienr5rgdm0fkaa1iodpp",
            ),
        ];
        for (csv, account, rules, expected) in rows {
            let entry = json!({"serviceAccountName": account, "rules": rules});
            let normal = convert(entry, &Type::Struct("StrategyDeploymentPermissions")).unwrap();
            let permission: Permission = serde_json::from_value(normal).unwrap();
            assert_eq!(role(csv, &permission), expected);
        }
    }
}
