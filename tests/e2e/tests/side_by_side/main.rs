//! What users see of OLM on a real cluster: tests that disturb nobody, so all of them run at the same time.

mod availability;
mod bundles;
mod catalog;
mod deadline;
mod definitions;
mod docs;
mod install;
mod metrics;
mod object_sets;
mod objects;
mod platform;
mod policies;
mod resolution;
mod revisions;
mod tool;
mod uninstall;
mod upgrade;
mod webhooks;
