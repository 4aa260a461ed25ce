//! Results of the list of packages.

use maud::{Markup, html};
use olm_cli_catalog::facts::CAPABILITIES;
use olm_cli_core::output::counted;

use super::filter::{Filter, Installed, PAGE_SIZE};
use super::summary::Summary;
use super::{package_path, pre_release_mark};

/// Keywords that an item shows.
const KEYWORDS: usize = 5;

/// Number of packages, the packages of one page, and links to other pages.
pub(super) fn results(
    filter: &Filter,
    found: &[&Summary],
    installed: Option<&Installed>,
    name_catalogs: bool,
) -> Markup {
    let index = filter.page_index(found.len());
    let pages = found.len().div_ceil(PAGE_SIZE);
    let names = |package: &Summary| installed.and_then(|installed| installed.get(&package.name));
    html! {
        p.count { (counted(found.len(), "package")) }
        @if found.is_empty() {
            p.empty { "No package matches. " a href="/" { "Show all packages" } }
        }
        ul.packages {
            @for package in found.iter().skip(index * PAGE_SIZE).take(PAGE_SIZE) {
                (item(package, names(package), name_catalogs))
            }
        }
        @if pages > 1 {
            nav.pages aria-label="Pages" {
                @if index > 0 { a href=(filter.path(index - 1)) rel="prev" { "Previous" } }
                span { "Page " (index + 1) " of " (pages) }
                @if index + 1 < pages { a href=(filter.path(index + 1)) rel="next" { "Next" } }
            }
        }
    }
}

fn item(package: &Summary, installed: Option<&Vec<String>>, name_catalog: bool) -> Markup {
    let path = package_path(&package.catalog, &package.name);
    html! {
        li.package data-item {
            (icon(package))
            div.text {
                h2 { a href=(path) { (package.title) } }
                p.by {
                    @if !package.provider.is_empty() { (package.provider) " · " }
                    code { (package.name) }
                    @if name_catalog { " · " (package.catalog) }
                }
                p.badges {
                    @if let Some(names) = installed {
                        span.badge.good { "Installed" @if names.len() > 1 || names.first() != Some(&package.name) { " as " (names.join(", ")) } }
                    }
                    @if package.deprecated { span.badge.warn { "Deprecated" } }
                    @if package.problem.is_some() { span.badge.bad { "Cannot be read" } }
                }
                p.about { (package.problem.as_deref().unwrap_or(&package.description)) }
                dl.facts {
                    @if let Some(channel) = package.channels.first() {
                        div {
                            dt { (channel.name) }
                            dd.struck[channel.deprecated] { (channel.version) (pre_release_mark(&channel.version)) }
                        }
                    }
                    @if package.channels.len() > 1 { div { dt { "channels" } dd { (package.channels.len()) } } }
                    div { dt { "versions" } dd { (package.bundles) } }
                    @if let Some(level) = package.capability {
                        div { dt { "level" } dd { (level) " " (CAPABILITIES[usize::from(level - 1)]) } }
                    }
                }
                @if !package.keywords.is_empty() {
                    p.keywords { (package.keywords.iter().take(KEYWORDS).cloned().collect::<Vec<_>>().join(" · ")) }
                }
            }
        }
    }
}

/// Icon of a package, else its first letter. Both are decoration: the name follows.
pub(super) fn icon(package: &Summary) -> Markup {
    let letter: String = package.title.chars().take(1).flat_map(char::to_uppercase).collect();
    html! {
        @if package.icon {
            img.icon src=(format!("{}/icon", package_path(&package.catalog, &package.name))) alt="" width="48"
                height="48" loading="lazy" decoding="async" data-letter=(letter);
        } @else {
            span.icon.letter aria-hidden="true" { (letter) }
        }
    }
}
