//! Behavior of OLM on a real cluster: tests that affect only their own objects, and run concurrently. Tests start in the
//! order of their names: those that wait for a deadline stand in modules that sort first.

mod adoption;
mod api_roles;
mod api_services;
mod approvals;
mod availability;
mod bundle_run;
mod bundles;
mod by_label;
mod catalog;
mod classic;
mod cluster_object_sets;
mod crds;
mod deadline;
mod deadline_rollback;
mod docs;
mod gitops;
mod groups;
mod install;
mod metrics;
mod migrate;
mod objects;
mod platform;
mod policies;
mod resolution;
mod revisions;
mod shared_crds;
mod tool;
mod uninstall;
mod upgrade;
mod webhooks;
