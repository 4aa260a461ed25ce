//! Pages of catalogs and packages.

mod content;
mod filter;
mod icon;
mod library;
mod list_page;
mod markdown;
mod package_page;
mod package_tables;
mod results;
mod search;
mod summary;

use std::cmp::Ordering;

use axum::Router;
use axum::routing::get;
use maud::{Markup, html};
use olm_cli_catalog::package::CatalogPackage;
use olm_fbc::Channel;
use olm_version::Version;

pub(super) use self::library::Library;
pub(super) use self::list_page::{Found, find};
pub(super) use self::package_page::install_query;
use super::app::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/", get(list_page::page))
        .route("/catalogs/{catalog}/packages/{package}", get(package_page::page))
        .route("/catalogs/{catalog}/packages/{package}/icon", get(icon::serve))
}

/// Path of a package's page.
pub(crate) fn package_path(catalog: &str, package: &str) -> String {
    format!("/catalogs/{}/packages/{}", encoded(catalog), encoded(package))
}

/// Select of a form for a channel, or all channels, with its label.
pub(crate) fn channel_select(package: &CatalogPackage, chosen: &str) -> Markup {
    html! {
        label for="channel" { "Channel" }
        select #channel name="channel" {
            option value="" selected[chosen.is_empty()] { "All channels" }
            @for channel in channels(package) {
                option value=(channel.name) selected[channel.name == chosen] {
                    (channel.name)
                    @if channel.name == package.default_channel() { " (default)" }
                }
            }
        }
    }
}

/// Channels of a package: the default one first, then by name with the highest numbers first.
pub(crate) fn channels(package: &CatalogPackage) -> Vec<&Channel> {
    let default = package.default_channel();
    let mut channels: Vec<&Channel> = package.content.channels.iter().collect();
    channels.sort_by(|a, b| {
        let is_other = |channel: &Channel| channel.name != default;
        is_other(a).cmp(&is_other(b)).then_with(|| by_number(&a.name, &b.name))
    });
    channels
}

/// Order of names in which a higher number comes first, such as `v1.10`, `v1.9`, `v2` after `v10`.
fn by_number(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| {
        let mut parts: Vec<(String, u64)> = vec![(String::new(), 0)];
        for c in name.chars() {
            let Some((text, number)) = parts.last_mut() else { continue };
            match (c.to_digit(10), text.chars().next_back().is_some_and(|last| last.is_ascii_digit())) {
                (Some(digit), true) => {
                    *number = number.saturating_mul(10).saturating_add(u64::from(digit));
                }
                (Some(digit), false) => parts.push(("0".to_owned(), u64::from(digit))),
                (None, true) => parts.push((c.to_string(), 0)),
                (None, false) => text.push(c),
            }
        }
        parts
    };
    let (left, right) = (parts(a), parts(b));
    let pairs = left.iter().zip(&right).map(|(a, b)| a.0.cmp(&b.0).then_with(|| b.1.cmp(&a.1)));
    pairs
        .fold(Ordering::Equal, Ordering::then)
        .then_with(|| right.len().cmp(&left.len()))
        .then_with(|| a.cmp(b))
}

/// Reports whether a version is a pre-release.
pub(crate) fn is_pre_release(version: &str) -> bool {
    Version::parse(version).is_ok_and(|version| !version.pre().is_empty())
}

/// Mark of a pre-release, with its reason.
pub(crate) fn pre_release_mark(version: &str) -> Markup {
    html! {
        @if is_pre_release(version) {
            " " span.badge.warn title="Not a release: its version has a pre-release part" { "pre-release" }
        }
    }
}

/// Text as part of a path or as a value in a query.
pub(crate) fn encoded(text: &str) -> impl std::fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_with_higher_numbers_come_first() {
        let mut names = ["stable-3.9", "stable-3.17", "stable", "alpha", "stable-3.10", "2.x", "10.x", "v1"];
        names.sort_by(|a, b| by_number(a, b));
        assert_eq!(
            names,
            ["10.x", "2.x", "alpha", "stable", "stable-3.17", "stable-3.10", "stable-3.9", "v1"]
        );
    }
}
