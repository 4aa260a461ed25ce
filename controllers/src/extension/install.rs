//! Makes the wanted bundle the revision in force: pulls it, renders it, and hands it on (spec 05 §§3.5–3.6). Where nothing
//! of that would have another result than before, nothing is done.

use futures::FutureExt;
use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_api::conditions::{self, reasons, types};
use olm_bundle::{Bundle, RenderOptions};
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use serde_json::Value;

use super::apply::{Applied, invalid};
use super::revisions::{self, RevisionStates};
use super::wanted::Wanted;
use super::{Context, lock};
use crate::bundles::Files;
use crate::failure::{Class, Failure};
use crate::gates::Features;

/// Inputs that were found to be what the newest revision was made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settled {
    inputs: Inputs,
    newest: (Option<String>, Option<i64>),
}

/// All that a revision is made from.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inputs {
    uid: Option<String>,
    namespace: String,
    config: Option<Value>,
    deadline: Option<i32>,
    bundle: BundleIdentity,
}

impl Context {
    /// Makes the wanted bundle the newest revision; says whether a revision was made.
    pub(super) async fn install(
        &self,
        extension: &ClusterExtension,
        wanted: &Wanted,
        states: &RevisionStates,
        changed: bool,
    ) -> Result<bool, Failure> {
        let name = extension.name_any();
        check_name(&name)?;
        let inputs = inputs(extension, wanted);
        if self.is_settled(&name, &inputs) {
            return Ok(false);
        }
        let files = match self.parts.bundles.files(&name, &wanted.image).boxed().await {
            Ok(files) => files,
            Err(failure) => return self.without_content(&name, &inputs, wanted, states, changed, failure),
        };
        let features = self.parts.features;
        let owned = inputs.clone();
        let owner = Extension {
            name: name.clone(),
            uid: extension.uid().unwrap_or_default(),
            progress_deadline_minutes: inputs.deadline,
        };
        let draft = tokio::task::spawn_blocking(move || draft(owner, &files, owned, features)).await;
        let draft = draft.map_err(Failure::retry)??;
        if let Some(warning) = &draft.warning {
            tracing::warn!(extension = name, "{warning}");
        }
        let Applied { created, newest } = self.revisions.apply(&name, &draft).boxed().await?;
        lock(&self.settled).insert(name, Settled { inputs, newest });
        Ok(created)
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
    ) -> Result<bool, Failure> {
        let is_installed = states.installed.as_ref().is_some_and(|installed| {
            installed.bundle.name == wanted.bundle.name && installed.bundle.version == wanted.bundle.version
        });
        let settled = lock(&self.settled).get(name).cloned();
        let is_edited = settled.map_or(changed, |settled| settled.inputs != *inputs);
        if is_installed && !is_edited {
            tracing::warn!(extension = name, error = failure.message, "bundle content is not available");
            return Ok(false);
        }
        Err(failure)
    }

    /// Whether the newest revision is known to be made from these inputs, and is doing well.
    fn is_settled(&self, name: &str, inputs: &Inputs) -> bool {
        let settled = lock(&self.settled).get(name).cloned();
        let Some(settled) = settled.filter(|settled| settled.inputs == *inputs) else {
            return false;
        };
        let all = self.revisions_in_store(name);
        let Some(newest) = all.iter().max_by_key(|set| revisions::number(set)) else {
            return false;
        };
        let progressing = newest
            .status
            .as_ref()
            .and_then(|status| conditions::find(&status.conditions, types::PROGRESSING))
            .map(|condition| condition.reason.as_str());
        let is_well = matches!(progressing, None | Some(reasons::ROLLING_OUT | reasons::SUCCEEDED));
        is_well && settled.newest == (newest.uid(), newest.metadata.generation)
    }
}

fn inputs(extension: &ClusterExtension, wanted: &Wanted) -> Inputs {
    let spec = extension.spec.as_ref();
    let config = spec.and_then(|spec| spec.config.as_ref()).and_then(|config| config.inline.clone());
    Inputs {
        uid: extension.uid(),
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

/// Renders the bundle and prepares its revision. Takes CPU time.
fn draft(owner: Extension, files: &Files, inputs: Inputs, features: Features) -> Result<Draft, Failure> {
    let bundle = Bundle::load(files).map_err(Failure::retry)?;
    let options = RenderOptions {
        install_namespace: &inputs.namespace,
        config: inputs.config.as_ref(),
        certificates: features.certificates,
        single_own_namespace: features.single_own_namespace,
        deployment_config: features.deployment_config,
    };
    let objects = olm_bundle::render(&bundle, &options).map_err(|error| {
        let invalid = error.is_invalid_configuration();
        let failure = Failure::retry(error);
        if invalid { Failure { class: Class::InvalidConfiguration, ..failure } } else { failure }
    })?;
    let identity = BundleIdentity {
        properties: bundle.properties().map(str::to_owned),
        max_openshift_version: bundle.max_openshift_version().map(str::to_owned),
        ..inputs.bundle
    };
    Draft::new(owner, &identity, objects).map_err(invalid)
}
