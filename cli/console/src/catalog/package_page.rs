//! Page of a package with one of its bundles.

use axum::Extension;
use axum::extract::{Path, Query, State};
use maud::{Markup, html};
use olm_cli_catalog::bundle_details::BundleDetails;
use olm_cli_catalog::package::{CatalogPackage, shown_version};
use olm_cli_core::error::CliError;
use olm_resolve::Offer;
use olm_version::quote;
use serde::Deserialize;

use super::facts::Facts;
use super::markdown::markdown;
use super::package_tables::{apis, channels, requirements, side, versions};
use super::results::icon;
use super::summary::Summary;
use super::{channel_select, encoded, package_path};
use crate::app::App;
use crate::page::{Page, PageError, Section};
use crate::visitor::Visitor;

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    /// Channel, or empty for all.
    channel: String,
    /// Version or name of a bundle, or empty for the one that an installation would choose.
    version: String,
}

/// Package with the chosen bundle.
///
/// # Errors
/// There is no such catalog, package, channel or version.
pub(super) async fn page(
    State(console): State<App>,
    Extension(visitor): Extension<Visitor>,
    Path((catalog, package)): Path<(String, String)>,
    Query(choice): Query<Choice>,
) -> Result<Page, PageError> {
    let content = console.library.content(&catalog, &console, &visitor).await?;
    let rendered = console.render(move || {
        let read = content.package(&package)?;
        let summary = content.packages.iter().find(|summary| summary.name == package);
        let unknown = Summary::default();
        render(&read, summary.unwrap_or(&unknown), &choice)
    });
    Ok(rendered.await?)
}

fn render(package: &CatalogPackage, summary: &Summary, choice: &Choice) -> Result<Page, CliError> {
    let offer = chosen(package, choice)?;
    let bundle = offer.and_then(|offer| package.bundle(offer.name()));
    let facts = bundle.map(Facts::of).unwrap_or_default();
    let details = bundle.map(|bundle| BundleDetails::new(package, bundle));
    let version = details.as_ref().and_then(|details| details.version.clone());
    let title = if facts.display_name.is_empty() { &package.name } else { &facts.display_name };
    let description = match facts.description.as_str() {
        "" => package.description(),
        text => text,
    };
    let body = html! {
        p { a href="/" { "All packages" } }
        div.hero {
            (icon(summary))
            div {
                h1 { (title) }
                p.by {
                    @if !facts.provider.is_empty() { (facts.provider) " · " }
                    code { (package.name) } " in catalog " (package.catalog)
                }
                (notices(package, details.as_ref()))
            }
        }
        (choices(package, choice, offer))
        div.split {
            div {
                @if !description.is_empty() {
                    section aria-labelledby="description" {
                        h2 #description { "Description" }
                        div.prose { (markdown(description)) }
                    }
                }
                @if let Some(details) = &details { (apis(details, &facts)) (requirements(package, details, offer)) }
                (channels(package))
                (versions(package, offer))
            }
            aside aria-label="Facts" { (side(package, details.as_ref(), &facts)) }
        }
    };
    let title = match version {
        Some(version) => format!("{title} {version}"),
        None => title.clone(),
    };
    Ok(Page::new(Section::Catalog, title, body))
}

/// Chosen bundle, else the best one of the channel.
fn chosen<'a>(package: &'a CatalogPackage, choice: &Choice) -> Result<Option<&'a Offer>, CliError> {
    if !choice.channel.is_empty() {
        package.channel(&choice.channel)?;
    }
    let is_in_channel = |offer: &&Offer| {
        choice.channel.is_empty() || offer.channels().any(|channel| channel == choice.channel)
    };
    if choice.version.is_empty() {
        return Ok(package.index.offers().find(is_in_channel));
    }
    let name = package.bundle_named(&choice.version)?;
    match package.offer(name).filter(is_in_channel) {
        Some(offer) => Ok(Some(offer)),
        None => Err(CliError::no_candidate(format!(
            "channel {} has no version {}",
            quote(&choice.channel),
            quote(&choice.version)
        ))),
    }
}

fn notices(package: &CatalogPackage, details: Option<&BundleDetails>) -> Markup {
    html! {
        @for message in package.deprecation() {
            div.notice role="note" { strong { "The package is deprecated. " } (message) }
        }
        @if let Some(details) = details {
            @for message in &details.deprecation {
                div.notice role="note" { strong { "This version is deprecated. " } (message) }
            }
            @if let Some(reason) = &details.refused {
                div.notice role="note" { strong { "Not installable. " } (reason) }
            }
        }
    }
}

/// Form that chooses channel and version. A new channel starts with its best version.
fn choices(package: &CatalogPackage, choice: &Choice, offer: Option<&Offer>) -> Markup {
    let is_in_channel = |offer: &&Offer| {
        choice.channel.is_empty() || offer.channels().any(|channel| channel == choice.channel)
    };
    let path = package_path(&package.catalog, &package.name);
    let current = offer.map(Offer::name);
    html! {
        div.choice {
            form method="get" action=(path) {
                div { (channel_select(package, &choice.channel)) }
                button type="submit" { "Show" }
            }
            form method="get" action=(path) {
                @if !choice.channel.is_empty() { input type="hidden" name="channel" value=(choice.channel); }
                div {
                    label for="version" { "Version" }
                    select #version name="version" {
                        @for offer in package.index.offers().filter(is_in_channel) {
                            option value=(offer.name()) selected[Some(offer.name()) == current] {
                                (package.version(offer.name()).as_deref().unwrap_or_else(|| offer.name()))
                                @if offer.deprecated() { " (deprecated)" }
                            }
                        }
                    }
                }
                button type="submit" { "Show" }
            }
            (actions(package, offer))
        }
    }
}

/// Links to the other pages of the package.
fn actions(package: &CatalogPackage, offer: Option<&Offer>) -> Markup {
    let path = package_path(&package.catalog, &package.name);
    let version = offer.and_then(shown_version);
    let install = version.map(|version| format!("{path}/install?version={}", encoded(&version)));
    html! {
        p.actions {
            a.button href=(install.unwrap_or_else(|| format!("{path}/install"))) { "Install" }
            " "
            a.button.quiet href=(format!("{path}/graph")) { "Upgrade graph" }
        }
    }
}
