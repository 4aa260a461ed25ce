use super::super::super::apply::fixture::{self, id, plan};
use super::apply::{CatalogState, ClassicObject};
use super::*;

fn classic(kind: &str, name: &str) -> ClassicObject {
    fixture::classic(&id("operators.coreos.com/v1alpha1", kind, "ns", name), "Succeeded")
}

fn extension() -> ObjectId {
    id("olm.operatorframework.io/v1", "ClusterExtension", "", "lamp")
}

/// Package after its migration.
fn migrated() -> Observed {
    let migration = apply::Observed {
        has_backup: true,
        home: "olmv1-system".to_owned(),
        catalogs: CatalogState::default(),
        subscription: None,
        running: Vec::new(),
        waiting: Vec::new(),
        upgrade: None,
        csv: None,
        known: Vec::new(),
        dependents: Vec::new(),
        attached: Vec::new(),
        lost: Vec::new(),
        grants: Vec::new(),
        extension: ExtensionState::Opened,
        digest: String::new(),
        unready_webhooks: Vec::new(),
        leftovers: Vec::new(),
    };
    Observed {
        migration,
        extension: Some(extension()),
        version: Some("1.0.0".to_owned()),
        is_paused: false,
        rollout: None,
        unpaused: vec!["lamp-1".to_owned()],
        revisions: vec![id("olm.operatorframework.io/v1", "ClusterObjectSet", "", "lamp-1")],
        deleting: Vec::new(),
        content: vec![id("v1", "Secret", "olmv1-system", "lamp-1-abc")],
        missing: vec![plan().removed[0].object.clone()],
        changed: plan().adopted,
        created: vec![id("rbac.authorization.k8s.io/v1", "ClusterRole", "", "lamp-xyz")],
        unowned: Vec::new(),
        certificates: vec![id("v1", "Secret", "ns", "lamp-service-ca")],
        has_finalizer: false,
        has_subscription_status: false,
        is_returned: false,
    }
}

/// Subscription that a rollback created.
fn paused() -> ClassicObject {
    ClassicObject { is_paused: true, ..classic("Subscription", "lamp") }
}

/// State after a step without disturbance.
fn after(mut observed: Observed, step: &Step) -> Observed {
    match step {
        Step::Pause(_) => observed.is_paused = true,
        Step::AwaitPause(_) => observed.unpaused.clear(),
        Step::Recreate(_) => observed.missing.clear(),
        Step::Release(_) => observed.changed.clear(),
        Step::RemoveCreated(_) => observed.created.clear(),
        Step::DeleteExtension(_) => {
            observed.extension = None;
            observed.deleting = vec!["ClusterExtension lamp".to_owned()];
        }
        Step::AwaitDeletion(_) => observed.deleting.clear(),
        Step::DeleteRevisions(..) => {
            observed.revisions.clear();
            observed.content.clear();
        }
        Step::CreateCsv => {
            let csv =
                ClassicObject { phase: String::new(), ..classic("ClusterServiceVersion", "lamp.v1.0.0") };
            observed.migration.csv = Some(csv);
            observed.unowned = plan().adopted;
        }
        Step::SetCsvStatus => {
            // Classic OLM installs again.
            let csv = classic("ClusterServiceVersion", "lamp.v1.0.0");
            observed.migration.csv = Some(ClassicObject { phase: "Installing".to_owned(), ..csv });
        }
        Step::Attach(_) => observed.unowned.clear(),
        Step::RemoveCertificates(_) => observed.certificates.clear(),
        Step::CreateSubscription => observed.migration.subscription = Some(paused()),
        Step::SetSubscriptionStatus => observed.has_subscription_status = true,
        Step::ResumeSubscription => observed.migration.subscription = Some(classic("Subscription", "lamp")),
        Step::AwaitCsv(_) => observed.migration.csv = Some(classic("ClusterServiceVersion", "lamp.v1.0.0")),
        Step::ReleaseFinalizer(_) => observed.has_finalizer = false,
        Step::Complete(step) => observed.migration = observed.migration.after(step),
        Step::Refuse(_) | Step::Done => {}
    }
    observed
}

/// Names of the steps until the end.
fn steps(mut observed: Observed) -> Vec<String> {
    let mut steps = Vec::new();
    loop {
        let step = decide(&plan(), &observed);
        let text = format!("{step:?}");
        steps.push(text.split(['(', ' ']).next().unwrap_or_default().to_owned());
        if matches!(step, Step::Done | Step::Refuse(_)) || steps.len() > 30 {
            return steps;
        }
        observed = after(observed, &step);
    }
}

const ALL: [&str; 17] = [
    "Pause",
    "AwaitPause",
    "Recreate",
    "Release",
    "RemoveCreated",
    "DeleteExtension",
    "AwaitDeletion",
    "DeleteRevisions",
    "CreateSubscription",
    "SetSubscriptionStatus",
    "CreateCsv",
    "SetCsvStatus",
    "Attach",
    "RemoveCertificates",
    "AwaitCsv",
    "ResumeSubscription",
    "Done",
];

#[test]
fn rollback_continues_from_each_step() {
    let mut observed = migrated();
    for done in 0..ALL.len() {
        assert_eq!(steps(observed.clone()), ALL[done..]);
        let step = decide(&plan(), &observed);
        observed = after(observed, &step);
    }
}

#[test]
fn rollback_of_interrupted_migration_restores_csv() {
    let mut observed = migrated();
    observed.extension = None;
    observed.revisions.clear();
    observed.content.clear();
    observed.created.clear();
    observed.missing.clear();
    observed.certificates.clear();
    observed.migration.attached = plan().adopted;
    let held =
        ClassicObject { is_deleting: true, is_held: true, ..classic("ClusterServiceVersion", "lamp.v1.0.0") };
    observed.migration.csv = Some(held);
    let expected = [
        "Complete",
        "Complete",
        "Release",
        "CreateSubscription",
        "SetSubscriptionStatus",
        "CreateCsv",
        "SetCsvStatus",
        "Attach",
        "AwaitCsv",
        "ResumeSubscription",
        "Done",
    ];
    assert_eq!(steps(observed.clone()), expected);
    // Nothing is released before the Subscription is deleted.
    let mut waiting = observed.clone();
    let finalizers = vec!["example.com/backup".to_owned()];
    let subscription = ClassicObject { is_deleting: true, finalizers, ..classic("Subscription", "lamp") };
    waiting.migration.subscription = Some(subscription);
    let state = "Subscription ns/lamp waits for the controllers of its finalizers: example.com/backup";
    assert_eq!(decide(&plan(), &waiting).awaited(), Some(state));
    // Only the Subscription was deleted, and the finalizer set.
    observed.migration.csv = Some(classic("ClusterServiceVersion", "lamp.v1.0.0"));
    observed.has_finalizer = true;
    let expected =
        ["CreateSubscription", "SetSubscriptionStatus", "ReleaseFinalizer", "ResumeSubscription", "Done"];
    assert_eq!(steps(observed), expected);
}

#[test]
fn csv_is_created_only_below_a_paused_subscription_with_status() {
    let mut observed = migrated();
    observed.extension = None;
    (observed.missing, observed.changed, observed.created) = Default::default();
    (observed.revisions, observed.content, observed.certificates) = Default::default();
    // Another client created it.
    observed.migration.subscription = Some(classic("Subscription", "lamp"));
    observed.has_subscription_status = true;
    let pause = apply::Step::PauseSubscription(classic("Subscription", "lamp").id);
    assert_eq!(decide(&plan(), &observed), Step::Complete(pause));
    observed.migration.subscription = Some(paused());
    assert_eq!(decide(&plan(), &observed), Step::CreateCsv);
    // Classic OLM wrote a status that it computed before.
    observed.has_subscription_status = false;
    assert_eq!(decide(&plan(), &observed), Step::SetSubscriptionStatus);
    // Classic OLM upgraded it after the end of the rollback, before the backup was deleted.
    observed.migration.subscription = Some(classic("Subscription", "lamp"));
    observed.is_returned = true;
    assert_eq!(decide(&plan(), &observed), Step::Done);
}

#[test]
fn upgraded_extension_is_refused() {
    let mut observed = migrated();
    observed.version = Some("1.1.0".to_owned());
    let Step::Refuse(why) = decide(&plan(), &observed) else { panic!("not refused") };
    assert_eq!(
        why,
        "ClusterExtension lamp has version 1.1.0, but classic OLM had 1.0.0: return to it with \
         `olm rollback lamp --to 1.0.0`, then run the command again"
    );
}

#[test]
fn extension_of_another_package_is_refused() {
    let mut observed = migrated();
    observed.migration.extension = ExtensionState::Foreign;
    let Step::Refuse(why) = decide(&plan(), &observed) else { panic!("not refused") };
    assert!(why.starts_with("ClusterExtension lamp is not that of the migration"), "{why}");
    // Without it, its name belongs to the migration.
    observed.extension = None;
    assert!(matches!(decide(&plan(), &observed), Step::Recreate(_)));
}

#[test]
fn rollout_of_installed_extension_is_refused_until_it_is_paused() {
    let mut observed = migrated();
    observed.rollout = Some("RollingOut: revision 2".to_owned());
    let Step::Refuse(why) = decide(&plan(), &observed) else { panic!("not refused") };
    assert!(why.starts_with("ClusterExtension lamp is rolling out: RollingOut: revision 2. Wait"), "{why}");
    observed.is_paused = true;
    assert!(matches!(decide(&plan(), &observed), Step::AwaitPause(_)));
}

#[test]
fn failed_reinstallation_keeps_the_backup() {
    let mut observed = migrated();
    observed.extension = None;
    (observed.missing, observed.changed, observed.created) = Default::default();
    (observed.revisions, observed.content, observed.certificates) = Default::default();
    observed.migration.subscription = Some(classic("Subscription", "lamp"));
    observed.has_subscription_status = true;
    let csv = classic("ClusterServiceVersion", "lamp.v1.0.0");
    observed.migration.csv = Some(ClassicObject { phase: "Failed".to_owned(), ..csv });
    assert_eq!(decide(&plan(), &observed), Step::AwaitCsv("phase Failed".to_owned()));
}
