//! Fuzzes requirements in catalogs: any text as the value of a requirement property, and as a rule. Accepted
//! requirements must be printable and yield a verdict.
#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_fbc::Property;
use olm_resolve::{AvailableProviders, Gvk, Provider, Requirement};
use serde_json::value::{RawValue, to_raw_value};

fuzz_target!(|text: &str| {
    if let Ok(value) = RawValue::from_string(text.to_owned()) {
        for kind in ["olm.package.required", "olm.gvk.required", "olm.constraint"] {
            judge(Property { kind: kind.to_owned(), value: value.clone() });
        }
    }
    if let Ok(value) = to_raw_value(&serde_json::json!({ "cel": { "rule": text } })) {
        judge(Property { kind: "olm.constraint".to_owned(), value });
    }
});

fn judge(property: Property) {
    let Some(requirement) = Requirement::parse(&property) else { return };
    let provider = Provider::new(None, "a".to_owned(), vec![property]);
    let served = requirement.mentioned_gvks().cloned().chain([Gvk::default()]).collect();
    let _ = (requirement.to_string(), requirement.is_met_by(&provider));
    assert!(!requirement.is_met_by(&provider) || requirement.fault().is_none());
    let _ = requirement.verdict(&AvailableProviders { providers: vec![provider], served });
}
