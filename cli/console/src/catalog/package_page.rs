//! Page of a package with one of its bundles.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query};
use maud::{Markup, html};
use olm_cli_catalog::bundle_details::BundleDetails;
use olm_cli_catalog::facts::BundleFacts;
use olm_cli_catalog::package::{CatalogPackage, shown_version};
use olm_cli_core::controller::ControllerArgs;
use olm_cli_core::error::CliError;
use olm_resolve::{DependencyMode, Offer};
use olm_version::quote;
use serde::Deserialize;
use tokio::time::timeout;

use super::list_page::installed;
use super::markdown::markdown;
use super::package_tables::{apis, channels, requirements, side, versions};
use super::results::icon;
use super::summary::Summary;
use super::{channel_select, encoded, is_pre_release, package_path, pre_release_mark};
use crate::app::Console;
use crate::extensions;
use crate::page::{Page, PageError, Section};
use crate::visit::Visit;
use crate::visitor::Visitor;

/// Time to read the arguments of operator-controller. Without them, it is assumed to refuse dependencies.
const CONTROLLER_DEADLINE: Duration = Duration::from_secs(3);
/// Limits of a description that is shown as a whole, in bytes and lines.
const SHORT: usize = 1500;
const SHORT_LINES: usize = 20;

/// Query of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    /// Channel, empty for all, or `None` for the default one.
    channel: Option<String>,
    /// Version or name of a bundle, or empty for the one that an installation would choose.
    version: String,
}

impl Choice {
    /// Chosen channel.
    fn channel(&self) -> Option<&str> {
        self.channel.as_deref().filter(|channel| !channel.is_empty())
    }
}

/// Package with the chosen bundle.
///
/// # Errors
/// There is no such catalog, package, channel or version.
pub(super) async fn page(
    Visit { console, visitor }: Visit,
    Path((catalog, package)): Path<(String, String)>,
    Query(choice): Query<Choice>,
) -> Result<Page, PageError> {
    let content = console.library.content(&catalog, &console, &visitor).await?;
    let installed = installed(&console, &visitor).await.unwrap_or_default().remove(&package);
    let has_dependencies = {
        let (content, package) = (Arc::clone(&content), package.clone());
        let read =
            move || Ok(content.package(&package)?.index.offers().any(|offer| offer.dependency().is_some()));
        console.render(read).await?
    };
    let judges_dependencies = has_dependencies && judges_dependencies(&console, &visitor).await;
    let rendered = console.render(move || {
        let read = content.package(&package)?;
        let summary = content.packages.iter().find(|summary| summary.name == package);
        let unknown = Summary::default();
        let installed = installed.unwrap_or_default();
        let sheet = Sheet::new(&read, &choice, &installed, judges_dependencies)?;
        Ok(sheet.page(summary.unwrap_or(&unknown)))
    });
    Ok(rendered.await?)
}

/// Reports whether operator-controller accepts bundles with dependencies.
async fn judges_dependencies(console: &Console, visitor: &Visitor) -> bool {
    let Some(cluster) = visitor.cluster() else { return false };
    let read = ControllerArgs::read(cluster, &console.session);
    let Ok(Ok(controller)) = timeout(CONTROLLER_DEADLINE, read).await else { return false };
    controller.dependency_mode.is_some_and(|mode| mode != DependencyMode::Reject)
}

/// Package with what its page shows.
struct Sheet<'a> {
    package: &'a CatalogPackage,
    choice: &'a Choice,
    /// Chosen bundle.
    offer: Option<&'a Offer>,
    facts: BundleFacts,
    details: Option<BundleDetails>,
    /// Extensions of the cluster that install the package.
    installed: &'a [String],
    judges_dependencies: bool,
}

impl<'a> Sheet<'a> {
    fn new(
        package: &'a CatalogPackage,
        choice: &'a Choice,
        installed: &'a [String],
        judges_dependencies: bool,
    ) -> Result<Self, CliError> {
        let offer = chosen(package, choice)?;
        let bundle = offer.and_then(|offer| package.bundle(offer.name()));
        let facts = bundle.map(BundleFacts::of).unwrap_or_default();
        let details = bundle.map(|bundle| BundleDetails::new(package, bundle));
        Ok(Self { package, choice, offer, facts, details, installed, judges_dependencies })
    }

    fn version(&self) -> Option<&str> {
        self.details.as_ref()?.version.as_deref()
    }

    /// Reports whether the user chose neither channel nor version.
    fn is_default(&self) -> bool {
        self.choice.channel.is_none() && self.choice.version.is_empty()
    }

    fn is_in_default_channel(&self) -> bool {
        self.offer.is_some_and(|offer| offer.channels().any(|one| one == self.package.default_channel()))
    }

    /// Reason for which operator-controller refuses the bundle.
    fn refusal(&self) -> Option<&str> {
        self.details.as_ref()?.refused.as_deref().filter(|_| !self.judges_dependencies)
    }

    fn page(&self, summary: &Summary) -> Page {
        let Self { package, facts, details, offer, .. } = self;
        let title = if facts.display_name.is_empty() { &package.name } else { &facts.display_name };
        let description = match facts.description.as_str() {
            "" => package.description(),
            text => text,
        };
        let body = html! {
            p.trail { a href="/" { "Packages" } " / " (package.catalog) }
            div.hero {
                (icon(summary))
                div.text {
                    h1 { (title) }
                    p.by {
                        @if !facts.provider.is_empty() { (facts.provider) " · " }
                        code { (package.name) }
                        @if let Some(version) = self.version() { " · version " (version) (pre_release_mark(version)) }
                    }
                    @if !self.installed.is_empty() {
                        p.installed {
                            span.badge.good { "Installed" } " as "
                            @for (number, name) in self.installed.iter().enumerate() {
                                @if number > 0 { ", " }
                                a href=(extensions::path(name)) { (name) }
                            }
                        }
                    }
                }
                (self.actions())
            }
            (notices(self))
            (choices(package, self.choice, *offer))
            div.split {
                div {
                    (readme(description))
                    @if let Some(details) = details { (apis(details, facts)) }
                    @if let Some(details) = details { (requirements(package, details, *offer)) }
                    (channels(package))
                    (versions(package, *offer))
                }
                aside aria-label="Facts" { (side(package, details.as_ref(), facts)) }
            }
        };
        let title = match self.version() {
            Some(version) => format!("{title} {version}"),
            None => title.clone(),
        };
        Page::new(Section::Catalog, title, body)
    }

    /// Links to the other pages of the package.
    fn actions(&self) -> Markup {
        let path = package_path(&self.package.catalog, &self.package.name);
        html! {
            p.actions {
                @if let (Some(offer), None) = (self.offer, self.refusal()) {
                    a.button href=(format!("{path}/install{}", install_query(self.package, self.choice.channel(), offer))) {
                        @if self.installed.is_empty() { "Install" } @else { "Install a second time" }
                    }
                }
                a.button.quiet href=(format!("{path}/graph")) { "Upgrade graph" }
            }
        }
    }
}

/// Query of the form that installs a bundle: by the channel, unless the channel does not lead to it. Without a channel,
/// by one that does.
pub(crate) fn install_query(package: &CatalogPackage, channel: Option<&str>, offer: &Offer) -> String {
    let default = package.default_channel();
    let has = |channel: &&str| offer.channels().any(|one| one == *channel);
    let channel = channel.or_else(|| Some(default).filter(has)).or_else(|| offer.channels().next());
    let channel = channel.unwrap_or_default();
    let mut query = if channel == default { String::new() } else { format!("?channel={}", encoded(channel)) };
    let best = package.index.offers().find(|best| best.channels().any(|one| one == channel));
    if best.is_some_and(|best| best.name() != offer.name()) {
        let version = shown_version(offer).unwrap_or_default();
        query += if query.is_empty() { "?" } else { "&" };
        query += &format!("follow=version&version={}", encoded(&version));
    }
    query
}

/// Description, of which a long one is cut until the user opens it.
fn readme(description: &str) -> Markup {
    let is_long = description.len() > SHORT || description.lines().count() > SHORT_LINES;
    html! {
        @if !description.is_empty() {
            section.readme aria-labelledby="description" {
                h2 #description { "Description" }
                div.prose { (markdown(description)) }
                @if is_long { details { summary { "Whole description" } } }
            }
        }
    }
}

/// Chosen bundle, else the best one of the channel, by default of the default channel.
fn chosen<'a>(package: &'a CatalogPackage, choice: &Choice) -> Result<Option<&'a Offer>, CliError> {
    let wanted = choice.channel();
    wanted.map(|channel| package.channel(channel)).transpose()?;
    let is_in = |offer: &&Offer, wanted: &str| offer.channels().any(|channel| channel == wanted);
    let is_in_channel = |offer: &&Offer| wanted.is_none_or(|channel| is_in(offer, channel));
    if choice.version.is_empty() {
        let mut offers = package.index.offers();
        let of_default = || package.index.offers().find(|offer| is_in(offer, package.default_channel()));
        let preferred = if choice.channel.is_none() { of_default() } else { None };
        return Ok(preferred.or_else(|| offers.find(is_in_channel)));
    }
    let name = package.bundle_named(&choice.version)?;
    match package.offer(name).filter(is_in_channel) {
        Some(offer) => Ok(Some(offer)),
        None => Err(CliError::no_candidate(format!(
            "channel {} has no version {}",
            quote(wanted.unwrap_or_default()),
            quote(&choice.version)
        ))),
    }
}

fn notices(sheet: &Sheet<'_>) -> Markup {
    let Sheet { package, details, .. } = sheet;
    html! {
        @for message in package.deprecation() {
            div.notice role="note" { strong { "The package is deprecated. " } (message) }
        }
        @if let Some(details) = details {
            @for message in &details.deprecation {
                div.notice role="note" { strong { "This version is deprecated. " } (message) }
            }
        }
        @if let Some(version) = sheet.version().filter(|version| is_pre_release(version)) {
            div.notice role="note" {
                strong { "Pre-release. " }
                "Version " (version) " is not a release, by its number."
                @if sheet.is_default() && sheet.is_in_default_channel() { " The default channel offers nothing better." }
            }
        }
        @if sheet.offer.is_some() && !sheet.is_in_default_channel() && !package.default_channel().is_empty() {
            div.notice role="note" {
                strong { "Not in the default channel. " }
                "The author recommends channel " a href=(package_path(&package.catalog, &package.name)) { (package.default_channel()) }
                ", which does not contain this version."
            }
        }
        @if let Some(reason) = sheet.refusal() {
            div.notice.bad role="note" {
                strong { "Cannot be installed here. " } (reason) ". "
                code { "olm install " (package.name) " --with-dependencies" } " also installs what it needs."
            }
        }
        @if sheet.offer.is_none() {
            div.notice.bad role="note" { strong { "Cannot be installed. " } "No channel of the package offers a bundle." }
        }
    }
}

/// Form that chooses channel and version. A new channel starts with its best version.
fn choices(package: &CatalogPackage, choice: &Choice, offer: Option<&Offer>) -> Markup {
    let is_in_channel = |offer: &&Offer| {
        choice.channel().is_none_or(|wanted| offer.channels().any(|channel| channel == wanted))
    };
    // Without a choice, the page shows the default channel.
    let shown = match (&choice.channel, choice.version.as_str()) {
        (None, "") => package.default_channel(),
        _ => choice.channel().unwrap_or_default(),
    };
    let path = package_path(&package.catalog, &package.name);
    let current = offer.map(Offer::name);
    html! {
        div.choice {
            form method="get" action=(path) {
                div { (channel_select(package, shown)) }
                button.quiet type="submit" { "Show" }
            }
            form method="get" action=(path) {
                @if let Some(channel) = choice.channel() { input type="hidden" name="channel" value=(channel); }
                div {
                    label for="version" { "Version" }
                    select #version name="version" {
                        @for offer in package.index.offers().filter(is_in_channel) {
                            option value=(offer.name()) selected[Some(offer.name()) == current] {
                                (package.version(offer.name()).as_deref().unwrap_or_else(|| offer.name()))
                                @if shown_version(offer).is_some_and(|version| is_pre_release(&version)) { " (pre-release)" }
                                @if offer.deprecated() { " (deprecated)" }
                            }
                        }
                    }
                }
                button.quiet type="submit" { "Show" }
            }
        }
    }
}
