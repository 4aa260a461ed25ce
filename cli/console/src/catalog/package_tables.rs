//! Tables of a package's page.

use std::collections::BTreeSet;

use maud::{Markup, html};
use olm_cli_catalog::bundle_details::BundleDetails;
use olm_cli_catalog::channels::ChannelSummary;
use olm_cli_catalog::facts::{BundleFacts, CAPABILITIES, OwnedApi};
use olm_cli_catalog::package::{CatalogPackage, shown_version};
use olm_cli_core::output::counted;
use olm_resolve::Offer;

use super::markdown::{outside_link, web_address};
use super::{encoded, package_path, pre_release_mark};

/// Most APIs that are shown at once.
const APIS: usize = 8;

/// API of a bundle in all of its versions.
struct Api {
    kind: String,
    /// Name of the CRD, else the group.
    name: String,
    versions: Vec<String>,
    title: String,
    purpose: String,
}

/// APIs of the bundle, each once. Those of CRDs have a description.
fn provided(details: &BundleDetails, facts: &BundleFacts) -> Vec<Api> {
    let described: BTreeSet<_> = facts.owned.iter().map(api_name).collect();
    let of_crd = |api: &OwnedApi| Api {
        kind: api.kind.clone(),
        name: api.name.clone(),
        versions: vec![api.version.clone()],
        title: if api.display_name == api.kind { String::new() } else { api.display_name.clone() },
        purpose: api.description.clone(),
    };
    let others = details.provides.iter().filter(|name| !described.contains(*name)).map(|name| {
        let (kind, rest) = name.split_once('.').unwrap_or((name, ""));
        let (version, group) = rest.split_once('.').unwrap_or((rest, ""));
        let [kind, name] = [kind, group].map(str::to_owned);
        Api { kind, name, versions: vec![version.to_owned()], title: String::new(), purpose: String::new() }
    });
    let mut apis: Vec<Api> = Vec::new();
    for api in facts.owned.iter().map(of_crd).chain(others) {
        match apis.iter_mut().find(|known| known.kind == api.kind && known.name == api.name) {
            Some(known) => {
                known.versions.extend(api.versions);
                if known.purpose.is_empty() {
                    known.purpose = api.purpose;
                }
            }
            None => apis.push(api),
        }
    }
    apis
}

/// Table of the APIs that the bundle provides.
pub(super) fn apis(details: &BundleDetails, facts: &BundleFacts) -> Markup {
    let apis = provided(details, facts);
    let (first, rest) = apis.split_at(apis.len().min(APIS));
    html! {
        @if !apis.is_empty() {
            section aria-labelledby="apis" {
                h2 #apis { "Provided APIs" }
                (api_table(first, "Provided APIs"))
                @if !rest.is_empty() {
                    details { summary { (counted(rest.len(), "more API")) } (api_table(rest, "More provided APIs")) }
                }
            }
        }
    }
}

fn api_table(apis: &[Api], label: &str) -> Markup {
    let has_purpose = apis.iter().any(|api| !api.purpose.is_empty());
    html! {
        div.table tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { th scope="col" { "Kind" } th scope="col" { "Version" } @if has_purpose { th scope="col" { "Purpose" } } } }
                tbody {
                    @for api in apis {
                        tr {
                            th scope="row" {
                                (api.kind) @if !api.title.is_empty() { " " span.soft { (api.title) } }
                                br; code.soft { (dotted(&api.name)) }
                            }
                            td { (api.versions.join(", ")) }
                            @if has_purpose { td { (api.purpose) } }
                        }
                    }
                }
            }
        }
    }
}

/// Name that breaks after its dots.
fn dotted(name: &str) -> Markup {
    let mut parts = name.split_inclusive('.');
    html! { (parts.next().unwrap_or_default()) @for part in parts { wbr; (part) } }
}

/// Name of an API as in [`BundleDetails::provides`].
fn api_name(api: &OwnedApi) -> String {
    let group = api.name.split_once('.').map_or("", |(_, group)| group);
    format!("{}.{}.{group}", api.kind, api.version)
}

/// Requirements of the bundle: other packages and APIs, install modes, platform, permissions.
pub(super) fn requirements(
    package: &CatalogPackage,
    details: &BundleDetails,
    offer: Option<&Offer>,
) -> Markup {
    let path = package_path(&package.catalog, &package.name);
    let version = offer.and_then(shown_version).unwrap_or_default();
    let limits: Vec<_> = offer.into_iter().flat_map(Offer::platform_limits).collect();
    html! {
        section aria-labelledby="requires" {
            h2 #requires { "Requirements" }
            dl.pairs {
                @if !details.requires.is_empty() {
                    dt { "Needs" }
                    @for text in &details.requires { dd { (text) } }
                }
                @if !details.install_modes.is_empty() {
                    dt { "Install modes" }
                    dd { (details.install_modes.join(", ")) }
                }
                @for (name, value) in &limits { dt { (name) } dd { (value) } }
                dt { "Permissions" }
                dd { a href=(format!("{path}/permissions?version={}", encoded(&version))) { "Read from the bundle's image" } }
            }
            @if details.requires.is_empty() && details.refused.is_none() { p.soft { "The catalog declares no dependency on other packages or APIs." } }
        }
    }
}

pub(super) fn channels(package: &CatalogPackage) -> Markup {
    let path = package_path(&package.catalog, &package.name);
    html! {
        section aria-labelledby="channels" {
            h2 #channels { "Channels" }
            div.table tabindex="0" role="region" aria-labelledby="channels" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Channel" }
                            th scope="col" { "Latest version" }
                            th scope="col" { "Versions" }
                            th scope="col" { "Deprecation" }
                        }
                    }
                    tbody {
                        @for channel in super::channels(package) {
                            @let summary = ChannelSummary::new(package, channel);
                            tr {
                                th scope="row" {
                                    a href=(format!("{path}?channel={}", encoded(&channel.name))) { (channel.name) }
                                    @if summary.default { " " span.badge { "default" } }
                                }
                                td.number {
                                    @for head in &summary.heads {
                                        @let version = head.version.as_deref().unwrap_or(&head.bundle);
                                        (version) (pre_release_mark(version)) " "
                                    }
                                }
                                td.number { (summary.bundles) }
                                td { (summary.deprecation.join("; ")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// All versions, best first.
pub(super) fn versions(package: &CatalogPackage, current: Option<&Offer>) -> Markup {
    let path = package_path(&package.catalog, &package.name);
    let count = package.index.offers().count();
    html! {
        section aria-labelledby="versions" {
            h2 #versions { "Versions" }
            details open[count <= 12] {
                summary { (counted(count, "version")) }
                div.table tabindex="0" role="region" aria-labelledby="versions" {
                    table {
                        thead {
                            tr { th scope="col" { "Version" } th scope="col" { "Channels" } th scope="col" { "Bundle" } }
                        }
                        tbody {
                            @for offer in package.index.offers() {
                                @let is_current = current.is_some_and(|current| current.name() == offer.name());
                                tr aria-current=[is_current.then_some("true")] {
                                    th scope="row" {
                                        a href=(format!("{path}?version={}", encoded(offer.name()))) {
                                            (shown_version(offer).as_deref().unwrap_or_else(|| offer.name()))
                                        }
                                        @if let Some(version) = shown_version(offer) { (pre_release_mark(&version)) }
                                        @if offer.deprecated() { " " span.badge.warn { "deprecated" } }
                                    }
                                    td { (offer.channels().collect::<Vec<_>>().join(", ")) }
                                    td { code { (offer.name()) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Facts beside the description.
pub(super) fn side(package: &CatalogPackage, details: Option<&BundleDetails>, facts: &BundleFacts) -> Markup {
    let capability =
        facts.capability.map(|level| format!("{level} of 5, {}", CAPABILITIES[usize::from(level - 1)]));
    let version = details.and_then(|details| details.version.clone()).unwrap_or_default();
    let channels = details.map(|details| details.channels.join(", ")).unwrap_or_default();
    let pairs = [
        ("Version", version.as_str()),
        ("In channels", &channels),
        ("Default channel", package.default_channel()),
        ("Capability level", capability.as_deref().unwrap_or_default()),
        ("Maturity", &facts.maturity),
        ("Provider", &facts.provider),
        ("Support", &facts.support),
        ("Created", facts.created_at.split('T').next().unwrap_or_default()),
        ("Minimum Kubernetes", &facts.min_kube_version),
        ("Categories", &facts.categories.join(", ")),
        ("Keywords", &facts.keywords.join(", ")),
    ];
    let mut links = facts.links.clone();
    links.push(("Source code".to_owned(), facts.repository.clone()));
    links.retain(|(_, address)| web_address(address).is_some());
    html! {
        h2 { "About this version" }
        dl.pairs {
            @for (label, value) in pairs {
                @if !value.is_empty() { dt { (label) } dd { (value) } }
            }
        }
        @if !links.is_empty() {
            h2 { "Links" }
            ul { @for (name, address) in &links { li { (outside_link(address, if name.is_empty() { address } else { name })) } } }
        }
        @if !facts.maintainers.is_empty() {
            h2 { "Maintainers" }
            ul { @for (name, mail) in &facts.maintainers { li { (name) " " span.soft { (mail) } } } }
        }
        @if let Some(details) = details {
            h2 { "Images" }
            ul {
                li { code { (details.image) } }
                @if !facts.container_image.is_empty() { li { code { (facts.container_image) } } }
            }
            @if !details.related_images.is_empty() {
                details {
                    summary { (counted(details.related_images.len(), "related image")) }
                    ul { @for image in &details.related_images { li { code { (image.image) } } } }
                }
            }
        }
    }
}
