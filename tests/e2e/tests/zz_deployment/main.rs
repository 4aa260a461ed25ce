//! How the servers run: in two replicas, behind a proxy, with other TLS settings, with few rights. Each test changes the
//! servers for everybody and puts them back, so each runs [`alone`]; the name of this folder sorts late.

mod install_script;
mod nodes;
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
