//! Image templates (docs/design/catalogd.md#image-templates): evaluation, poll of the cluster's version, condition.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use olm_api::conditions::{self, Status, reasons, types};
use olm_api::{ClusterCatalog, ClusterCatalogStatus};
use olm_oci::resolve_template;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use super::controller::Controller;
use super::notices;
use super::reference::{Resolution, image};

const RESOLVED: &str = "catalog image reference was successfully resolved";

impl Controller {
    /// Resolves the template of a catalog with the known version of the cluster. `None` without a template.
    pub(super) fn resolution(&self, catalog: &ClusterCatalog) -> Option<Resolution> {
        let template = catalog.image_template()?;
        let configured = image(catalog).map_or("", |image| &image.ref_);
        let resolved = resolve_template(template, Some(configured), self.cluster_version.known());
        Some(resolved.map(|reference| reference.to_string()))
    }

    /// Resolves the template of a catalog after it has read the version of the cluster, if needed. Reports a changed
    /// reference once.
    pub(super) async fn resolve(&self, catalog: &ClusterCatalog) -> Option<Resolution> {
        if catalog.image_template().is_none() {
            self.references.lock().remove(&catalog.name_any());
            return None;
        }
        // The version is polled. Its age matters only to the first template after a time without any.
        self.cluster_version.read(self.cluster_version.interval * 2).await;
        let resolution = self.resolution(catalog)?;
        if let Ok(reference) = &resolution {
            let name = catalog.name_any();
            let before = self.references.lock().insert(name.clone(), reference.clone());
            let is_new = match before {
                Some(before) => before != *reference,
                // After a restart, the condition tells whether a reference was reported.
                None => !catalog.is_true(types::IMAGE_TEMPLATE_RESOLVED),
            };
            if is_new {
                tracing::info!(catalog = name, image = reference, "image template resolved");
                let version = self.cluster_version.known().map(|version| version.to_string());
                let note =
                    format!("image is {reference} for Kubernetes {}", version.as_deref().unwrap_or_default());
                self.events.normal(catalog.object_ref(&()), notices::TEMPLATE_RESOLVED, note);
            }
        }
        Some(resolution)
    }

    /// Reads the version of the cluster after each interval, and when `recheck` is notified, while this replica leads
    /// and a catalog has a template.
    pub(super) async fn poll_version(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let wait = tokio::time::timeout(self.cluster_version.interval, self.recheck.notified());
            if stop.run_until_cancelled(wait).await.is_none() {
                return;
            }
            if self.is_leading() && !self.templated().is_empty() {
                self.cluster_version.read(std::time::Duration::ZERO).await;
            }
        }
    }

    /// Catalogs with a template, at each change of the version of the cluster.
    pub(super) fn on_version_change(
        self: &Arc<Self>,
    ) -> impl Stream<Item = ObjectRef<ClusterCatalog>> + use<> {
        let controller = Arc::clone(self);
        let changes = WatchStream::from_changes(self.cluster_version.changes());
        changes.flat_map(move |_| {
            let names = controller.templated();
            stream::iter(names.into_iter().map(|name| ObjectRef::new(&name)))
        })
    }

    fn templated(&self) -> Vec<String> {
        let catalogs = self.catalogs.state();
        let templated = catalogs.iter().filter(|catalog| catalog.image_template().is_some());
        templated.map(|catalog| catalog.name_any()).collect()
    }
}

/// Sets or removes the condition of the template.
pub(super) fn report(
    status: &mut ClusterCatalogStatus,
    resolution: Option<&Resolution>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let all = &mut status.conditions;
    match resolution {
        None => conditions::remove(all, types::IMAGE_TEMPLATE_RESOLVED),
        Some(Ok(_)) => {
            let (type_, reason) = (types::IMAGE_TEMPLATE_RESOLVED, reasons::ALL_TEMPLATES_RESOLVED);
            conditions::set(all, type_, Status::True, reason, RESOLVED, generation, now);
        }
        Some(Err(error)) => {
            let message = error.to_string();
            let (type_, reason) = (types::IMAGE_TEMPLATE_RESOLVED, reasons::UNABLE_TO_RESOLVE);
            conditions::set(all, type_, Status::False, reason, &message, generation, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_api::{annotations, finalizers, labels};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::super::decide::{NextStep, ObservedCatalog, UnpackRecord, decide};
    use super::super::reference::effective_reference;
    use super::super::status::{Outcome, next};
    use super::*;

    const DIGEST: &str =
        "r.example/c@sha256:1111111111111111111111111111111111111111111111111111111111111111";
    const TEMPLATE: &str = "r.example/c:v{kube_major_version}.{kube_minor_version}";

    /// A catalog that was served before, with `annotations`.
    fn catalog(annotations: &Value) -> ClusterCatalog {
        let condition = |type_: &str, reason: &str| {
            json!({"type": type_, "status": "True", "reason": reason, "message": "",
                "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        serde_json::from_value(json!({
            "metadata": {"name": "c", "generation": 1, "finalizers": [finalizers::DELETE_SERVER_CACHE],
                "labels": {labels::METADATA_NAME: "c"}, "annotations": annotations},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/c:fallback"}}},
            "status": {
                "conditions": [condition("Progressing", "Succeeded"), condition("Serving", "Available")],
                "resolvedSource": {"type": "Image", "image": {"ref": DIGEST}}},
        }))
        .unwrap()
    }

    fn with_template(mut catalog: ClusterCatalog) -> ClusterCatalog {
        let status = catalog.status.as_mut().unwrap();
        let resolution = Ok(String::new());
        report(status, Some(&resolution), Some(1), Timestamp::UNIX_EPOCH);
        catalog
    }

    fn unserved(mut catalog: ClusterCatalog) -> ClusterCatalog {
        catalog.status = None;
        catalog
    }

    fn resolved(template: &str) -> Resolution {
        resolve_template(template, None, "1.31.4".parse().ok()).map(|reference| reference.to_string())
    }

    fn record(reference: Option<&str>) -> Option<UnpackRecord> {
        let reference = reference.map(str::to_owned);
        let (unpacked_at, generation) = (Timestamp::UNIX_EPOCH, 1);
        Some(UnpackRecord { uid: None, generation, unpacked_at, last_poll: None, refresh: None, reference })
    }

    fn unpack(image: &str) -> Option<String> {
        Some(image.to_owned())
    }

    // docs/design/catalogd.md#image-templates; cases additions-t01, additions-t03 to additions-t06
    #[test]
    fn effective_reference_decides_whether_image_is_pulled() {
        let (plain, good, bad) = (catalog(&json!({})), resolved(TEMPLATE), resolved("r.example/c:{foo}"));
        let (templated, new) = (with_template(plain.clone()), unserved(plain.clone()));
        let (v31, v30) = ("r.example/c:v1.31", "r.example/c:v1.30");
        let fallback = "r.example/c:fallback";
        let some = |reference| record(Some(reference));
        let rows = [
            ("template added", &plain, Some(&good), Some(DIGEST), some(fallback), unpack(v31)),
            ("same reference", &templated, Some(&good), Some(DIGEST), some(v31), None),
            ("template or version changed", &templated, Some(&good), Some(DIGEST), some(v30), unpack(v31)),
            ("restart", &templated, Some(&good), Some(DIGEST), None, unpack(v31)),
            ("nothing held", &templated, Some(&good), None, None, unpack(v31)),
            ("template removed", &templated, None, Some(DIGEST), some(v31), unpack(fallback)),
            ("template removed before the restart", &templated, None, Some(DIGEST), None, unpack(fallback)),
            ("template removed, same reference", &templated, None, Some(DIGEST), some(fallback), None),
            ("unresolvable", &templated, Some(&bad), Some(DIGEST), some(v31), None),
            ("unresolvable, restart", &templated, Some(&bad), Some(DIGEST), None, None),
            ("unresolvable, cache lost", &templated, Some(&bad), None, None, unpack(DIGEST)),
            ("unresolvable, never served", &new, Some(&bad), None, None, unpack(fallback)),
            ("resolvable again", &templated, Some(&good), Some(DIGEST), record(None), unpack(v31)),
        ];
        for (title, catalog, template, held, record, expected) in rows {
            let decision = decide(ObservedCatalog {
                catalog,
                template,
                held,
                verified: true,
                record: record.as_ref(),
                leading: true,
                now: Instant::now(),
            });
            let image = match decision {
                NextStep::Unpack { image, .. } => Some(image),
                NextStep::Publish(_) => None,
                other => panic!("{title}: {other:?}"),
            };
            assert_eq!(image, expected, "{title}");
        }
    }

    #[test]
    fn effective_reference_is_that_of_the_template_or_of_the_served_content() {
        let (good, bad) = (resolved(TEMPLATE), resolved("r.example/c:{foo}"));
        let (served, new) = (catalog(&json!({})), unserved(catalog(&json!({}))));
        for (catalog, resolution, expected) in [
            (&served, None, "spec"),
            (&served, Some(&good), "r.example/c:v1.31"),
            (&served, Some(&bad), DIGEST),
            (&new, Some(&bad), "spec"),
        ] {
            assert_eq!(effective_reference(catalog, "spec", resolution), expected, "{resolution:?}");
        }
    }

    // Cases additions-t02, additions-t05
    #[test]
    fn first_annotation_that_is_not_empty_is_the_template() {
        let (ours, classic) = (annotations::EXT_IMAGE_TEMPLATE, annotations::CLASSIC_IMAGE_TEMPLATE);
        for (annotations, expected) in [
            (json!({}), None),
            (json!({ours: ""}), None),
            (json!({ours: "a"}), Some("a")),
            (json!({classic: "b"}), Some("b")),
            (json!({ours: "a", classic: "b"}), Some("a")),
        ] {
            assert_eq!(catalog(&annotations).image_template(), expected, "{annotations}");
        }
    }

    #[test]
    fn condition_exists_only_with_template_and_reports_failure() {
        const SERVED: Outcome<'_> = Outcome::Served {
            canonical: DIGEST,
            base_url: "https://h/catalogs/c",
            unpacked_at: Timestamp::UNIX_EPOCH,
        };
        let failed = Outcome::Failed { message: "no route", terminal: false };
        let unknown = resolve_template(TEMPLATE, None, None).map(|_| String::new());
        let unknown_text = "cannot construct catalog image reference, because variable(s) \
                            \"{kube_major_version}\", \"{kube_minor_version}\" could not be resolved";
        let bad = resolved("r.example/c:{foo}");
        let bad_text =
            "cannot construct catalog image reference, because one or more template(s) has improper syntax";
        let rows = [
            (None, &SERVED, "", "True/Succeeded"),
            (Some(Ok(String::new())), &SERVED, "True/AllTemplatesResolved", "True/Succeeded"),
            (Some(Ok(String::new())), &failed, "True/AllTemplatesResolved", "True/Retrying"),
            (Some(bad.clone()), &SERVED, "False/UnableToResolve", "False/Blocked"),
            (Some(bad), &failed, "False/UnableToResolve", "True/Retrying"),
            (Some(unknown), &SERVED, "False/UnableToResolve", "True/Retrying"),
        ];
        for (resolution, outcome, expected, progressing) in rows {
            let catalog = with_template(catalog(&json!({})));
            let pass = |catalog: &ClusterCatalog, seconds| {
                let now = Timestamp::from_second(seconds).unwrap();
                let mut status = next(catalog, outcome, resolution.as_ref(), now);
                report(&mut status, resolution.as_ref(), Some(1), now);
                status
            };
            let status = pass(&catalog, 0);
            let written = ClusterCatalog { status: Some(status.clone()), ..catalog };
            let again = pass(&written, 60);
            assert_eq!(json!(again), json!(status), "a second pass changes nothing: {resolution:?}");
            let text = |type_: &str| {
                let found = conditions::find(&status.conditions, type_);
                found.map(|found| format!("{}/{}", found.status, found.reason)).unwrap_or_default()
            };
            assert_eq!(text(types::IMAGE_TEMPLATE_RESOLVED), expected, "{resolution:?} {outcome:?}");
            assert_eq!(text(types::PROGRESSING), progressing, "{resolution:?} {outcome:?}");
            let found = conditions::find(&status.conditions, types::IMAGE_TEMPLATE_RESOLVED);
            match resolution {
                Some(Ok(_)) => assert_eq!(found.unwrap().message, RESOLVED),
                Some(Err(error)) if error.is_syntax() => assert_eq!(found.unwrap().message, bad_text),
                Some(Err(_)) => assert_eq!(found.unwrap().message, unknown_text),
                None => {}
            }
        }
    }
}
