//! `olm console` in a real browser (docs/design/console.md#pages).

mod accessible;
mod browser;
mod graph;
mod hostile;
mod install;
mod keyboard;
mod packages;
mod rig;
mod without_script;
