use std::sync::Arc;

use olm_api::ClusterExtension;
use olm_api::conditions::{self, Status};
use olm_controller_core::install_error::InstallError;
use olm_request::ExtensionRules;
use serde_json::json;

use super::super::choice::of_revision;
use super::super::findings::ConditionChanges;
use super::super::memory::RevisionRecord;
use super::super::observed::NamespaceList;
use super::super::revisions::{Revision, states, tests::set};
use super::super::status::DeprecationData;
use super::*;

/// Observation of an extension with these revisions.
pub(in crate::controller) fn observed<'a>(
    extension: &'a ClusterExtension,
    rules: ExtensionRules,
    sets: &[Arc<ClusterObjectSet>],
) -> ObservedExtension<'a> {
    let states = states(sets);
    let revisions = sets.to_vec();
    let (name, account, edited, operator_condition) = ("demo".to_owned(), None, false, false);
    ObservedExtension {
        extension,
        name,
        rules,
        account,
        revisions,
        states,
        edited,
        operator_condition,
        selected: None,
        list: NamespaceList::default(),
    }
}

pub(in crate::controller) fn choice(number: i64) -> Choice {
    let target = of_revision(&Revision::of(&set(number, "Active", true)), &ExtensionRules::default());
    let (deprecation, findings) = (DeprecationData::None, ConditionChanges::default());
    Choice {
        target,
        catalog: None,
        deprecation,
        findings,
        events: Vec::new(),
        together: Default::default(),
        requeue: false,
    }
}

pub(in crate::controller) fn extension() -> ClusterExtension {
    let extension = json!({"metadata": {"name": "demo", "uid": "u"}, "status": {},
        "spec": {"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}}});
    serde_json::from_value(extension).unwrap()
}

/// Memory of an extension whose newest revision is `set`, made from these inputs.
fn memory(inputs: RevisionInputs, set: &ClusterObjectSet) -> ExtensionMemory {
    let made = RevisionRecord {
        inputs,
        newest: RevisionFingerprint::of(set),
        crds: CrdVerdict::Accepted("x".to_owned()),
        image: None,
        plan: crate::controller::plans::PlanId::default(),
    };
    ExtensionMemory { newest: Some(made), ..ExtensionMemory::default() }
}

fn name(decision: &Decision) -> &'static str {
    match decision {
        Decision::AwaitCatalog => "await",
        Decision::Refuse(_) => "refuse",
        Decision::Hold { .. } => "hold",
        Decision::Restore { .. } => "restore",
        Decision::Keep { .. } => "keep",
        Decision::Install { .. } => "install",
    }
}

#[test]
fn awaited_catalog_is_refused_unless_status_is_current() {
    let refusal = |awaits_content| {
        let refusal = ResolutionFailure::other(InstallError::retry("x"), &ExtensionRules::default());
        Err(Box::new(ResolutionFailure { awaits_content, ..*refusal }))
    };
    let (known, memory) = (extension(), ExtensionMemory::default());
    let new = ClusterExtension { status: None, ..extension() };
    for (extension, edited, awaits, expected) in [
        (&known, false, true, "await"),
        (&known, true, true, "refuse"),
        (&known, false, false, "refuse"),
        (&new, false, true, "refuse"),
    ] {
        let observed = ObservedExtension { edited, ..observed(extension, ExtensionRules::default(), &[]) };
        assert_eq!(name(&decide(&observed, refusal(awaits), &memory, None)), expected);
    }
}

#[test]
fn newest_revision_with_same_inputs_is_kept_unless_it_fails() {
    let (extension, first) = (extension(), set(1, "Active", true));
    let observed = observed(&extension, ExtensionRules::default(), std::slice::from_ref(&first));
    let known = memory(observed.inputs(&choice(1).target), &first);
    let with = |reason: &str| {
        let mut set = (*first).clone();
        let all = &mut set.status.as_mut().unwrap().conditions;
        conditions::set(all, types::PROGRESSING, Status::True, reason, "", None, jiff::Timestamp::UNIX_EPOCH);
        set
    };
    let mut annotated = (*first).clone();
    annotated.metadata.annotations.as_mut().unwrap().insert("a".to_owned(), "b".to_owned());
    let none = ExtensionMemory::default();
    for (target, memory, newest, expected) in [
        (1, &known, &*first, "keep"),
        (1, &known, &with(reasons::ROLLING_OUT), "keep"),
        (1, &known, &with(reasons::RETRYING), "install"),
        (1, &known, &annotated, "install"),
        (2, &known, &*first, "install"),
        (1, &none, &*first, "install"),
    ] {
        assert_eq!(name(&decide(&observed, Ok(choice(target)), memory, Some(newest))), expected);
    }
    let kept = decide(&observed, Ok(choice(1)), &known, Some(&first));
    assert_eq!(kept, Decision::Keep { choice: choice(1), crds: CrdVerdict::Accepted("x".to_owned()) });
}

#[test]
fn paused_extension_names_pending_change() {
    let (mut extension, first) = (extension(), set(1, "Active", true));
    let rules = ExtensionRules { paused: true, ..ExtensionRules::default() };
    let waits = |extension: &ClusterExtension, number, memory: &ExtensionMemory| {
        let observed = observed(extension, rules.clone(), std::slice::from_ref(&first));
        let Decision::Hold { waits, .. } = decide(&observed, Ok(choice(number)), memory, Some(&first)) else {
            panic!("not held")
        };
        waits
    };
    let inputs = observed(&extension, rules.clone(), &[]).inputs(&choice(1).target);
    let known = memory(inputs, &first);
    assert_eq!(waits(&extension, 1, &known), None);
    assert_eq!(waits(&extension, 2, &known).as_deref(), Some("bundle demo.v2.0.0 version 2.0.0"));
    extension.spec.as_mut().unwrap().namespace = "other".to_owned();
    assert_eq!(waits(&extension, 1, &known).as_deref(), Some("the change of spec"));
}
