//! End-to-end tests of the authoring commands with the real binary and a TLS registry: init, add, templates,
//! validate, migrate, build, push, and reading back. Each command also gets an input that it must reject.
mod adding;
mod bundles;
mod editing;
mod fixture;
mod local_paths;
mod mirror;
mod mirror_referrers;
mod mirror_tags;
mod pinning;
mod prune;
mod publishing;
mod refusals;
mod removing;
mod serving;
mod signing;
mod templates;
mod upgrades;
mod verify;
