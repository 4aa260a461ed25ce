//! CA bundles of webhooks and APIs during a return to classic OLM. Until the kubelet has synced a restored Secret, pods
//! serve the certificate of the extension: both CAs are trusted. Pure.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

/// Base64 of CA bundles, by namespace and name of the Service.
pub(super) type Trusted = BTreeMap<String, String>;

const BUNDLE: &str = "caBundle";

/// Service of an object with a CA bundle, such as `clientConfig`.
fn service(fields: &Map<String, Value>) -> Option<String> {
    let service = fields.get("service")?;
    fields.contains_key(BUNDLE).then(|| format!("{}/{}", service["namespace"], service["name"]))
}

/// Adds the CA bundles of `object`.
pub(super) fn collect(object: &Value, trusted: &mut Trusted) {
    match object {
        Value::Object(fields) => {
            if let (Some(service), Some(bundle)) =
                (service(fields), fields.get(BUNDLE).and_then(Value::as_str))
            {
                trusted.insert(service, bundle.to_owned());
            }
            fields.values().for_each(|value| collect(value, trusted));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, trusted)),
        _ => {}
    }
}

/// Appends the CA bundles of `trusted` to those of `object`.
pub(super) fn extend(object: &mut Value, trusted: &Trusted) {
    match object {
        Value::Object(fields) => {
            let new = service(fields).and_then(|service| trusted.get(&service));
            if let (Some(new), Some(Value::String(bundle))) = (new, fields.get_mut(BUNDLE)) {
                *bundle = joined(bundle, new);
            }
            fields.values_mut().for_each(|value| extend(value, trusted));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| extend(item, trusted)),
        _ => {}
    }
}

/// Base64 of both bundles, or of the one that contains the other. `bundle` if one of them is not valid base64.
fn joined(bundle: &str, new: &str) -> String {
    let (Ok(first), Ok(second)) = (BASE64_STANDARD.decode(bundle), BASE64_STANDARD.decode(new)) else {
        return bundle.to_owned();
    };
    let has = |all: &[u8], part: &[u8]| part.is_empty() || all.windows(part.len()).any(|found| found == part);
    if has(&first, &second) {
        return bundle.to_owned();
    }
    if has(&second, &first) {
        return new.to_owned();
    }
    BASE64_STANDARD.encode([&first[..], b"\n", &second[..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ca_bundle_is_merged_only_for_webhook_of_same_service() {
        let object = |name: &str, bundle: &str| {
            json!({"webhooks": [{"clientConfig": {"service": {"namespace": "ns", "name": name},
                "caBundle": BASE64_STANDARD.encode(bundle)}}]})
        };
        let mut trusted = Trusted::new();
        collect(&object("lamp", "new"), &mut trusted);
        let (mut same, mut other) = (object("lamp", "old"), object("pipe", "old"));
        extend(&mut same, &trusted);
        extend(&mut same, &trusted);
        extend(&mut other, &trusted);
        assert_eq!(same, object("lamp", "old\nnew"));
        assert_eq!(other, object("pipe", "old"));
        // Another run trusts the same CAs.
        let mut again = object("lamp", "old");
        let mut live = Trusted::new();
        collect(&same, &mut live);
        extend(&mut again, &live);
        assert_eq!(again, same);
    }
}
