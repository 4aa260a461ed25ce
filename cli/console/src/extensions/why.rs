//! Page with the reasons for which the resolver chooses a version of an extension.

use axum::extract::Path;
use maud::html;
use olm_cli_core::controller::ControllerArgs;
use olm_cli_lifecycle::resolve::Resolver;
use olm_cli_lifecycle::status::observe;

use super::{cluster_of, trail};
use crate::page::{Page, PageError, Section, visible};
use crate::visit::Visit;

/// Output of `olm resolve --extension NAME --explain`.
///
/// # Errors
/// The extension does not exist, or a catalog cannot be read.
pub(super) async fn page(visit: Visit, Path(name): Path<String>) -> Result<Page, PageError> {
    let page = visit.page(Section::Extensions, format!("Why this version of {name}"), async move |console, visitor| {
        let (cluster, session) = (cluster_of(visitor, &name)?, &console.session);
        let extension = observe::extension(cluster, &name, session).await?;
        let controller = ControllerArgs::read(cluster, session).await?;
        let sources = ["cluster".to_owned()];
        let resolver = Resolver::read(&controller, &extension, &sources, visitor.access(), session).await?;
        let (text, error) = resolver.explain(&extension)?;
        Ok(visible(&html! {
            (trail(&name))
            h1 { "Why this version of " (name) }
            p.soft { "The current choice of the resolver, as " code { "olm resolve --extension " (name) " --explain" } " prints it." }
            @if let Some(error) = error { p.notice.bad role="alert" { (error) } }
            pre tabindex="0" role="region" aria-label="Reasons" { (text) }
        }))
    });
    page.await
}
