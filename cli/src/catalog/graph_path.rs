//! `--from`: what an extension that has a certain bundle is upgraded to, one upgrade after the other.

use std::collections::BTreeSet;

use olm_version::quote;
use serde::Serialize;

use super::graph::{By, Graph, Node, Semantics};
use super::package::{listed, similar};
use crate::failure::Failure;

/// The upgrades that start from an installed bundle.
#[derive(Debug, Serialize)]
pub(super) struct Path {
    /// The installed bundle.
    pub(super) from: String,
    /// The bundles that may follow it directly, highest first.
    pub(super) successors: Vec<String>,
    /// What is installed one after the other if nothing else changes; empty where the bundle stays.
    pub(super) steps: Vec<PathStep>,
    /// Why there is no further step although there is an edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<String>,
}

/// An upgrade of a [`Path`].
#[derive(Debug, Serialize)]
pub(super) struct PathStep {
    pub(super) bundle: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// Which entries allow the step.
    pub(super) by: Vec<By>,
}

impl Path {
    /// The path from `installed`, a bundle's name or version.
    ///
    /// # Errors
    /// The graph has no such bundle; the message names similar ones.
    pub(super) fn new(graph: &Graph, installed: &str) -> Result<Self, Failure> {
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
            // Classic OLM would install what is required.
            if let Some(property) = next.refused.as_ref().filter(|_| graph.semantics == Semantics::V1) {
                path.stopped = Some(format!(
                    "{} would be next, but is refused in dependency mode Reject for property {property}",
                    next.bundle
                ));
                break;
            }
            if !visited.insert(&next.bundle) {
                path.stopped = Some(format!("{} was installed before: the edges form a circle", next.bundle));
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

    /// How `bundle` is marked: `installed`, or the number of the step that installs it.
    pub(super) fn mark(&self, bundle: &str) -> Option<String> {
        if self.from == bundle {
            return Some("installed".to_owned());
        }
        let step = self.steps.iter().position(|step| step.bundle == bundle)?;
        Some(format!("step {}", step + 1))
    }

    /// Whether the path leads from the one bundle straight to the other.
    pub(super) fn has(&self, from: &str, to: &str) -> bool {
        let all: Vec<_> = std::iter::once(self.from.as_str())
            .chain(self.steps.iter().map(|step| step.bundle.as_str()))
            .collect();
        all.windows(2).any(|pair| pair == [from, to])
    }
}

fn node<'a>(graph: &'a Graph, bundle: &str) -> Option<&'a Node> {
    graph.nodes.iter().find(|node| node.bundle == bundle)
}

fn find<'a>(graph: &'a Graph, installed: &str) -> Result<&'a Node, Failure> {
    let by_version = || graph.nodes.iter().find(|node| node.version.as_deref() == Some(installed));
    node(graph, installed).or_else(by_version).ok_or_else(|| {
        let names = graph.nodes.iter().map(|node| node.bundle.as_str());
        let (what, names) = similar(installed, names, "its bundles");
        let channel = graph.channel.as_ref().map(|channel| format!(" in channel {}", quote(channel)));
        Failure::no_candidate(format!(
            "package {} has no bundle {}{}; {what}: {}\n`resolve --installed NAME@VERSION` tells what follows a bundle that \
             is in no catalog any more",
            quote(&graph.package),
            quote(installed),
            channel.unwrap_or_default(),
            listed(&names)
        ))
    })
}
