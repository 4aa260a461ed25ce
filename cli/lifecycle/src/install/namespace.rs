//! Namespace of a new extension: given, or suggested by its bundle.

use kube::core::ObjectMeta;
use olm_cli_catalog::suggested_namespace::SuggestedNamespace;
use olm_cli_core::change::{self, DryRun, WrittenObject};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;

use super::existing::check_namespace;

/// Namespace of new extensions.
#[derive(Debug)]
pub struct InstallNamespace {
    metadata: ObjectMeta,
    may_create: bool,
    /// Where the name comes from, if nobody gave it.
    origin: Option<&'static str>,
}

impl InstallNamespace {
    /// Namespace that the user names.
    pub fn given(name: &str, may_create: bool) -> Self {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { metadata, may_create, origin: None }
    }

    /// Suggested namespace, which is created if it does not exist.
    ///
    /// # Errors
    /// There is no usable suggestion.
    pub fn suggested(suggestion: Result<SuggestedNamespace, String>) -> Result<Self, CliError> {
        let found = suggestion.map_err(|why| CliError::usage(format!("{why}: use --namespace")))?;
        let origin = if found.is_of_bundle { "suggested by the bundle" } else { "named after the package" };
        Ok(Self { metadata: found.metadata, may_create: true, origin: Some(origin) })
    }

    /// Name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Reports whether the namespace exists.
    ///
    /// # Errors
    /// It does not exist and may not be created, it is being deleted, or the API server does not answer. It exists
    /// although nobody named it: it may belong to others.
    pub async fn exists(&self, cluster: &ClusterConnection, session: &Session) -> Result<bool, CliError> {
        let exists = check_namespace(cluster, self.name(), self.may_create, session).await?;
        let Some(origin) = self.origin.filter(|_| exists) else { return Ok(exists) };
        let name = self.name();
        let remedy = format!("to install into it, add `--namespace {name}`");
        Err(CliError::findings(format!("namespace {name}, {origin}, exists: {remedy}")))
    }

    /// Creates the namespace. Returns `None` if it exists.
    ///
    /// # Errors
    /// The API server refuses it or does not answer.
    pub async fn create(
        &self,
        cluster: &ClusterConnection,
        dry_run: Option<DryRun>,
        session: &Session,
    ) -> Result<Option<WrittenObject>, CliError> {
        change::create_namespace(cluster, &self.metadata, dry_run, session).await
    }

    /// Text about a namespace that nobody named: origin, labels and annotations. `None` if the user named it.
    pub fn note(&self) -> Option<String> {
        let mut text = format!("{}, {}", self.name(), self.origin?);
        let parts = [("label", &self.metadata.labels), ("annotation", &self.metadata.annotations)];
        for (what, values) in parts {
            for (key, value) in values.iter().flatten() {
                text += &format!(", with {what} {key}={value}");
            }
        }
        Some(text)
    }
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
            InstallNamespace::suggested(Ok(suggestion)).unwrap()
        };
        let label = "with label pod-security.kubernetes.io/enforce=privileged";
        assert_eq!(of(true).note(), Some(format!("lights, suggested by the bundle, {label}")));
        assert_eq!(of(false).note(), Some(format!("lights, named after the package, {label}")));
        assert_eq!(InstallNamespace::given("lights", true).note(), None);
        let none = InstallNamespace::suggested(Err("the bundle suggests nothing".to_owned())).unwrap_err();
        assert_eq!(none.to_string(), "the bundle suggests nothing: use --namespace");
    }
}
