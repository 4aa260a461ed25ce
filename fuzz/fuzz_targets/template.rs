//! Fuzzes image templates: any text yields a reference with a tag in the repository of the configured reference, or an
//! error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::{KubernetesVersion, Reference, Selector, resolve_template};

fuzz_target!(|input: &str| {
    let Some((configured, template)) = input.split_once('\n') else { return };
    for version in [None, Some(KubernetesVersion { major: 1, minor: 31, patch: Some(4) })] {
        let Ok(resolved) = resolve_template(template, Some(configured), version) else { continue };
        assert!(matches!(resolved.selector(), Selector::Tag(_)));
        let configured: Reference = configured.parse().expect("the repository of the template is its own");
        assert_eq!(resolved.name(), configured.name());
        assert!(resolve_template(template, None, version).is_ok());
    }
});
