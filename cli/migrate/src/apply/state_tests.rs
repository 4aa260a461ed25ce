use super::super::fixture::{classic, id, plan};
use super::*;
use serde_json::json;

fn subscription() -> ClassicObject {
    classic(&id("operators.coreos.com/v1alpha1", "Subscription", "ns", "lamp"), "")
}

fn csv(phase: &str) -> ClassicObject {
    let id = id("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "ns", "lamp.v1.0.0");
    ClassicObject { has_conversion: true, ..classic(&id, phase) }
}

fn install_plan() -> ObjectId {
    id("operators.coreos.com/v1alpha1", "InstallPlan", "ns", "install-2")
}

/// Package before its migration, with something to do for each step.
fn installed_by_classic() -> Observed {
    let catalog = json!({"metadata": {"name": "hub"}});
    Observed {
        has_backup: false,
        home: "olmv1-system".to_owned(),
        catalogs: CatalogState { missing: vec![catalog], unserved: vec!["hub: unpacking".to_owned()] },
        subscription: Some(subscription()),
        running: Vec::new(),
        waiting: vec![install_plan()],
        upgrade: None,
        csv: Some(csv("Succeeded")),
        known: Vec::new(),
        dependents: Vec::new(),
        attached: plan().adopted,
        lost: Vec::new(),
        grants: vec![json!({"kind": "RoleBinding"})],
        extension: ExtensionState::Absent,
        digest: "sha256:01".to_owned(),
        unready_webhooks: vec!["lamp".to_owned()],
        leftovers: vec![plan().removed[0].object.clone()],
    }
}

/// Names of the steps until the end.
fn steps(mut observed: Observed) -> Vec<String> {
    let plan = plan();
    let mut steps = Vec::new();
    loop {
        let step = decide(&plan, &observed);
        let text = format!("{step:?}");
        steps.push(text.split(['(', ' ']).next().unwrap_or_default().to_owned());
        if matches!(step, Step::Done | Step::Refuse(_)) || steps.len() > 30 {
            return steps;
        }
        observed = observed.after(&step);
    }
}

const ALL: [&str; 17] = [
    "CreateCatalogs",
    "AwaitCatalogs",
    "BackUp",
    "PauseSubscription",
    "HoldCsv",
    "DeleteSubscription",
    "ClearInstallPlans",
    "KeepConversion",
    "Detach",
    "ReleaseCsv",
    "CreateGrants",
    "CreateExtension",
    "AwaitInstallation",
    "AwaitWebhooks",
    "Remove",
    "Open",
    "Done",
];

#[test]
fn migration_takes_all_steps_in_order() {
    assert_eq!(steps(installed_by_classic()), ALL);
}

#[test]
fn migration_continues_from_each_step() {
    let plan = plan();
    let mut observed = installed_by_classic();
    for done in 0..ALL.len() {
        assert_eq!(steps(observed.clone()), ALL[done..]);
        let step = decide(&plan, &observed);
        observed = observed.after(&step);
    }
}

/// Next step of a migration whose backup is written, without Subscription, after this change.
fn next(change: impl Fn(&mut Observed)) -> Step {
    let mut observed = installed_by_classic().after(&Step::BackUp);
    observed.subscription = None;
    observed.waiting.clear();
    change(&mut observed);
    decide(&plan(), &observed)
}

/// ClusterServiceVersion in a deletion that the migration holds.
fn held() -> ClassicObject {
    ClassicObject { is_deleting: true, is_held: true, has_conversion: false, ..csv("Succeeded") }
}

#[test]
fn migration_step_interrupted_by_kill_is_repeated() {
    let account = || vec![plan().adopted[1].clone()];
    // Killed while the garbage collector removes owner references to the Subscription.
    let deleting = || ClassicObject { is_deleting: true, ..subscription() };
    let step = next(|observed| {
        observed.subscription = Some(deleting());
        observed.csv = Some(held());
        observed.running = vec!["ns/a".to_owned()];
    });
    assert_eq!(step, Step::AwaitSubscriptionDeletion("being deleted".to_owned()));
    let step = next(|observed| {
        let finalizers = vec!["example.com/backup".to_owned()];
        observed.subscription = Some(ClassicObject { finalizers, ..deleting() });
        observed.csv = Some(held());
    });
    let state = "Subscription ns/lamp waits for the controllers of its finalizers: example.com/backup";
    assert_eq!(step.awaited(), Some(state));
    // Killed after the deletion of the ClusterServiceVersion began, and after that of the Subscription.
    let step = next(|observed| {
        observed.subscription = Some(ClassicObject { is_paused: true, ..subscription() });
        observed.csv = Some(held());
    });
    assert_eq!(step, Step::DeleteSubscription(subscription().id));
    let step = next(|observed| {
        observed.csv = Some(held());
        observed.waiting = vec![install_plan()];
    });
    assert_eq!(step, Step::ClearInstallPlans(vec![install_plan()]));
    // Killed between the finalizer and the deletion.
    assert_eq!(next(|observed| observed.attached = account()), Step::HoldCsv(csv("").id));
    // Killed between two patches.
    let step = next(|observed| (observed.csv, observed.attached) = (Some(held()), account()));
    assert_eq!(step, Step::Detach(account()));
    // Killed before the release.
    let step = next(|observed| (observed.csv, observed.attached) = (Some(held()), Vec::new()));
    assert_eq!(step, Step::ReleaseCsv(csv("").id));
    // Killed after the release, before the OperatorCondition was detached.
    let step = next(|observed| {
        observed.csv = None;
        observed.attached = account();
        observed.lost = account();
    });
    assert_eq!(step, Step::Detach(account()));
    let step = next(|observed| {
        observed.csv = None;
        observed.attached.clear();
        observed.lost = account();
    });
    assert_eq!(step, Step::Restore(account()));
}

#[test]
fn deletion_by_another_client_is_awaited_with_its_finalizers() {
    // Another finalizer, or a deletion by another client.
    let step = next(|observed| {
        observed.csv = Some(ClassicObject { is_held: false, ..held() });
        observed.attached.clear();
    });
    assert_eq!(step, Step::AwaitCsvDeletion("being deleted".to_owned()));
    // Deleted by another client, while classic OLM does not run.
    let step = next(|observed| {
        let finalizers = vec!["operators.coreos.com/csv-cleanup".to_owned()];
        observed.csv = Some(ClassicObject { is_held: false, finalizers, ..held() });
        observed.attached.clear();
    });
    let state = "ClusterServiceVersion ns/lamp.v1.0.0 waits for the controllers of its finalizers: operators.coreos.com/csv-cleanup";
    assert_eq!(step.awaited(), Some(state));
}

#[test]
fn blocked_extension_gets_the_digest_of_the_present_objects_once() {
    let mut observed = installed_by_classic().after(&Step::BackUp);
    (observed.subscription, observed.csv) = (None, None);
    observed.waiting.clear();
    observed.attached.clear();
    observed.grants.clear();
    let mut next = |digest: &str| {
        observed.extension =
            ExtensionState::Blocked { digest: digest.to_owned(), message: "other objects".to_owned() };
        decide(&plan(), &observed)
    };
    assert_eq!(next("sha256:00"), Step::CreateExtension);
    assert_eq!(next("sha256:01"), Step::Refuse("ClusterExtension lamp: Blocked: other objects".to_owned()));
}

#[test]
fn extension_that_a_rollback_paused_is_pinned_and_resumed() {
    let extension = id("olm.operatorframework.io/v1", "ClusterExtension", "", "lamp");
    let mut observed = installed_by_classic().after(&Step::BackUp);
    (observed.subscription, observed.csv) = (None, None);
    observed.waiting.clear();
    observed.extension = ExtensionState::Paused(extension.clone());
    let mut expected = vec!["Detach", "CreateGrants", "Resume"];
    expected.extend(&ALL[12..]);
    assert_eq!(steps(observed), expected);
    let text = Step::Resume(extension).text(&plan());
    assert_eq!(text, "resume ClusterExtension lamp, pinned to version 1.0.0");
}

#[test]
fn migration_of_unhealthy_or_changed_package_is_refused() {
    let refused = |observed: &Observed| match decide(&plan(), observed) {
        Step::Refuse(why) => why,
        step => format!("{step:?}"),
    };
    let with = |change: &dyn Fn(&mut Observed)| {
        let mut observed = installed_by_classic();
        change(&mut observed);
        refused(&observed)
    };
    assert_eq!(with(&|observed| observed.subscription = None), "Subscription ns/lamp does not exist");
    assert_eq!(with(&|observed| observed.csv = None), "ClusterServiceVersion ns/lamp.v1.0.0 does not exist");
    let why = "ClusterServiceVersion ns/lamp.v1.0.0: phase Failed, expected Succeeded";
    assert_eq!(with(&|observed| observed.csv = Some(csv("Failed"))), why);
    let why = "classic OLM executes InstallPlan ns/a: wait until it is complete, then plan again";
    assert_eq!(with(&|observed| observed.running = vec!["ns/a".to_owned()]), why);
    let why = "lamp is required by ns/pipe: migrate them before, with `olm migrate apply ns/pipe ns/lamp`";
    assert_eq!(with(&|observed| observed.dependents = vec!["ns/pipe".to_owned()]), why);
    let why = "ClusterExtension lamp exists already: delete or rename it";
    assert_eq!(with(&|observed| observed.extension = ExtensionState::Opened), why);
    let why = "ClusterServiceVersion ns/b replaces a: wait for the upgrade, and run `olm migrate plan` again";
    assert_eq!(
        with(&|observed| observed.upgrade = Some("ClusterServiceVersion ns/b replaces a".to_owned())),
        why
    );
    let why =
        "Deployment ns/lamp was created, deleted or replaced since the plan: run `olm migrate plan` again";
    assert_eq!(with(&|observed| observed.lost = plan().adopted), why);
    let again = |observed: &mut Observed| {
        *observed = installed_by_classic().after(&Step::BackUp);
        observed.known = vec!["old".to_owned()];
    };
    assert!(with(&again).starts_with("Subscription ns/lamp was created again after its deletion: remove it"));
    // A rollback that did not end created it.
    let mut returning = installed_by_classic().after(&Step::BackUp);
    returning.known = vec!["old".to_owned()];
    returning.subscription = Some(ClassicObject { is_paused: true, ..subscription() });
    assert_eq!(decide(&plan(), &returning), Step::HoldCsv(csv("").id));
    returning.csv = None;
    assert_eq!(decide(&plan(), &returning), Step::DeleteSubscription(subscription().id));
}

#[test]
fn approved_upgrade_that_began_before_the_pause_refuses_migration() {
    let mut observed = installed_by_classic().after(&Step::BackUp);
    observed.running = vec!["ns/a".to_owned()];
    for is_paused in [false, true] {
        observed.subscription = Some(ClassicObject { is_paused, ..subscription() });
        let Step::Refuse(why) = decide(&plan(), &observed) else { panic!("not refused") };
        assert!(why.starts_with("classic OLM executes InstallPlan ns/a"), "{why}");
    }
}

#[test]
fn backup_is_no_longer_needed_once_classic_objects_are_deleted() {
    let mut observed =
        installed_by_classic().after(&Step::BackUp).after(&Step::DeleteSubscription(subscription().id));
    observed.waiting.clear();
    observed.extension = ExtensionState::Foreign;
    let why = |observed: &Observed| match decide(&plan(), observed) {
        Step::Refuse(why) => why,
        step => format!("{step:?}"),
    };
    let secret = "Secret olmv1-system/olm-migrate-ns.lamp";
    let needed = format!(". The backup, {secret}, is still needed for ClusterServiceVersion ns/lamp.v1.0.0");
    let held = observed.clone().after(&Step::HoldCsv(csv("").id));
    for (observed, end) in [
        (&observed, &needed),
        (&held, &needed),
        (
            &observed.clone().after(&Step::AwaitCsvDeletion(String::new())),
            &format!(". To keep it, delete the backup: {secret}"),
        ),
    ] {
        let why = why(observed);
        assert!(why.contains("annotation ext.olm.operatorframework.io/uninstall-policy=KeepCRDs"), "{why}");
        assert!(why.ends_with(end), "{why}");
    }
}

#[test]
fn backup_is_kept_while_only_it_has_the_csv() {
    let mut observed = installed_by_classic().after(&Step::BackUp);
    observed.csv = None;
    let why = "ClusterServiceVersion ns/lamp.v1.0.0 does not exist any more, and its Deployments may be deleted, too: `olm migrate \
               rollback ns/lamp` creates them again from the backup";
    assert_eq!(decide(&plan(), &observed), Step::Refuse(why.to_owned()));
    // Classic OLM deletes it at the end of an upgrade.
    observed.upgrade = Some("another version".to_owned());
    assert!(matches!(decide(&plan(), &observed), Step::DropBackup(_)));
    // The Subscription is that of a rollback that did not end.
    observed.upgrade = None;
    observed.subscription = Some(ClassicObject { is_paused: true, ..subscription() });
    observed.known.clear();
    assert!(matches!(decide(&plan(), &observed), Step::DeleteSubscription(_)));
}

#[test]
fn resumed_migration_refuses_package_that_classic_olm_upgraded() {
    let replaced = || Some("ClusterServiceVersion ns/b replaces a".to_owned());
    let why = "classic OLM has upgraded the package: ClusterServiceVersion ns/b replaces a";
    let rolled_back =
        format!("{why}: return with `olm migrate rollback ns/lamp`, wait for the upgrade, and plan again");
    let next = |change: &dyn Fn(&mut Observed)| {
        let mut observed = installed_by_classic().after(&Step::BackUp);
        change(&mut observed);
        decide(&plan(), &observed)
    };
    // Upgraded after the backup, before the deletion of the Subscription.
    assert_eq!(next(|observed| observed.upgrade = replaced()), Step::DropBackup(why.to_owned()));
    // Upgraded after the deletion of the ClusterServiceVersion began.
    let step = next(|observed| {
        observed.csv = Some(ClassicObject { is_deleting: true, ..csv("Succeeded") });
        observed.upgrade = replaced();
    });
    assert_eq!(step, Step::Refuse(rolled_back.clone()));
    // Upgraded while the Subscription was deleted.
    let step = next(|observed| {
        observed.subscription = None;
        observed.csv = None;
        observed.upgrade = replaced();
    });
    assert_eq!(step, Step::Refuse(rolled_back));
    // A ClusterServiceVersion of the same name was created again, for example by a rollback.
    let again = || ClassicObject { id: ObjectId { uid: "new".to_owned(), ..csv("").id }, ..csv("Succeeded") };
    let step = next(|observed| {
        observed.subscription = None;
        observed.csv = Some(again());
    });
    assert_eq!(step, Step::HoldCsv(again().id));
}
