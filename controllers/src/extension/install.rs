//! Makes the wanted bundle the revision in force: has it rendered, looks at what a new revision would endanger, and hands
//! it on (spec 05 §§3.5–3.6). Where nothing of that would have another result than before, nothing is done.

use std::hash::{DefaultHasher, Hash, Hasher};

use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use olm_api::cluster_extension::BundleMetadata;
use olm_api::conditions::{self, reasons, types};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_bundle::rights::Rights;
use olm_extension::{CrdCheck, ExtensionRules};
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use serde_json::Value;
use tokio::task::block_in_place;

use super::apply::{Applied, invalid};
use super::mirroring::MIRRORED;
use super::revisions::{self, Revision, RevisionStates};
use super::wanted::Wanted;
use super::{Context, lock};
use crate::bundles::{Rendered, Unusable, Wishes};
use crate::failure::Failure;
use crate::preflight::{CrdVerdict, crd_check, refuse_obstacles};

/// What came of the wanted bundle.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Installation {
    /// Whether the bundle is in force, or why not.
    pub applied: Result<(), Failure>,
    /// The revision that was made.
    pub made: Option<Made>,
    /// What its definitions mean for what exists, as far as that was looked at.
    pub definitions: CrdVerdict,
    /// What is worth a look, where a revision was made.
    pub warnings: Vec<String>,
    /// What is missing may come any time.
    pub look_again: bool,
}

/// A revision that was made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Made {
    /// The revision.
    pub set: ClusterObjectSet,
    /// What was the newest revision before.
    pub before: Option<Revision>,
}

/// Inputs that were found to be what the newest revision was made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settled {
    inputs: Inputs,
    newest: Newest,
    definitions: CrdVerdict,
}

/// The newest revision, and all of it that we decide.
#[derive(Clone, Debug, PartialEq)]
struct Newest {
    uid: Option<String>,
    generation: Option<i64>,
    /// Digest of its labels, annotations and owners.
    marks: u64,
}

/// All that a revision is made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inputs {
    uid: Option<String>,
    /// `<namespace>/<name>` of the service account that objects are applied as.
    account: Option<String>,
    namespace: String,
    config: Option<Value>,
    deadline: Option<i32>,
    bundle: BundleIdentity,
}

impl Installation {
    fn failed(failure: Failure) -> Self {
        Self { applied: Err(failure), ..Self::unchanged(CrdVerdict::Safe) }
    }

    pub(super) fn unchanged(definitions: CrdVerdict) -> Self {
        Self { applied: Ok(()), made: None, definitions, warnings: Vec::new(), look_again: false }
    }
}

impl Context {
    /// Makes the wanted bundle the newest revision. `annotated` is how the extension wants definitions checked.
    pub(super) async fn install(
        &self,
        extension: &ClusterExtension,
        wanted: &Wanted,
        annotated: Option<CrdCheck>,
        states: &RevisionStates,
        changed: bool,
    ) -> Installation {
        let name = extension.name_any();
        let inputs = self.inputs(extension, wanted);
        if let Some(settled) = self.settled(&name, &inputs) {
            return Installation::unchanged(settled.definitions);
        }
        let rendered = self.rendered(&name, wanted, &inputs).await;
        match rendered {
            Ok(rendered) => {
                let check = crd_check(extension, annotated);
                let made = self.make_newest(extension, inputs, rendered, check).boxed().await;
                made.unwrap_or_else(Installation::failed)
            }
            Err(Unusable::Faulty(failure)) => Installation::failed(failure),
            Err(Unusable::Unavailable(failure)) => {
                self.without_content(&name, &inputs, wanted, states, changed, failure)
            }
        }
    }

    async fn rendered(&self, name: &str, wanted: &Wanted, inputs: &Inputs) -> Result<Rendered, Unusable> {
        check_name(name).map_err(Unusable::Faulty)?;
        let wishes = Wishes {
            namespace: inputs.namespace.clone(),
            config: inputs.config.clone(),
            features: self.parts.features,
        };
        self.parts.bundles.rendered(name, &wanted.image, wishes).boxed().await
    }

    /// Makes what was rendered the newest revision, unless it is.
    async fn make_newest(
        &self,
        extension: &ClusterExtension,
        inputs: Inputs,
        rendered: Rendered,
        check: Option<CrdCheck>,
    ) -> Result<Installation, Failure> {
        let name = extension.name_any();
        let obstacles = rendered.obstacles.clone();
        let mut warnings = rendered.warnings.clone();
        let draft = draft(&name, &inputs, rendered)?;
        let plan = self.revisions.plan(&name, &draft).boxed().await?;
        let before = plan.newest().map(Revision::of);
        if plan.makes_revision() {
            refuse_obstacles(&obstacles)?;
        }
        let is_handed_on = plan.newest().is_some_and(|newest| account_of(newest) != inputs.account.as_ref());
        if (plan.makes_revision() || is_handed_on)
            && let Some(missing) = self.missing_rights(&inputs, &draft).boxed().await?
        {
            return Ok(Installation { look_again: true, ..Installation::failed(missing) });
        }
        let mut installation = Installation::unchanged(self.known_verdict(&name, &inputs));
        if plan.makes_revision() {
            installation = self.before_revision(extension, &inputs, &draft, check).await?;
            if installation.applied.is_err() {
                return Ok(installation);
            }
        }
        let applied = self.revisions.carry_out(&name, &draft, plan).boxed().await;
        let Applied { created, set } = applied.inspect_err(|_| self.ref_secrets.mark_unfinished(&name))?;
        let (newest, definitions) = (Newest::of(&set), installation.definitions.clone());
        if created {
            self.preflight.forget(&name);
            warnings.extend(draft.warning);
            warnings.iter().for_each(|warning| tracing::warn!(extension = name, "{warning}"));
            installation.warnings = warnings;
            installation.made = Some(Made { set, before });
        }
        lock(&self.settled).insert(name, Settled { inputs, newest, definitions });
        Ok(installation)
    }

    /// What the account that objects shall be applied as may not do of what is needed, if anything.
    async fn missing_rights(&self, inputs: &Inputs, draft: &Draft) -> Result<Option<Failure>, Failure> {
        let Some(account) = &inputs.account else { return Ok(None) };
        let objects = draft.phases().iter().flat_map(|phase| phase.objects.iter().cloned());
        let rights = block_in_place(|| Rights::of(&objects.collect::<Vec<_>>()));
        let missing = self.preflight.missing_rights(account, &rights).await?;
        Ok(missing.map(Failure::retry))
    }

    /// Makes lost Secrets of the newest revision again, though no bundle could be chosen: the revision that is in force
    /// stays so (spec 05 §18.25). Where the extension was edited since, there is nothing to make them from.
    pub(super) async fn restore_content(
        &self,
        extension: &ClusterExtension,
        rules: &ExtensionRules,
        states: &RevisionStates,
    ) -> Result<(), Failure> {
        let Some(newest) = states.rolling_out.last().or(states.installed.as_ref()) else { return Ok(()) };
        let (name, wanted) = (extension.name_any(), Wanted::revision(newest, rules));
        let inputs = self.inputs(extension, &wanted);
        let rendered = self.rendered(&name, &wanted, &inputs).await;
        let rendered = rendered.map_err(|unusable| match unusable {
            Unusable::Faulty(failure) | Unusable::Unavailable(failure) => failure,
        })?;
        let draft = draft(&name, &inputs, rendered)?;
        let plan = self.revisions.plan(&name, &draft).boxed().await?;
        self.revisions.restore_secrets(&draft, &plan).boxed().await
    }

    /// What waits while nothing is applied, in words.
    pub(super) fn waits(
        &self,
        extension: &ClusterExtension,
        wanted: &Wanted,
        states: &RevisionStates,
        changed: bool,
    ) -> Option<String> {
        let newest = states.rolling_out.last().or(states.installed.as_ref());
        if !newest.is_some_and(|newest| newest.bundle == wanted.bundle && newest.image == wanted.image) {
            let BundleMetadata { name, version, .. } = &wanted.bundle;
            return Some(format!("bundle {name} version {version}"));
        }
        let settled = lock(&self.settled).get(&extension.name_any()).cloned();
        let inputs = self.inputs(extension, wanted);
        let is_edited = settled.map_or(changed, |settled| settled.inputs != inputs);
        is_edited.then(|| "what was changed in spec".to_owned())
    }

    /// What the wanted bundle's revision would be made from.
    fn inputs(&self, extension: &ClusterExtension, wanted: &Wanted) -> Inputs {
        let spec = extension.spec.as_ref();
        let config = spec.and_then(|spec| spec.config.as_ref()).and_then(|config| config.inline.clone());
        Inputs {
            uid: extension.uid(),
            account: self.account(extension),
            namespace: spec.map(|spec| spec.namespace.clone()).unwrap_or_default(),
            config: config.map(Value::Object),
            deadline: spec.and_then(|spec| spec.progress_deadline_minutes),
            bundle: BundleIdentity {
                name: wanted.bundle.name.clone(),
                package: wanted.package.clone(),
                version: wanted.bundle.version.clone(),
                release: wanted.bundle.release.clone(),
                image: wanted.image.clone(),
                properties: None,
                max_openshift_version: None,
                catalog_properties: wanted.catalog_properties.clone(),
            },
        }
    }

    /// What comes before a revision is made: a look at the cluster, and the Secrets that its pods mount.
    async fn before_revision(
        &self,
        extension: &ClusterExtension,
        inputs: &Inputs,
        draft: &Draft,
        check: Option<CrdCheck>,
    ) -> Result<Installation, Failure> {
        let missing = self.preflight.missing_namespaces(&inputs.watched()).await?;
        if !missing.is_empty() {
            let text = format!("namespaces to watch do not exist: {}", missing.join(", "));
            return Ok(Installation { look_again: true, ..Installation::failed(Failure::retry(text)) });
        }
        let objects: Vec<&Value> = draft.phases().iter().flat_map(|phase| &phase.objects).collect();
        let definitions = match check {
            Some(check) => self.preflight.definitions(&extension.name_any(), &objects, check).boxed().await?,
            None => CrdVerdict::Safe,
        };
        if let CrdVerdict::Held(text) = &definitions {
            // Custom resources may be mended any time.
            let look_again = check == Some(CrdCheck::Live);
            let failed = Installation::failed(Failure::retry(text));
            return Ok(Installation { definitions, look_again, ..failed });
        }
        let injections = olm_bundle::injections(&objects);
        self.parts.certificates.ensure(extension, &injections).boxed().await?;
        Ok(Installation::unchanged(definitions))
    }

    /// The bundle cannot be had. Where it is the installed one, the revision goes on by itself, unless it was to be
    /// made anew from other settings (spec 05 §§3.5, 18.5).
    fn without_content(
        &self,
        name: &str,
        inputs: &Inputs,
        wanted: &Wanted,
        states: &RevisionStates,
        changed: bool,
        failure: Failure,
    ) -> Installation {
        let is_installed = states.installed.as_ref().is_some_and(|installed| {
            installed.bundle.name == wanted.bundle.name && installed.bundle.version == wanted.bundle.version
        });
        let settled = lock(&self.settled).get(name).cloned();
        let is_edited = settled.map_or(changed, |settled| settled.inputs != *inputs);
        if is_installed && !is_edited {
            tracing::warn!(extension = name, error = failure.message, "bundle content is not available");
            return Installation::unchanged(self.known_verdict(name, inputs));
        }
        Installation::failed(failure)
    }

    /// What definitions were found to mean when these inputs were last made, or found to be, the newest revision.
    fn known_verdict(&self, name: &str, inputs: &Inputs) -> CrdVerdict {
        let settled = lock(&self.settled);
        let same = settled.get(name).filter(|settled| settled.inputs == *inputs);
        same.map(|settled| settled.definitions.clone()).unwrap_or_default()
    }

    /// What is known of the newest revision if it is made from these inputs, and is doing well.
    fn settled(&self, name: &str, inputs: &Inputs) -> Option<Settled> {
        let settled = lock(&self.settled).get(name).filter(|settled| settled.inputs == *inputs).cloned()?;
        let all = self.revisions_of(name);
        let newest = all.iter().max_by_key(|set| revisions::number(set))?;
        let progressing = newest
            .status
            .as_ref()
            .and_then(|status| conditions::find(&status.conditions, types::PROGRESSING))
            .map(|condition| condition.reason.as_str());
        let is_well = matches!(progressing, None | Some(reasons::ROLLING_OUT | reasons::SUCCEEDED));
        Some(settled).filter(|settled| is_well && settled.newest == Newest::of(newest))
    }
}

impl Newest {
    fn of(set: &ClusterObjectSet) -> Self {
        let mut hasher = DefaultHasher::new();
        set.labels().hash(&mut hasher);
        for entry in set.annotations().iter().filter(|(key, _)| !MIRRORED.contains(&key.as_str())) {
            entry.hash(&mut hasher);
        }
        for owner in set.owner_references() {
            let OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion } = owner;
            (api_version, kind, name, uid, controller, block_owner_deletion).hash(&mut hasher);
        }
        Self { uid: set.uid(), generation: set.metadata.generation, marks: hasher.finish() }
    }
}

impl Inputs {
    /// The namespaces that the configuration lists to be watched.
    fn watched(&self) -> Vec<&str> {
        let listed = self.config.as_ref().and_then(|config| config.get("watchNamespaces"));
        listed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// The account that a revision names.
fn account_of(set: &ClusterObjectSet) -> Option<&String> {
    set.annotations().get(annotations::EXT_SERVICE_ACCOUNT)
}

/// What is to become a revision.
fn draft(name: &str, inputs: &Inputs, rendered: Rendered) -> Result<Draft, Failure> {
    let Rendered { objects, properties, max_openshift_version, obstacles: _, warnings: _ } = rendered;
    let owner = Extension {
        name: name.to_owned(),
        uid: inputs.uid.clone().unwrap_or_default(),
        progress_deadline_minutes: inputs.deadline,
    };
    let identity = BundleIdentity { properties, max_openshift_version, ..inputs.bundle.clone() };
    block_in_place(|| Draft::new(owner, &identity, olm_bundle::distinct(objects)))
        .map(|draft| draft.applied_as(inputs.account.as_deref()))
        .map_err(invalid)
}

/// The names of an extension's revisions are label values.
fn check_name(name: &str) -> Result<(), Failure> {
    const LONGEST: usize = 61;
    if name.len() <= LONGEST {
        return Ok(());
    }
    Err(Failure::blocked(format!(
        "metadata.name is too long: {} characters, at most {LONGEST} are allowed because revisions are named after it",
        name.len()
    )))
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
