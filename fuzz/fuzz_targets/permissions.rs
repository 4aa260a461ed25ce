//! Fuzzes permission differences: any two lists of objects yield the same changes each time, equal lists none, and what
//! one direction gains the other one loses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_plan::permissions::changes;
use serde_json::Value;

fuzz_target!(|input: &str| {
    let Some((old, new)) = input.split_once("---") else { return };
    let parse = |text: &str| serde_json::from_str::<Vec<Value>>(text);
    let (Ok(old), Ok(new)) = (parse(old), parse(new)) else { return };
    let Ok(forth) = changes(&old, &new) else { return };
    assert_eq!(changes(&old, &new), Ok(forth.clone()));
    for same in [&old, &new] {
        assert_eq!(changes(same, same).unwrap_or_default(), []);
    }
    for change in &forth {
        assert!(!change.gained.is_empty() || !change.lost.is_empty());
        let _ = change.gained.iter().chain(&change.lost).map(ToString::to_string).collect::<String>();
    }
    // Without one of the lists, only its bindings count.
    if !old.is_empty() && !new.is_empty() {
        let back = changes(&new, &old).unwrap_or_default();
        let gains = forth.iter().any(|change| !change.gained.is_empty());
        let loses = back.iter().any(|change| !change.lost.is_empty());
        assert!(!gains || loses || has_deployment(&old) || has_deployment(&new), "gained only in one direction");
    }
});

/// A Deployment is compared only if it is in the new list.
fn has_deployment(objects: &[Value]) -> bool {
    objects.iter().any(|object| object["kind"] == "Deployment")
}
