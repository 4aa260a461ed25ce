//! `olm console` in a real browser (docs/design/console.md#pages).

mod accessible;
mod browser;
mod changes;
mod extensions;
mod graph;
mod hostile;
mod install;
mod keyboard;
mod live;
mod packages;
mod rig;
mod without_script;
