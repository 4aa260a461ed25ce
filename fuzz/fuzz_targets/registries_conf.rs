//! Fuzzes `registries.conf`: any text yields sources with the tag or digest of the image, which parse as printed, or
//! an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_oci::Reference;
use olm_oci::fuzzing::registries_conf;

fuzz_target!(|input: &str| {
    for image in
        ["r.example.com:5000/ns/app:v1".to_owned(), format!("a.example.com/app@sha256:{}", "0".repeat(64))]
    {
        let image: Reference = image.parse().expect("a valid reference");
        if let Some(sources) = registries_conf(input, &image) {
            assert!(!sources.is_empty());
            for source in sources {
                assert_eq!(source.selector(), image.selector());
                assert_eq!(source.to_string().parse::<Reference>().as_ref(), Ok(&source));
            }
        }
    }
});
