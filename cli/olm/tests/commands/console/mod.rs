//! `olm console` in a real browser (docs/design/console.md#pages).

mod accessible;
mod apis;
mod browser;
mod changes;
mod extensions;
mod field;
mod graph;
mod hostile;
mod install;
mod journey;
mod keyboard;
mod live;
mod packages;
mod rig;
mod system;
mod without_script;
