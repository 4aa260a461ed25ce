//! Deployment variants of the servers: two replicas, a proxy, TLS settings, limited rights. Each test changes the
//! servers for the whole cluster and restores them, so that it must run [`alone`]. The name of this folder sorts
//! late.

mod console;
mod install_script;
mod nodes;
mod operator_conditions;
mod proxy;
mod replicas;
mod rights;
mod tls;
mod traffic;

use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}
