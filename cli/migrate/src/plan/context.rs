//! Inputs of all plans, and the plan of one package: reads, then the pure parts.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::GroupVersionKind;
use olm_api::ClusterExtension;
use olm_bundle::{Certificates, distinct};
use olm_cli_core::bundle_source;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::manifest::validation_errors;
use olm_cli_core::object_access::ObjectId;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, ClusterConnection};
use olm_cli_lifecycle::rendering::{self, RenderSettings, Rendered};
use olm_plan::objects::ObjectName;
use olm_plan::{AdoptedObject, adoption_digest};
use olm_revision::object::ObjectKey;
use olm_revision::phases::{OwnerMetadata, phases};
use serde_json::{Value, json};

use super::catalogs::{self, Catalog};
use super::disposition::{self, Disposition, Owner, dispose, restarts};
use super::extension::{self, Installation};
use super::grants::grants;
use super::model::{PackagePlan, Reasoned};
use super::observe::Observer;
use super::selection::ACCEPTABLE;
use crate::classify::{PackageReport, classify};
use crate::objects::{CLASSIC, Csv, Key, Objects, Offer, OperatorGroup, Subscription};
use crate::{providers, read, rule};

/// State of classic OLM and of v1 in a cluster.
pub(crate) struct PlanContext<'a> {
    cluster: &'a ClusterConnection,
    access: &'a Access,
    session: &'a Session,
    controller: ControllerArgs,
    /// Reason for which nothing issues certificates.
    missing_provider: Option<String>,
    pub(crate) objects: Objects,
    /// Result of `olm migrate scan`, by name and namespace.
    pub(crate) reports: Vec<PackageReport>,
}

/// What classic OLM knows about a package.
struct Installed<'a> {
    key: Key,
    subscription: &'a Subscription,
    csv: &'a Csv,
    group_name: &'a str,
    group: &'a OperatorGroup,
    offer: &'a Offer,
}

impl<'a> PlanContext<'a> {
    /// Reads the cluster. `catalogs` are the sources that must have the installed bundles, if not the ClusterCatalogs.
    ///
    /// # Errors
    /// The cluster or a catalog cannot be read.
    pub(crate) async fn read(
        cluster: &'a ClusterConnection,
        access: &'a Access,
        catalogs: &[String],
        session: &'a Session,
    ) -> Result<PlanContext<'a>, CliError> {
        let mut objects = read::from_cluster(cluster, session).await?;
        read::migrations(cluster, &mut objects, session).await?;
        let wanted = objects.installed();
        objects.offered = Some(if catalogs.is_empty() {
            let names: Vec<String> = objects.catalogs.keys().cloned().collect();
            read::offered_by_cluster(&names, &wanted, access, &mut objects.unreadable, session).await?
        } else {
            read::offered(catalogs, &wanted, access, session).await?
        });
        Self::of_objects(cluster, access, objects, session).await
    }

    /// Context for objects that are already read, with the bundles that the ClusterCatalogs offer.
    ///
    /// # Errors
    /// A signal arrived.
    pub(crate) async fn of_objects(
        cluster: &'a ClusterConnection,
        access: &'a Access,
        objects: Objects,
        session: &'a Session,
    ) -> Result<PlanContext<'a>, CliError> {
        let controller = ControllerArgs::read(cluster, session).await?;
        let missing_provider = providers::missing(cluster, &controller, session).await?;
        let mut reports = classify(&objects);
        providers::judge(&mut reports, &objects, missing_provider.as_deref());
        let mut context = Self { cluster, access, session, controller, missing_provider, objects, reports };
        context.look_into_sources().await?;
        Ok(context)
    }

    /// Looks for the installed bundles of CatalogSources that are not ClusterCatalogs in their images. A bundle that is
    /// not there becomes a finding.
    async fn look_into_sources(&mut self) -> Result<(), CliError> {
        let is_new =
            |report: &PackageReport| report.findings.iter().any(|finding| finding.rule == rule::CATALOG);
        let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for report in self.reports.iter().filter(|report| is_new(report)) {
            if let Some(image) = self.source_image(report) {
                wanted.entry(image).or_default().insert(report.csv.clone());
            }
        }
        let offered = self.objects.offered.get_or_insert_default();
        let mut failed: BTreeMap<String, String> = BTreeMap::new();
        for (image, bundles) in wanted {
            match read::offered(std::slice::from_ref(&image), &bundles, self.access, self.session).await {
                Ok(found) => offered.extend(found),
                Err(error @ CliError::Message(Code::Interrupted, _)) => return Err(error),
                Err(error) => failed.extend(bundles.into_iter().map(|name| (name, error.to_string()))),
            }
        }
        for report in self.reports.iter_mut().filter(|report| is_new(report)) {
            match failed.remove(&report.csv) {
                _ if offered.contains_key(&report.csv) => {}
                Some(error) => report.add(rule::UNREADABLE, error),
                None => {
                    report.add(
                        rule::NO_BUNDLE,
                        format!("the image of the CatalogSource has no {}", report.csv),
                    );
                }
            }
        }
        Ok(())
    }

    /// Image of the CatalogSource of a package.
    fn source_image(&self, report: &PackageReport) -> Option<String> {
        let key = (report.namespace.clone(), report.subscription.clone());
        let source = self.objects.sources.get(&self.objects.subscriptions.get(&key)?.source)?;
        Some(source.image.clone()).filter(|image| !image.is_empty())
    }

    /// What classic OLM knows about the package of a report.
    fn installed(&self, report: &PackageReport) -> Result<Installed<'_>, String> {
        let key = (report.namespace.clone(), report.subscription.clone());
        let subscription = self.objects.subscriptions.get(&key).ok_or("there is no Subscription")?;
        let csv = self.objects.csvs.get(&(report.namespace.clone(), report.csv.clone()));
        let csv = csv.ok_or_else(|| format!("ClusterServiceVersion {} does not exist", report.csv))?;
        let mut groups =
            self.objects.groups.iter().filter(|((namespace, _), _)| *namespace == report.namespace);
        let ((_, group_name), group) = groups.next().ok_or("the namespace has no OperatorGroup")?;
        let offer = self.objects.offered.as_ref().and_then(|offered| offered.get(&report.csv));
        let offer = offer.filter(|offer| !offer.image.is_empty());
        let offer = offer.ok_or_else(|| format!("no catalog has the bundle {} with an image", report.csv))?;
        Ok(Installed { key, subscription, csv, group_name, group, offer })
    }
}

/// Plan of the package of `report`.
///
/// # Errors
/// The bundle cannot be pulled or rendered, the cluster cannot be read, or an object of the bundle belongs to another
/// controller.
pub(crate) async fn of_package(
    context: &PlanContext<'_>,
    report: &PackageReport,
) -> Result<PackagePlan, CliError> {
    let refused = |why: String| CliError::findings(format!("package {}: {why}", report.id()));
    let installed = context.installed(report).map_err(refused)?;
    if let Some(why) = providers::obstacle(installed.csv, context.missing_provider.as_deref()) {
        return Err(refused(format!(
            "{why}: `olm migrate scan` prints the command that turns on a provider"
        )));
    }
    let catalog = catalogs::of_bundle(&context.objects, &installed.subscription.source, installed.offer)
        .map_err(refused)?;
    let observer = Observer::new(context.cluster, context.session);
    let group = (report.namespace.as_str(), installed.group_name);
    let grants = grants(group, &context.objects.bindings, installed.csv);
    let has_api_roles = !grants.is_empty() || has_api_roles(&observer, installed.csv).await?;
    let (opened, mut notes) = opened(context, report, &installed, &catalog.name, has_api_roles)?;
    let (rendered, version) = rendered(context, &opened, installed.offer, report).await?;
    let owner = Owner { namespace: &report.namespace, name: &report.csv, uid: &installed.csv.uid };
    let observed = observer.observe(&rendered, &owner, &report.package).await?;
    let disposition = dispose(&rendered, &observed.live, &observed.owned)
        .map_err(|collisions| refused(collisions.join("; ")))?;
    let Disposition { adopted, created, mut removed, mut left } = disposition;
    add_classic(&context.objects, report, &installed, &mut removed, &mut left);
    let digest = digest(&adopted);
    let Catalog { created: new_catalog, notes: catalog_notes, .. } = catalog;
    notes.extend(catalog_notes);
    notes.extend(certificate_note(context.controller.certificates(), &observed.owned));
    Ok(PackagePlan {
        package: report.package.clone(),
        namespace: report.namespace.clone(),
        subscription: report.subscription.clone(),
        csv: report.csv.clone(),
        channel: report.channel.clone(),
        catalogs: new_catalog
            .map(serde_json::to_value)
            .transpose()?
            .map(without_status)
            .into_iter()
            .collect(),
        extension: without_status(serde_json::to_value(extension::pinned(&opened, &version, &digest))?),
        opened: without_status(serde_json::to_value(&opened)?),
        version,
        grants,
        restarts: restarts(&observed.changes, &observed.live),
        differences: observed.changes,
        adopted,
        created,
        removed,
        left,
        after: report.after.clone(),
        accepted: accepted(report),
        notes,
    })
}

/// Extension after the migration, and notes about settings without equivalent.
fn opened(
    context: &PlanContext<'_>,
    report: &PackageReport,
    installed: &Installed<'_>,
    catalog: &str,
    has_api_roles: bool,
) -> Result<(ClusterExtension, Vec<String>), CliError> {
    let installation = Installation {
        key: &installed.key,
        subscription: installed.subscription,
        group: installed.group,
        catalog,
        has_requirements: installed.offer.has_requirements,
        has_api_roles,
        is_approved_by_hand: installed.subscription.is_manual
            || context.objects.waiting(&report.namespace, installed.subscription).is_some(),
    };
    let name = extension::name(&context.objects, &report.package, &report.namespace);
    let (opened, notes) = extension::opened(&name, &installation);
    match validation_errors(&serde_json::to_value(&opened)?).first() {
        None => Ok((opened, notes)),
        Some(fault) => Err(CliError::findings(format!(
            "package {}: the API server would refuse the ClusterExtension: {fault}",
            report.id()
        ))),
    }
}

/// Reports whether classic OLM generated the roles of the first API.
async fn has_api_roles(observer: &Observer<'_>, csv: &Csv) -> Result<bool, CliError> {
    let Some((api, version)) = csv.apis.first() else { return Ok(false) };
    let gvk = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole");
    let key = ObjectKey { gvk, namespace: String::new(), name: format!("{api}-{version}-view") };
    Ok(observer.find(&key).await?.is_some())
}

/// Objects of the first revision of the extension, and the version of the bundle.
async fn rendered(
    context: &PlanContext<'_>,
    extension: &ClusterExtension,
    offer: &Offer,
    report: &PackageReport,
) -> Result<(Vec<Value>, String), CliError> {
    let settings = RenderSettings::as_configured(extension, &context.controller.gates)?;
    let mut settings = settings.on(context.cluster, context.session).await?;
    settings.certificates = Some(context.controller.certificates());
    let files = bundle_source::read_image(&offer.image, &context.access.images, context.session).await?;
    let Rendered { bundle, objects } = rendering::objects(&files, &settings)?;
    if bundle.name() != report.csv {
        let (image, found) = (&offer.image, bundle.name());
        return Err(CliError::findings(format!(
            "image {image}: expected the bundle {}, found {found}",
            report.csv
        )));
    }
    let version = bundle.version().unwrap_or(&report.version).to_owned();
    let name = extension.metadata.name.as_deref().unwrap_or_default();
    let metadata =
        OwnerMetadata { extension: name, package: &report.package, version: &version, release: None };
    let phases = phases(distinct(objects), metadata);
    let objects = phases.into_iter().flat_map(|phase| phase.objects).map(|content| content.object);
    let objects: Vec<Value> = objects.collect();
    let is_incomplete = |object: &&Value| object["apiVersion"].as_str().is_none_or(str::is_empty);
    if let Some(object) = objects.iter().find(is_incomplete) {
        let why = "has no apiVersion, so that operator-controller cannot apply it";
        return Err(CliError::findings(format!("bundle {}: {} {why}", report.csv, ObjectId::of(object))));
    }
    Ok((objects, version))
}

/// Adds the objects that [`Observer`] does not look for: InstallPlans and the OperatorGroup.
fn add_classic(
    objects: &Objects,
    report: &PackageReport,
    installed: &Installed<'_>,
    removed: &mut Vec<Reasoned>,
    left: &mut Vec<Reasoned>,
) {
    let id = |version: &str, kind: &str, name: &str, uid: &str| ObjectId {
        api_version: format!("{CLASSIC}/{version}"),
        kind: kind.to_owned(),
        namespace: report.namespace.clone(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let here = objects.plans.iter().filter(|((namespace, _), _)| *namespace == report.namespace);
    for ((_, name), plan) in here.filter(|(_, plan)| plan.csvs.contains(&report.csv) && !plan.is_waiting()) {
        let object = id("v1alpha1", "InstallPlan", name, &plan.uid);
        if plan.csvs.iter().all(|csv| *csv == report.csv) {
            let reason = "record of the installation by classic OLM".to_owned();
            removed.push(Reasoned { object, reason });
        } else {
            let reason = "also installed other packages: `olm migrate finish` deletes it".to_owned();
            left.push(Reasoned { object, reason });
        }
    }
    left.push(Reasoned {
        object: id("v1", "OperatorGroup", installed.group_name, &installed.group.uid),
        reason: "belongs to all operators of the namespace: `olm migrate finish` deletes it".to_owned(),
    });
    removed.sort();
    left.sort();
}

/// Rules of the findings that the plan answers.
fn accepted(report: &PackageReport) -> Vec<String> {
    let rules = report.findings.iter().map(|finding| finding.rule.id);
    let rules: BTreeSet<&str> = rules.filter(|rule| ACCEPTABLE.contains(rule)).collect();
    rules.into_iter().map(str::to_owned).collect()
}

fn digest(adopted: &[ObjectId]) -> String {
    let object = |id: &ObjectId| {
        let identity = json!({"apiVersion": id.api_version, "kind": id.kind,
            "metadata": {"namespace": id.namespace, "name": id.name}});
        AdoptedObject { object: ObjectName::of(&identity), uid: id.uid.clone() }
    };
    adoption_digest(&adopted.iter().map(object).collect::<Vec<_>>())
}

fn certificate_note(provider: Certificates, owned: &[Value]) -> Option<String> {
    let has_certificate = owned.iter().any(|object| disposition::delegation(object).is_some());
    let note = "the certificate provider of operator-controller replaces the serving certificate at once, so that calls of \
                webhooks can fail until the pods have it; with gate WebhookProviderBuiltin alone, no call fails";
    (has_certificate && provider != Certificates::Builtin).then(|| note.to_owned())
}

/// A new object as JSON, without the empty status.
pub(super) fn without_status(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}
