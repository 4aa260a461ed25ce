//! `--from`: sequence of upgrades that start from an installed bundle.

use std::collections::BTreeSet;

use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_version::quote;

use super::model::{Graph, Node, Path, PathStep, Semantics};
use crate::package::similar;

impl Path {
    /// Computes the path from `installed`, the name or version of a bundle.
    ///
    /// # Errors
    /// The graph has no such bundle. The message names similar ones.
    pub(super) fn new(graph: &Graph, installed: &str) -> Result<Self, CliError> {
        let from = find(graph, installed)?;
        let successors =
            graph.edges.iter().filter(|edge| edge.from == from.bundle).map(|edge| edge.to.clone());
        let mut path = Self {
            from: from.bundle.clone(),
            successors: successors.collect(),
            steps: Vec::new(),
            stopped: None,
        };
        let mut visited = BTreeSet::from([from.bundle.as_str()]);
        let mut current = from;
        while let Some(next) = current.next.as_deref().and_then(|next| node(graph, next)) {
            // Classic OLM would install the dependencies.
            if let Some(property) = next.refused.as_ref().filter(|_| graph.semantics == Semantics::V1) {
                path.stopped = Some(format!(
                    "{} is next, but dependency mode Reject refuses it for property {property}",
                    next.bundle
                ));
                break;
            }
            if !visited.insert(&next.bundle) {
                path.stopped =
                    Some(format!("{} is on the path already: the edges form a cycle", next.bundle));
                break;
            }
            let edge = graph.edges.iter().find(|edge| edge.from == current.bundle && edge.to == next.bundle);
            path.steps.push(PathStep {
                bundle: next.bundle.clone(),
                version: next.version.clone(),
                by: edge.map(|edge| edge.by.clone()).unwrap_or_default(),
            });
            current = next;
        }
        Ok(path)
    }
}

/// Removes the bundles below `lowest`, the name or version of a bundle, with their edges.
///
/// # Errors
/// The graph has no such bundle. The message names similar ones.
pub(super) fn cut(graph: &mut Graph, lowest: &str) -> Result<(), CliError> {
    let lowest = find(graph, lowest)?.bundle.clone();
    // Nodes are in ascending order.
    let below = graph.nodes.iter().take_while(|node| node.bundle != lowest).count();
    let removed: BTreeSet<_> = graph.nodes.drain(..below).map(|node| node.bundle).collect();
    graph.edges.retain(|edge| !removed.contains(&edge.from) && !removed.contains(&edge.to));
    Ok(())
}

fn node<'a>(graph: &'a Graph, bundle: &str) -> Option<&'a Node> {
    graph.nodes.iter().find(|node| node.bundle == bundle)
}

fn find<'a>(graph: &'a Graph, installed: &str) -> Result<&'a Node, CliError> {
    let by_version = || graph.nodes.iter().find(|node| node.version.as_deref() == Some(installed));
    node(graph, installed).or_else(by_version).ok_or_else(|| {
        let names = graph.nodes.iter().map(|node| node.bundle.as_str());
        let (what, names) = similar(installed, names, "its bundles");
        let channel = graph.channel.as_ref().map(|channel| format!(" in channel {}", quote(channel)));
        CliError::no_candidate(format!(
            "package {} has no bundle {}{}; {what}: {}\n`resolve --installed NAME@VERSION` resolves the upgrade of a bundle that \
             is no longer in a catalog",
            quote(&graph.package),
            quote(installed),
            channel.unwrap_or_default(),
            listed(&names)
        ))
    })
}
