//! Namespace of a new extension: given, or suggested by its bundle.

use kube::ResourceExt;
use kube::core::ObjectMeta;
use olm_api::annotations::EXT_SUGGESTED_FOR;
use olm_api::text::one_line;
use olm_cli_catalog::suggested_namespace::SuggestedNamespace;
use olm_cli_core::change::{self, DryRun, WrittenObject};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;

use super::existing::{check_namespace, find_namespace};

/// Namespace of new extensions.
#[derive(Debug)]
pub(crate) struct InstallNamespace {
    metadata: ObjectMeta,
    may_create: bool,
    /// Where a name comes from that the user did not give, and the package that it is for.
    suggestion: Option<(&'static str, String)>,
}

impl InstallNamespace {
    /// Namespace that the user names.
    pub(crate) fn given(name: &str, may_create: bool) -> Self {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { metadata, may_create, suggestion: None }
    }

    /// Namespace that the bundle of `package` suggests. It is created if it does not exist. With labels or annotations it is
    /// refused unless the user sets `may_create`.
    ///
    /// # Errors
    /// There is no usable suggestion.
    pub(crate) fn suggested(
        suggestion: Result<SuggestedNamespace, String>,
        package: &str,
        may_create: bool,
    ) -> Result<Self, CliError> {
        let found = suggestion.map_err(|why| CliError::usage(format!("{why}: use --namespace")))?;
        let origin = if found.is_of_bundle { "suggested by the bundle" } else { "named after the package" };
        Ok(Self { metadata: found.metadata, may_create, suggestion: Some((origin, package.to_owned())) })
    }

    /// Name.
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Reports whether the namespace exists.
    ///
    /// # Errors
    /// It does not exist and may not be created, it is being deleted, or the API server does not answer. The user did not
    /// name it, and it exists for another purpose, or would get labels that the user did not permit.
    pub(crate) async fn exists(
        &self,
        cluster: &ClusterConnection,
        session: &Session,
    ) -> Result<bool, CliError> {
        let Some((_, package)) = &self.suggestion else {
            return check_namespace(cluster, self.name(), self.may_create, session).await;
        };
        let (name, note) = (self.name(), self.note().unwrap_or_default());
        match find_namespace(cluster, name, true, session).await? {
            Some(found) if found.annotations().get(EXT_SUGGESTED_FOR) == Some(package) => Ok(true),
            Some(_) => {
                let remedy = format!("to install into it, add `--namespace {name}`");
                Err(CliError::findings(format!("namespace {note}, exists: {remedy}")))
            }
            None if self.has_settings() && !self.may_create => {
                let remedy = "to create it so, add --create-namespace";
                Err(CliError::findings(format!("namespace {note}: {remedy}")))
            }
            None => Ok(false),
        }
    }

    /// Labels and annotations can relax Pod Security, or select the nodes of the pods.
    fn has_settings(&self) -> bool {
        let ObjectMeta { labels, annotations, .. } = &self.metadata;
        labels.iter().chain(annotations).any(|values| !values.is_empty())
    }

    /// Creates the namespace. Returns `None` if it exists.
    ///
    /// # Errors
    /// The API server refuses it or does not answer.
    pub(crate) async fn create(
        &self,
        cluster: &ClusterConnection,
        dry_run: Option<DryRun>,
        session: &Session,
    ) -> Result<Option<WrittenObject>, CliError> {
        let metadata = match &self.suggestion {
            Some((_, package)) => made_for(self.metadata.clone(), package),
            None => self.metadata.clone(),
        };
        change::create_namespace(cluster, &metadata, dry_run, session).await
    }

    /// One line about a namespace that the user did not name: origin, labels and annotations. `None` for another one.
    pub(crate) fn note(&self) -> Option<String> {
        let (origin, _) = self.suggestion.as_ref()?;
        let mut text = format!("{}, {origin}", self.name());
        let parts = [("label", &self.metadata.labels), ("annotation", &self.metadata.annotations)];
        for (what, values) in parts {
            for (key, value) in values.iter().flatten() {
                text += &format!(", with {what} {key}={value}");
            }
        }
        Some(one_line(&text).into_owned())
    }
}

/// Adds the package to a suggested namespace: a rerun, and a later installation of the package, may use it again.
pub fn made_for(mut namespace: ObjectMeta, package: &str) -> ObjectMeta {
    let annotations = namespace.annotations.get_or_insert_default();
    annotations.insert(EXT_SUGGESTED_FOR.to_owned(), package.to_owned());
    namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_shown_with_what_it_creates() {
        let labels = [("pod-security.kubernetes.io/enforce".to_owned(), "privileged".to_owned())];
        let name = Some("lights".to_owned());
        let metadata = ObjectMeta { name, labels: Some(labels.into()), ..ObjectMeta::default() };
        let of = |is_of_bundle| {
            let suggestion = SuggestedNamespace { metadata: metadata.clone(), is_of_bundle };
            InstallNamespace::suggested(Ok(suggestion), "lamp", false).unwrap()
        };
        let label = "with label pod-security.kubernetes.io/enforce=privileged";
        assert_eq!(of(true).note(), Some(format!("lights, suggested by the bundle, {label}")));
        assert_eq!(of(false).note(), Some(format!("lights, named after the package, {label}")));
        assert_eq!(InstallNamespace::given("lights", true).note(), None);
        let none = InstallNamespace::suggested(Err("namespace \"default\" …".to_owned()), "lamp", false)
            .unwrap_err();
        assert_eq!(none.to_string(), "namespace \"default\" …: use --namespace");
        let annotations = [("a".to_owned(), "b\nnamespace/other created".to_owned())];
        let metadata = ObjectMeta { annotations: Some(annotations.into()), ..metadata };
        let forged = SuggestedNamespace { metadata, is_of_bundle: true };
        let forged = InstallNamespace::suggested(Ok(forged), "lamp", true).unwrap();
        assert_eq!(forged.note().unwrap().lines().count(), 1);
    }
}
