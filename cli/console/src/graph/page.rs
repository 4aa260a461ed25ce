//! Handler and markup of the graph page.

use axum::extract::{Path, Query};
use maud::{Markup, PreEscaped, html};
use olm_cli_catalog::graph::decision::DecisionInputs;
use olm_cli_catalog::graph::hint::hint;
use olm_cli_catalog::graph::svg::{View, svg};
use olm_cli_catalog::graph::{Graph, Node};
use olm_cli_catalog::package::CatalogPackage;
use olm_cli_core::error::CliError;

use super::state::{GraphState, ZOOM, given};
use crate::catalog::{channel_select, package_path};
use crate::page::{Page, PageError, Section};
use crate::visit::Visit;

/// Most bundles of one drawing. The number of edges grows with the square.
const MOST: usize = 600;

/// Most steps of a path that are named. The drawing has all.
const STEPS: usize = 6;

/// Upgrade graph of a package.
///
/// # Errors
/// The catalog, package, channel or installed bundle does not exist.
pub(super) async fn page(
    Visit { console, visitor }: Visit,
    Path((catalog, package)): Path<(String, String)>,
    Query(state): Query<GraphState>,
) -> Result<Page, PageError> {
    let content = console.library.content(&catalog, &console, &visitor).await?;
    let title = format!("Upgrade graph of {package}");
    let body = console.render(move || body(&catalog, &content.package(&package)?, &state)).await?;
    Ok(Page::new(Section::Catalog, title, body))
}

fn body(catalog: &str, package: &CatalogPackage, state: &GraphState) -> Result<Markup, CliError> {
    let installed = state.installed(package)?;
    let bundles = match given(&state.channel) {
        Some(channel) => package.channel(channel)?.entries.len(),
        None => package.content.bundles.len(),
    };
    let drawing = if bundles > MOST {
        let way = if state.channel.is_empty() { "choose a channel" } else { "use `olm catalog graph`" };
        html! { p.notice role="alert" { (bundles) " bundles are too many for one drawing: " (way) "." } }
    } else {
        let inputs = DecisionInputs {
            channel: given(&state.channel),
            version: given(&state.version),
            installed: installed.as_ref().map(|(name, version)| (name.as_str(), version.as_str())),
        };
        drawing(catalog, package, state, &Graph::decided(package, inputs)?)
    };
    Ok(html! {
        p.trail { a href="/" { "Packages" } " / " a href=(package_path(catalog, &package.name)) { (package.name) } }
        h1 { "Upgrade graph" }
        (form(catalog, package, state))
        (drawing)
    })
}

fn form(catalog: &str, package: &CatalogPackage, state: &GraphState) -> Markup {
    let offers = package.index.offers();
    let versions: Vec<(&str, Option<String>)> =
        offers.map(|offer| (offer.name(), package.version(offer.name()))).collect();
    let is_listed = versions.iter().any(|(name, _)| *name == state.installed);
    html! {
        form.choice method="get" action=(GraphState::default().address(catalog, &package.name)) {
            div { (channel_select(package, &state.channel)) }
            div {
                label for="installed" { "Installed" }
                select #installed name="installed" {
                    option value="" { "None: a new installation" }
                    @if !state.installed.is_empty() && !is_listed {
                        option value=(state.installed) selected { (state.installed) }
                    }
                    @for (name, version) in &versions {
                        option value=(name) selected[*name == state.installed] { (version.as_deref().unwrap_or(name)) }
                    }
                }
            }
            div {
                label for="version" { "Version range" }
                input #version type="text" name="version" value=(state.version) placeholder="any" spellcheck="false";
            }
            button type="submit" { "Show" }
        }
    }
}

fn drawing(catalog: &str, package: &CatalogPackage, state: &GraphState, graph: &Graph) -> Markup {
    let at = |state: GraphState| state.address(catalog, &package.name);
    let link = |node: &Node| at(GraphState { bundle: node.bundle.clone(), ..state.clone() });
    let view = View { link: Some(&link), selected: given(&state.bundle), zoom: Some(state.zoom()) };
    let zoomed = |percent: usize| {
        at(GraphState { zoom: percent.clamp(ZOOM[0], ZOOM[2]).to_string(), ..state.clone() })
    };
    let selected = graph.nodes.iter().find(|node| node.bundle == state.bundle);
    html! {
        (choice(graph))
        div.graph data-graph {
            div.drawing {
                p.zoom role="group" aria-label="Zoom" {
                    a.button.quiet href=(zoomed(state.zoom() / 2)) data-zoom="out" aria-label="Smaller" { "−" }
                    a.button.quiet href=(zoomed(state.zoom() * 2)) data-zoom="in" aria-label="Larger" { "+" }
                    a.button.quiet href=(zoomed(ZOOM[1])) data-zoom="reset" { "100 %" }
                    button.quiet type="button" data-zoom="fit" hidden { "Fit width" }
                    button.quiet type="button" data-print hidden { "Print" }
                }
                div.scroll tabindex="0" role="region" aria-label="Drawing" { (PreEscaped(svg(graph, &view))) }
            }
            aside #bundle tabindex="0" aria-label="Bundle" aria-live="polite" {
                h2 { "Bundle" }
                @match selected {
                    Some(node) => (details(&hint(graph, node))),
                    None => p.soft { "Point at a version, or move the focus to it, to see its upgrades and why it is chosen or not." },
                }
            }
        }
    }
}

/// Result of the resolver.
fn choice(graph: &Graph) -> Markup {
    let Some(decision) = &graph.decision else { return html! {} };
    let path = graph.path.as_ref().filter(|path| !path.steps.is_empty());
    html! {
        p.result {
            @match (&decision.chosen, path) {
                (_, Some(path)) if path.steps.len() > STEPS => {
                    "Upgrade path of " (path.steps.len()) " steps: " (path.from)
                    @for step in path.steps.iter().take(1) { " → " strong { (step.bundle) } }
                    @for step in path.steps.iter().rev().take(1) { " → … → " strong { (step.bundle) } }
                },
                (_, Some(path)) => {
                    "Upgrade path: " (path.from)
                    @for step in &path.steps { " → " strong { (step.bundle) } }
                },
                (Some(chosen), None) if graph.path.is_some() => { "The resolver keeps " strong { (chosen) } ": no upgrade is possible." },
                (Some(chosen), None) => { "The resolver chooses " strong { (chosen) } " for a new installation." },
                (None, None) => { "The resolver finds no bundle." },
            }
        }
        p.soft { "Computed for this catalog alone and with the default settings of OLM. On a cluster with other catalogs or settings, the choice may differ." }
        @if let Some(error) = &decision.error { p.notice role="alert" { (error) } }
        @if let Some(stopped) = path.and_then(|path| path.stopped.as_ref()) { p.notice { "The path ends: " (stopped) } }
        @for note in &graph.notes { p.notice { (note) } }
    }
}

/// Lines `Name: text` as a list. The first line is the name of the bundle.
fn details(hint: &str) -> Markup {
    let mut lines = hint.lines();
    html! {
        p { strong { (lines.next().unwrap_or_default()) } }
        dl.pairs {
            @for line in lines {
                @let (name, text) = line.split_once(": ").unwrap_or(("Note", line));
                dt { (name) }
                dd { (text) }
            }
        }
    }
}
