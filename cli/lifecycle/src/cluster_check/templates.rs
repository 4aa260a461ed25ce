//! Catalogs whose image template has no image for the next version (docs/design/catalogd.md#image-templates). They do
//! not block it: their old content stays.

use olm_cli_catalog::template_check::{TemplateImage, TemplateResult, check, of_catalog};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterConnection, ImageArgs};
use olm_oci::KubernetesVersion;
use olm_platform::MinorVersion;
use olm_version::quote;

/// A warning for each of these catalogs. Catalogs that cannot be listed are a warning, too.
///
/// # Errors
/// A signal arrived.
pub(super) async fn warnings(
    cluster: &ClusterConnection,
    kubernetes: MinorVersion,
    session: &Session,
) -> Result<Vec<String>, CliError> {
    let version = KubernetesVersion { major: kubernetes.major, minor: kubernetes.minor, patch: None };
    let images = async {
        let templates: Vec<_> = cluster.catalogs(session).await?.iter().filter_map(of_catalog).collect();
        check(&templates, &[version], &ImageArgs::default(), session).await
    };
    match images.await {
        Ok(images) => Ok(images.iter().filter_map(warning).collect()),
        Err(failure @ CliError::Message(Code::Interrupted, _)) => Err(failure),
        Err(failure) => Ok(vec![format!("image templates of catalogs not checked: {failure}")]),
    }
}

fn warning(image: &TemplateImage) -> Option<String> {
    let what = match image.result {
        TemplateResult::Found => return None,
        TemplateResult::Missing => "does not exist",
        TemplateResult::NotACatalog => "is not a catalog",
        TemplateResult::Unresolved => "is not known",
        TemplateResult::Unknown => "could not be checked",
    };
    let name = quote(image.catalog.as_deref().unwrap_or_default());
    let reference = image.image.as_ref().map(|reference| format!(" {reference}")).unwrap_or_default();
    let message = image.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    let kubernetes = &image.kubernetes;
    Some(format!("ClusterCatalog {name}: image{reference} for Kubernetes {kubernetes} {what}{message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_without_image_for_next_version_is_named() {
        let image = |result, message: Option<&str>| TemplateImage {
            catalog: Some("team".to_owned()),
            kubernetes: "1.37".to_owned(),
            image: (result != TemplateResult::Unresolved).then(|| "r.example/c:v1.37".to_owned()),
            result,
            message: message.map(str::to_owned),
        };
        let rows = [
            (TemplateResult::Found, None, None),
            (
                TemplateResult::Missing,
                None,
                Some("ClusterCatalog \"team\": image r.example/c:v1.37 for Kubernetes 1.37 does not exist"),
            ),
            (
                TemplateResult::Unresolved,
                Some("no"),
                Some("ClusterCatalog \"team\": image for Kubernetes 1.37 is not known: no"),
            ),
        ];
        for (result, message, expected) in rows {
            assert_eq!(warning(&image(result, message)).as_deref(), expected, "{result:?}");
        }
    }
}
