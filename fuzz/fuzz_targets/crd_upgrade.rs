//! Fuzzes CRD upgrades: any two CRDs are compared or rejected, a CRD has no finding against itself except for
//! removed stored versions, and any object is checked against both.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use olm_crd_safety::{LiveCheck, check};

mod shapes;
use shapes::Shapes;

fuzz_target!(|input: &[u8]| {
    // Input that is too short is ignored.
    let _ = run(&mut Unstructured::new(input));
});

fn run(input: &mut Unstructured<'_>) -> Result<()> {
    let mut shapes = Shapes(input);
    let (old, new, object) = (shapes.crd()?, shapes.crd()?, shapes.any(4)?);
    let findings = check(Some(&old), &new);
    assert_eq!(findings, check(Some(&old), &new));
    assert_eq!(check(None, &new), Ok(Vec::new()));
    if let Ok(findings) = &findings {
        assert!(findings.is_sorted(), "{findings:?}");
        let own = check(Some(&new), &new).expect("the same CRD was accepted above");
        assert!(own.iter().all(|finding| finding.check == "storedVersionRemoval"), "{own:?}");
    }
    let Ok(live) = LiveCheck::new(&old, &new) else { return Ok(()) };
    for version in live.versions() {
        let violations = live.violations(version, &object);
        assert_eq!(violations, live.violations(version, &object));
    }
    for finding in findings.iter().flatten() {
        let _ = live.judges(finding);
    }
    Ok(())
}
