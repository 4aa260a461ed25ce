//! Behavior of OLM on a real cluster: tests that affect only their own objects, and run concurrently.

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
