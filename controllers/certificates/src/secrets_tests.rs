//! The Secrets of a Service, stage by stage.

use std::time::Duration;

use olm_api::ClusterExtension;
use serde_json::{Value, json};

use super::*;
use crate::plan::{Cause, Times, next};

const START: &str = "2026-01-10T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn serving() -> Serving {
    Serving {
        namespace: "ns".to_owned(),
        service: "d-service".to_owned(),
        secret: "d-service-cert".to_owned(),
    }
}

fn owner(uid: &str, renewal_request: Option<&str>) -> Owner {
    let annotations = renewal_request
        .map(|renewal_request| json!({annotations::EXT_RENEW_WEBHOOK_CERTIFICATES_AT: renewal_request}));
    let extension = json!({"metadata": {"name": "demo", "uid": uid, "annotations": annotations}});
    Owner::of(&serde_json::from_value::<ClusterExtension>(extension).unwrap())
}

/// The Secrets of a Service, without concurrent writers.
struct Cluster {
    owner: Owner,
    serving: Serving,
    ca: Option<Secret>,
    leaf: Option<Secret>,
}

impl Cluster {
    fn empty() -> Self {
        Self { owner: owner("u", None), serving: serving(), ca: None, leaf: None }
    }

    fn found(&self) -> ServiceSecrets<'_> {
        let (ca, leaf) = (self.ca.clone(), self.leaf.clone());
        ServiceSecrets { owner: &self.owner, serving: &self.serving, issued_by_others: false, ca, leaf }
    }

    /// Executes steps until the next one waits. Returns them and the time of the next one.
    fn renew(&mut self, now: &str, carried_for: Option<u64>) -> (Vec<Step>, Timestamp) {
        let (now, mut steps) = (at(now), Vec::new());
        loop {
            let bundle = self.found().bundle(now);
            // Objects carry a bundle only after it was created.
            let carried = carried_for.filter(|_| steps.is_empty()).map(Duration::from_secs);
            let step = next(&self.found().facts(carried, now), &Times::DEFAULT, now);
            let Some(secret) = self.found().written(step, now).unwrap() else {
                let Step::Wait(until) = step else { panic!("{step:?} writes nothing") };
                assert!(count(&bundle) >= 1);
                return (steps, until);
            };
            steps.push(step);
            assert!(steps.len() < 10, "{steps:?}");
            if matches!(step, Step::NewLeaf | Step::RepairLeaf) {
                self.leaf = Some(secret);
            } else {
                self.ca = Some(secret);
            }
        }
    }

    fn is_trusted(&self, leaf: &Secret, now: &str) -> bool {
        is_accepted(&pair(leaf), &self.found().bundle(at(now)), &dns_names(&self.serving), at(now))
    }
}

const NEW: Step = Step::NewAuthority(Cause::Missing);

#[test]
fn new_secrets_have_metadata_and_accepted_certificate() {
    let mut cluster = Cluster::empty();
    assert_eq!(cluster.renew(START, None), (vec![NEW, Step::NewLeaf], at("2026-03-10T00:00:00Z")));
    let leaf = cluster.leaf.clone().unwrap();
    assert!(cluster.is_trusted(&leaf, START));
    let shown = serde_json::to_value(&leaf.metadata).unwrap();
    let expected = json!({
        "name": "d-service-cert", "namespace": "ns",
        "labels": {
            "ext.olm.operatorframework.io/webhook-certificate": "serving",
            "olm.operatorframework.io/owner-kind": "ClusterExtension",
            "olm.operatorframework.io/owner-name": "demo",
        },
        "annotations": {"ext.olm.operatorframework.io/certificate-since": START},
        "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "name": "demo", "uid": "u", "controller": true}],
    });
    assert_eq!(shown, expected);
    assert_eq!(leaf.type_.as_deref(), Some("kubernetes.io/tls"));
    let ca = cluster.ca.clone().unwrap();
    assert_eq!((ca.name_any().as_str(), value(&ca, "ca.crt")), ("d-service-ca", value(&leaf, "ca.crt")));
    assert_eq!(cluster.renew(START, None).0, [], "unchanged Secrets are not written");
}

// Case additions-a44
#[test]
fn served_certificate_stays_trusted_during_renewal() {
    let mut cluster = Cluster::empty();
    cluster.renew(START, None);
    let first = cluster.leaf.clone().unwrap();
    cluster.owner.renewal_request = Some("now".to_owned());
    let asked = "2026-01-20T12:00:00Z";
    let (steps, until) = cluster.renew(asked, Some(864_000));
    assert_eq!(steps, [Step::NewAuthority(Cause::Asked), Step::RepairLeaf]);
    assert_eq!(until, Timestamp::MAX, "waits for objects to carry the bundle");
    assert_eq!(count(&cluster.found().bundle(at(asked))), 2);
    let waiting = cluster.leaf.clone().unwrap();
    assert_eq!(pair(&waiting), pair(&first));
    assert!(cluster.is_trusted(&waiting, asked));
    assert_eq!(cluster.renew(asked, Some(10)), (vec![], at("2026-01-20T12:00:20Z")));
    let signed = "2026-01-20T12:00:30Z";
    assert_eq!(cluster.renew(signed, Some(30)), (vec![Step::NewLeaf], at("2026-01-21T12:00:30Z")));
    // Pods may serve either certificate.
    let second = cluster.leaf.clone().unwrap();
    assert_ne!(pair(&second), pair(&first));
    assert!(cluster.is_trusted(&first, signed) && cluster.is_trusted(&second, signed));
    let over = "2026-01-21T12:00:30Z";
    assert_eq!(cluster.renew(over, Some(3600)).0, [Step::DropOldAuthorities, Step::RepairLeaf]);
    assert!(!cluster.is_trusted(&first, over) && cluster.is_trusted(&second, over));
    assert_eq!(cluster.renew(over, Some(3600)).0, [], "a renewal request is executed once");
}

#[test]
fn classic_olm_serving_certificate_is_adopted_and_stays_trusted() {
    let classic = new_ca("classic", at(START)).unwrap();
    let names = dns_names(&serving());
    let served = new_leaf(&classic, "classic", &names, at(START)).unwrap();
    let data =
        [("tls.crt", &served.certificate), ("tls.key", &served.key), ("olmCAKey", &classic.certificate)];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.clone())));
    let mut left: Secret = serde_json::from_value(json!({"type": "kubernetes.io/tls", "metadata": {
        "name": "d-service-cert", "namespace": "ns", "annotations": {"olmcahash": "0"}, "labels": {"olm.managed": "true"}}}))
    .unwrap();
    left.data = Some(data.into());
    let mut cluster = Cluster { leaf: Some(left.clone()), ..Cluster::empty() };
    assert_eq!(cluster.found().check(), Ok(()));
    let (steps, until) = cluster.renew(START, Some(3600));
    assert_eq!(steps, [NEW, Step::RepairLeaf]);
    // Clients that trust either CA accept the certificate, which is kept.
    let kept = cluster.leaf.clone().unwrap();
    assert_eq!(pair(&kept), served);
    assert!(
        cluster.is_trusted(&kept, START) && is_accepted(&served, &classic.certificate, &names, at(START))
    );
    assert!(until > at("2026-03-01T00:00:00Z"));
    // The annotation is removed once no object of classic OLM calls the Service.
    cluster.leaf.as_mut().unwrap().annotations_mut().remove("olmcahash");
    assert_eq!(cluster.renew(START, Some(3600)).0, [Step::NewLeaf]);
    assert!(cluster.is_trusted(cluster.leaf.as_ref().unwrap(), START) && cluster.is_trusted(&kept, START));
    // The CA is retained by a return to classic OLM, and another migration follows.
    let mut again = Cluster { owner: owner("v", None), leaf: Some(left.clone()), ..cluster };
    again.ca.as_mut().unwrap().metadata.owner_references = None;
    let bundle = merged_bundle([value(again.ca.as_ref().unwrap(), "tls.crt")], MAX_TRUSTED, at(START));
    let data = again.ca.as_mut().unwrap().data.as_mut().unwrap();
    data.insert("ca.crt".to_owned(), ByteString(bundle));
    assert_eq!(again.renew(START, Some(3600)).0, [Step::RepairAuthority, Step::RepairLeaf]);
    assert_eq!(pair(again.leaf.as_ref().unwrap()), served);
    assert!(again.is_trusted(&left, START) && again.is_trusted(&kept, START));
    // A Secret that a ClusterServiceVersion owns belongs to a running operator of classic OLM.
    left.owner_references_mut().push(OwnerReference { uid: "csv".to_owned(), ..OwnerReference::default() });
    assert!(Cluster { leaf: Some(left), ..Cluster::empty() }.found().check().is_err());
}

#[test]
fn lost_or_damaged_secret_is_recreated() {
    let mut cluster = Cluster::empty();
    cluster.renew(START, None);
    let first = cluster.leaf.clone().unwrap();
    // Without the Secret of the CA, certificates that it signed stay trusted until all objects carry the next CA.
    cluster.ca = None;
    assert_eq!(cluster.renew(START, Some(3600)).0, [NEW, Step::RepairLeaf]);
    assert!(cluster.is_trusted(&first, START) && pair(cluster.leaf.as_ref().unwrap()) == pair(&first));
    // Both Secrets are lost.
    (cluster.ca, cluster.leaf) = (None, None);
    assert_eq!(cluster.renew(START, Some(3600)).0, [NEW, Step::NewLeaf]);
    assert!(!cluster.is_trusted(&first, START));
    // Damaged values, keys and labels.
    let good = (cluster.ca.clone(), cluster.leaf.clone());
    let set = |secret: &mut Option<Secret>, key: &str, text: &[u8]| {
        let data = secret.as_mut().unwrap().data.as_mut().unwrap();
        data.insert(key.to_owned(), ByteString(text.to_vec()));
    };
    let unmark = |secret: &mut Option<Secret>| secret.as_mut().unwrap().metadata.labels = None;
    type Damage<'a> = &'a dyn Fn(&mut Cluster);
    let rows: [(Damage<'_>, &[Step]); 8] = [
        (&|c| set(&mut c.leaf, "tls.crt", b"x"), &[Step::NewLeaf]),
        (&|c| set(&mut c.leaf, "tls.key", value(c.ca.as_ref().unwrap(), "tls.key")), &[Step::NewLeaf]),
        (&|c| set(&mut c.leaf, "ca.crt", b"x"), &[Step::RepairLeaf]),
        (&|c| unmark(&mut c.leaf), &[Step::RepairLeaf]),
        (&|c| unmark(&mut c.ca), &[Step::RepairAuthority]),
        (&|c| set(&mut c.ca, "ca.crt", b"x"), &[Step::RepairAuthority]),
        (&|c| set(&mut c.ca, "tls.key", b"x"), &[NEW, Step::RepairLeaf]),
        (&|c| c.leaf.as_mut().unwrap().data = None, &[Step::NewLeaf]),
    ];
    for (number, (damage, steps)) in rows.into_iter().enumerate() {
        (cluster.ca, cluster.leaf) = good.clone();
        damage(&mut cluster);
        assert_eq!(cluster.renew(START, Some(3600)).0, steps, "row {number}");
        let leaf = cluster.leaf.clone().unwrap();
        assert!(cluster.is_trusted(&leaf, START), "row {number}");
    }
}

#[test]
fn serving_certificates_are_renewed_after_clock_jumps() {
    let mut cluster = Cluster::empty();
    cluster.renew(START, None);
    let first = cluster.leaf.clone().unwrap();
    // The clock of another leader is behind by less than a day.
    assert_eq!(cluster.renew("2026-01-09T12:00:01Z", None).0, [Step::RepairLeaf]);
    // Restarted after the serving certificate has expired, then after the CA has.
    let late = "2026-05-01T00:00:00Z";
    assert_eq!(cluster.renew(late, None).0, [Step::NewLeaf]);
    let very_late = "2036-05-01T00:00:00Z";
    assert_eq!(cluster.renew(very_late, None).0, [NEW, Step::NewLeaf]);
    assert_eq!(count(&cluster.found().bundle(at(very_late))), 1, "expired CAs are dropped");
    // The clock returns: certificates that are not valid yet cannot be used.
    assert_eq!(cluster.renew(START, None).0, [NEW, Step::NewLeaf]);
    let leaf = cluster.leaf.clone().unwrap();
    assert!(cluster.is_trusted(&leaf, START) && !cluster.is_trusted(&first, START));
}

#[test]
fn secret_of_another_provider_is_adopted_without_gap() {
    let mut cluster = Cluster::empty();
    let theirs = new_ca("their-ca", at(START)).unwrap();
    let served = new_leaf(&theirs, "test", &dns_names(&serving()), at(START)).unwrap();
    let chained = [&served.certificate[..], &theirs.certificate].concat();
    let cert_manager =
        json!({CERT_MANAGER_MARK: "d-service-cert", "cert-manager.io/issuer-name": "i", "mine": "x"});
    let openshift = json!({OPENSHIFT_MARKS[0]: "d-service"});
    let rows = [(cert_manager, &served.certificate, &theirs.certificate), (openshift, &chained, &Vec::new())];
    for (annotations, certificate, beside) in rows {
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "d-service-cert", "namespace": "ns", "resourceVersion": "7",
                "annotations": annotations, "finalizers": ["example.com/f"], "labels": {"controller.cert-manager.io/fao": "true"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "d-service", "uid": "s"}]},
            "type": "kubernetes.io/tls",
        }))
        .unwrap();
        let data = [("tls.crt", certificate), ("tls.key", &served.key), ("ca.crt", beside)];
        let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.clone())));
        secret.data = Some(data.into());
        (cluster.ca, cluster.leaf) = (None, Some(secret.clone()));
        assert_eq!(cluster.found().check(), Ok(()));
        assert_eq!(cluster.renew(START, None).0, [NEW, Step::RepairLeaf]);
        let taken = cluster.leaf.clone().unwrap();
        assert_eq!(pair(&taken), pair(&secret));
        assert!(cluster.is_trusted(&taken, START));
        assert_eq!((taken.resource_version().as_deref(), taken.owner_references().len()), (Some("7"), 1));
        assert_eq!(taken.owner_references()[0].uid, "u");
        assert_eq!(taken.finalizers(), ["example.com/f"]);
        assert!(!taken.annotations().keys().chain(taken.labels().keys()).any(|key| is_of_others(key)));
        assert_eq!(cluster.renew(START, Some(30)).0, [Step::NewLeaf]);
        // While they still issue it, the Secret is theirs.
        (cluster.ca, cluster.leaf) = (None, Some(secret));
        let found = ServiceSecrets { issued_by_others: true, ..cluster.found() };
        let ca = found.written(NEW, at(START)).unwrap();
        let found = ServiceSecrets { ca, ..found };
        let step = next(&found.facts(Some(Duration::MAX), at(START)), &Times::DEFAULT, at(START));
        assert_eq!(step, Step::Wait(found.facts(None, at(START)).authority.unwrap().due));
        assert_eq!(count(&found.bundle(at(START))), 2, "their certificate is trusted");
    }
}

#[test]
fn foreign_secret_is_refused_with_its_name() {
    let ours = json!({
        labels::EXT_WEBHOOK_CERTIFICATE: "serving", labels::OWNER_NAME: "demo"});
    let another = json!({
        labels::EXT_WEBHOOK_CERTIFICATE: "serving", labels::OWNER_NAME: "other"});
    let by = |uid: &str| json!([{"apiVersion": "v1", "kind": "K", "name": "demo", "uid": uid}]);
    let left = |certificate: &str| json!({CERT_MANAGER_MARK: certificate});
    let foreign = "Secret ns/d-service-cert exists and does not belong to OLM: the built-in provider of webhook \
                   certificates needs this name and does not overwrite the Secret; remove the Secret";
    let abandoned = "Secret ns/d-service-cert belongs to a deleted ClusterExtension of this name; it is recreated once \
                     garbage collection has removed it";
    let of_another = "Secret ns/d-service-cert holds webhook certificates of ClusterExtension \"other\"";
    let rows: [(Value, Value, Value, Option<&str>); 9] = [
        (json!({}), json!({}), json!([]), Some(foreign)),
        (json!({}), left("another"), json!([]), Some(foreign)),
        (json!({}), json!({}), by("s"), Some(foreign)),
        (another.clone(), json!({}), by("o"), Some(of_another)),
        (another, left("d-service-cert"), by("o"), Some(of_another)),
        (ours.clone(), json!({}), by("before"), Some(abandoned)),
        (ours.clone(), json!({}), by("u"), None),
        (ours, json!({}), json!([]), None),
        (json!({}), json!({}), by("u"), None),
    ];
    for (labels, annotations, owners, refused) in rows {
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "d-service-cert", "namespace": "ns",
            "labels": labels, "annotations": annotations, "ownerReferences": owners}}))
            .unwrap();
        let cluster = Cluster { leaf: Some(secret), ..Cluster::empty() };
        let conflict = cluster.found().check().err();
        assert_eq!(conflict.as_deref(), refused);
        // A Secret into which another provider issues is not written.
        assert_eq!(ServiceSecrets { issued_by_others: true, ..cluster.found() }.check(), Ok(()));
    }
    // No other provider creates CAs of these names.
    let secret =
        json!({"metadata": {"name": "d-service-ca", "namespace": "ns", "annotations": left("d-service-ca")}});
    let cluster = Cluster { ca: Some(serde_json::from_value(secret).unwrap()), ..Cluster::empty() };
    let foreign = foreign.replace("d-service-cert", "d-service-ca");
    assert_eq!(cluster.found().check().unwrap_err(), foreign);
}

#[test]
fn labeled_secret_of_revision_is_not_removed() {
    for (owners, may_remove) in [(vec![], true), (vec!["u"], true), (vec!["revision"], false)] {
        let reference = |uid: &&str| json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid});
        let owners: Vec<Value> = owners.iter().map(reference).collect();
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "s", "ownerReferences": owners}})).unwrap();
        assert_eq!(owner("u", None).may_remove(&secret), may_remove, "{owners:?}");
    }
}

#[test]
fn service_name_that_clients_reject_is_an_error() {
    let mut cluster = Cluster::empty();
    cluster.serving.service = "s".repeat(64);
    let ca = cluster.found().written(NEW, at(START)).unwrap();
    let found = ServiceSecrets { ca, ..cluster.found() };
    let error = found.written(Step::NewLeaf, at(START)).unwrap_err().to_string();
    let host = format!("{}.ns", cluster.serving.service);
    assert_eq!(
        error,
        format!(
            "Secret ns/{}-ca: cannot create a certificate for {host}.svc, {host}.svc.cluster.local, {host} that \
             clients accept",
            cluster.serving.service
        )
    );
}
