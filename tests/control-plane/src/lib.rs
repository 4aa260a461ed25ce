//! A real etcd and kube-apiserver on loopback, for tests that depend on an API server.
//!
//! RBAC and `OwnerReferencesPermissionEnforcement` are enabled. kube-controller-manager runs only with the
//! controllers of [`Options`]. Without them nothing collects garbage, finalizes namespaces or creates ServiceAccount
//! tokens. Every [`ControlPlane`] has its own ports and temporary directory. Its processes stop on drop, and when the
//! test process ends. Starting one takes 4 seconds of processor time; most tests use
//! [`ControlPlane::reused`]. For tests only.

mod candidate;
mod files;
pub mod ports;
mod process;
mod store;

pub use candidate::GoCandidate;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::runtime::wait::{await_condition, conditions::is_crd_established};
use kube::{Api, Client, Config};
use process::{Process, Programs, Watchdog};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::Store;
use tempfile::TempDir;

/// Program of the controllers.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Start deadline of the processes. Generous because tests share the machine with compilers.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// Deadline for a CRD to be accepted and established.
const CRD_DEADLINE: Duration = Duration::from_secs(60);
/// Deadline of one readiness probe of the API server.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// Folders with the data of etcd, and with its copy.
const ETCD_DATA: &str = "etcd";
const ETCD_BACKUP: &str = "etcd-backup";
/// Interval of the readiness probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Time limit of [`eventually`]. Generous for the same reason.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Shortest and longest interval of [`pause`].
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// Error of starting or using a control plane.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is missing.
    #[error("no {name}: {advice}")]
    Program {
        /// Name of the program.
        name: &'static str,
        /// How to get it.
        advice: &'static str,
    },
    /// A file, port or process could not be created.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// The certificate could not be generated.
    #[error("creating a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The kubeconfig that was just written could not be used.
    #[error("reading the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// A process exited, or was not ready in time.
    #[error("{name} {what}; the end of its log:\n{log}")]
    NotReady {
        /// Name of the process.
        name: &'static str,
        /// Problem of the process.
        what: String,
        /// End of its log.
        log: String,
    },
    /// The client could not be created.
    #[error("making a client: {0}")]
    Client(#[source] kube::Error),
    /// A CRD was rejected, or not established in time.
    #[error("CRD {name}: {message}")]
    Crd {
        /// Name of the CRD.
        name: String,
        /// Response of the server, or the elapsed time.
        message: String,
    },
    /// etcd did not answer as expected.
    #[error("etcd {0}")]
    Store(String),
    /// A CRD has no metadata.name.
    #[error("a CRD without metadata.name")]
    UnnamedCrd,
}

/// Components of a control plane in addition to etcd and kube-apiserver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Controllers of kube-controller-manager by its own names, such as [`HOUSEKEEPING`]. It is not started without
    /// any.
    pub controllers: &'static [&'static str],
}

/// Ends the test, or returns an error, if kube-controller-manager is missing.
pub fn check_controllers() -> Result<(), Error> {
    Programs::of_environment().command(CONTROLLER_MANAGER).map(drop)
}

/// Controllers that collect garbage, finalize namespaces and compute quotas.
pub const HOUSEKEEPING: &[&str] =
    &["garbage-collector-controller", "namespace-controller", "resourcequota-controller"];

/// Running etcd and kube-apiserver, with the components of [`Options`].
pub struct ControlPlane {
    // Dropped in this order: the watchdog, clients of the API server, the API server, its store, the files.
    _watchdog: Watchdog,
    /// kube-controller-manager with its arguments.
    controllers: Mutex<Option<(Process, Vec<String>)>>,
    apiserver: Mutex<Process>,
    apiserver_arguments: Vec<String>,
    etcd: Mutex<Process>,
    etcd_arguments: Vec<String>,
    etcd_address: String,
    client: Client,
    programs: Programs,
    kubeconfig: PathBuf,
    directory: TempDir,
}

/// Control plane that tests of this process use one after the other.
struct Reused {
    controllers: &'static [&'static str],
    crds: Vec<Value>,
    plane: Arc<ControlPlane>,
    initial: Store,
}

/// Idle ones have no other owner than this list.
static REUSED: Mutex<Vec<Reused>> = Mutex::new(Vec::new());

/// Calls `ask` until it returns a value.
///
/// # Panics
/// It returns none within [`PATIENCE`].
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "timed out: {what}");
        pause(start).await;
    }
}

/// Sleeps between two polls of a wait that began at `start`, for a tenth of the time since then. Frequent polls of long
/// waits would take the processor from the servers of all tests that run.
pub async fn pause(start: Instant) {
    let [shortest, longest] = POLL_INTERVALS;
    tokio::time::sleep((start.elapsed() / 10).clamp(shortest, longest)).await;
}

impl ControlPlane {
    /// Starts both processes and waits until the API server is ready.
    ///
    /// The programs are those in the folder `KUBEBUILDER_ASSETS`, or of the binary `OLM_CLUSTER_BINARY`, or of the one
    /// that `hack/cluster binary` builds. Ends the test if one is missing, see [`olm_require::skip`].
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(Options::default()).await
    }

    /// Starts the processes like [`Self::start`], with the components of `options`.
    pub async fn start_with(options: Options) -> Result<Self, Error> {
        if !options.controllers.is_empty() {
            check_controllers()?;
        }
        let programs = Programs::of_environment();
        let directory =
            tempfile::tempdir().map_err(|error| Error::Io("temporary directory".into(), error))?;
        let [client_port, peer_port, secure_port] =
            ports::free_ports().map_err(|error| Error::Io("free port".into(), error))?;
        files::write_credentials(directory.path())?;
        let kubeconfig = files::write_kubeconfig(directory.path(), secure_port)?;

        let etcd_arguments = etcd_arguments(directory.path(), client_port, peer_port);
        let etcd = Process::start(&programs, "etcd", directory.path(), &etcd_arguments, None)?;
        let watchdog = Watchdog::start(&etcd, directory.path())?;
        let apiserver_arguments = apiserver_arguments(directory.path(), client_port, secure_port);
        let apiserver =
            Process::start(&programs, "kube-apiserver", directory.path(), &apiserver_arguments, Some(&etcd))?;
        let plane = Self {
            _watchdog: watchdog,
            controllers: Mutex::default(),
            apiserver: Mutex::new(apiserver),
            apiserver_arguments,
            etcd: Mutex::new(etcd),
            etcd_arguments,
            etcd_address: format!("http://127.0.0.1:{client_port}"),
            client: connect(&kubeconfig).await?,
            programs,
            kubeconfig,
            directory,
        };
        plane.wait_until_ready().await?;
        if !options.controllers.is_empty() {
            plane.start_controllers(options.controllers)?;
        }
        Ok(plane)
    }

    /// Starts kube-controller-manager with these controllers. It looks for new kinds every 30 s: with CRDs that are
    /// applied later, it collects the garbage of objects that existed shorter only after minutes.
    pub fn start_controllers(&self, controllers: &[&str]) -> Result<(), Error> {
        self.run_controllers(controller_arguments(&self.kubeconfig, controllers))
    }

    fn run_controllers(&self, arguments: Vec<String>) -> Result<(), Error> {
        let (directory, etcd) = (self.directory.path(), lock(&self.etcd));
        let started = Process::start(&self.programs, CONTROLLER_MANAGER, directory, &arguments, Some(&etcd))?;
        *lock(&self.controllers) = Some((started, arguments));
        Ok(())
    }

    /// Control plane of an earlier test of this process, with these CRDs and nothing else. Starts one like
    /// [`Self::start_with`] if none is idle. It belongs to the test until the runtime of the test has ended, because
    /// tasks outlive fixtures.
    ///
    /// Not for tests with server processes: they may write while the next test runs.
    pub async fn reused(options: Options, crds: &[Value]) -> Result<Arc<Self>, Error> {
        let reused = match reset_idle(options, crds).await {
            Some(reset) => reset,
            None => {
                let plane = Self::start_with(options).await?;
                plane.apply_crds(crds).await?;
                let initial = Store::read(plane.etcd_address.clone(), &plane.client(), crds).await?;
                let crds = crds.to_vec();
                Reused { controllers: options.controllers, crds, plane: Arc::new(plane), initial }
            }
        };
        let plane = Arc::clone(&reused.plane);
        let owned = Arc::clone(&plane);
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(owned);
        });
        lock(&REUSED).push(reused);
        Ok(plane)
    }

    /// Prepares an idle control plane for another test.
    async fn reset(&mut self, initial: &Store) -> Result<(), Error> {
        for process in [&self.etcd, &self.apiserver] {
            lock(process).check_running()?;
        }
        if let Some((controllers, _)) = &mut *lock(&self.controllers) {
            controllers.check_running()?;
        }
        // A client stops with the runtime of the test that created it.
        self.client = connect(&self.kubeconfig).await?;
        initial.reset(&self.client()).await
    }

    /// Kills the API server with SIGKILL. etcd retains its data.
    pub fn kill_apiserver(&self) {
        lock(&self.apiserver).kill();
    }

    /// Restarts the API server after [`Self::kill_apiserver`], on the same port and etcd, and waits until it is
    /// ready.
    pub async fn start_apiserver(&self) -> Result<(), Error> {
        let directory = self.directory.path();
        let arguments = &self.apiserver_arguments;
        let started =
            Process::start(&self.programs, "kube-apiserver", directory, arguments, Some(&lock(&self.etcd)))?;
        *lock(&self.apiserver) = started;
        self.wait_until_ready().await
    }

    /// Copies the data of etcd, for [`Self::restore_etcd`].
    pub async fn back_up_etcd(&self) -> Result<(), Error> {
        self.replace_etcd(ETCD_DATA, ETCD_BACKUP)?;
        self.wait_until_ready().await
    }

    /// Restores the data of etcd that [`Self::back_up_etcd`] copied, and restarts the other components, whose caches are
    /// ahead of it.
    pub async fn restore_etcd(&self) -> Result<(), Error> {
        let controllers = lock(&self.controllers).take().map(|(_, arguments)| arguments);
        self.replace_etcd(ETCD_BACKUP, ETCD_DATA)?;
        self.kill_apiserver();
        self.start_apiserver().await?;
        controllers.map_or(Ok(()), |arguments| self.run_controllers(arguments))
    }

    /// Restarts etcd, and copies its data from one folder to another in between.
    fn replace_etcd(&self, from: &str, to: &str) -> Result<(), Error> {
        let directory = self.directory.path();
        let mut etcd = lock(&self.etcd);
        etcd.kill();
        let copy = || {
            let _ = std::fs::remove_dir_all(directory.join(to));
            Command::new("cp").arg("-a").arg(directory.join(from)).arg(directory.join(to)).status()
        };
        copy().map_err(|error| Error::Io("copying the data of etcd".into(), error))?;
        *etcd = Process::start(&self.programs, "etcd", directory, &self.etcd_arguments, Some(&etcd))?;
        Ok(())
    }

    /// Command that runs kubectl as administrator. Ends the test if kubectl is missing.
    pub fn kubectl(&self) -> Result<Command, Error> {
        let mut kubectl = self.programs.command("kubectl")?;
        kubectl.env("KUBECONFIG", &self.kubeconfig);
        Ok(kubectl)
    }

    /// Client with administrator rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Client of a user with the rights of that user and these groups. Without any, the API server adds the groups of a
    /// ServiceAccount.
    pub async fn client_of(&self, user: &str, groups: &[&str]) -> Result<Client, Error> {
        let mut config = config(&self.kubeconfig).await?;
        config.auth_info.impersonate = Some(user.to_owned());
        if !groups.is_empty() {
            config.auth_info.impersonate_groups =
                Some(groups.iter().map(|&group| group.to_owned()).collect());
        }
        Client::try_from(config).map_err(Error::Client)
    }

    /// Kubeconfig of the administrator. It is deleted with the control plane.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Applies CRDs and waits until their resources can be used.
    pub async fn apply_crds(&self, crds: &[Value]) -> Result<(), Error> {
        apply_crds(&self.client(), crds).await
    }

    async fn wait_until_ready(&self) -> Result<(), Error> {
        let deadline = Instant::now() + START_DEADLINE;
        while !is_ready(&self.client).await {
            lock(&self.etcd).check_running()?;
            lock(&self.apiserver).check_running()?;
            if Instant::now() > deadline {
                return Err(
                    lock(&self.apiserver).not_ready(format!("was not ready after {START_DEADLINE:?}"))
                );
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
        Ok(())
    }
}

/// Takes an idle control plane with these controllers and CRDs, and resets it.
async fn reset_idle(options: Options, crds: &[Value]) -> Option<Reused> {
    loop {
        let mut reused = idle(options, crds)?;
        let plane = Arc::get_mut(&mut reused.plane)?;
        match plane.reset(&reused.initial).await {
            Ok(()) => return Some(reused),
            Err(error) => println!("control plane is not reused: {error}"),
        }
    }
}

fn idle(options: Options, crds: &[Value]) -> Option<Reused> {
    let mut all = lock(&REUSED);
    let is_idle = |reused: &Reused| {
        let is_alike = reused.controllers == options.controllers && reused.crds == crds;
        is_alike && Arc::strong_count(&reused.plane) == 1
    };
    let index = all.iter().position(is_idle)?;
    Some(all.swap_remove(index))
}

/// Applies the CRDs to a cluster and waits until they are established.
pub async fn apply_crds(client: &Client, crds: &[Value]) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply("control-plane-test").force();
    for crd in crds {
        let name = crd["metadata"]["name"].as_str().ok_or(Error::UnnamedCrd)?;
        let apply = async {
            api.patch(name, &parameters, &Patch::Apply(crd)).await.map_err(|error| error.to_string())?;
            let established = await_condition(api.clone(), name, is_crd_established()).await;
            established.map(drop).map_err(|error| error.to_string())
        };
        tokio::time::timeout(CRD_DEADLINE, apply)
            .await
            .unwrap_or_else(|_| Err(format!("took longer than {CRD_DEADLINE:?}")))
            .map_err(|message| Error::Crd { name: name.to_owned(), message })?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(kubeconfig: &Path) -> Result<Client, Error> {
    Client::try_from(config(kubeconfig).await?).map_err(Error::Client)
}

async fn config(kubeconfig: &Path) -> Result<Config, Error> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Reports whether the server is ready and has created the default namespace.
async fn is_ready(client: &Client) -> bool {
    for path in ["/readyz", "/api/v1/namespaces/default"] {
        let Ok(request) = http::Request::get(path).body(Vec::new()) else {
            return false;
        };
        if !matches!(tokio::time::timeout(PROBE_DEADLINE, client.request_text(request)).await, Ok(Ok(_))) {
            return false;
        }
    }
    true
}

fn etcd_arguments(directory: &Path, client_port: u16, peer_port: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{client_port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        format!("--data-dir={}", directory.join(ETCD_DATA).display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data is deleted after the test, so that syncing to disk is useless.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn apiserver_arguments(directory: &Path, etcd_port: u16, secure_port: u16) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={secure_port}"),
        format!("--cert-dir={}", file("apiserver")),
        format!("--tls-cert-file={}", file(files::CERTIFICATE)),
        format!("--tls-private-key-file={}", file(files::KEY)),
        format!("--token-auth-file={}", file(files::TOKENS)),
        "--authorization-mode=RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned(),
        // No pods run, and no controller creates the ServiceAccounts that this plugin requires.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file(files::CERTIFICATE)),
        format!("--service-account-signing-key-file={}", file(files::KEY)),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
    ]
}

fn controller_arguments(kubeconfig: &Path, controllers: &[&str]) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={}", controllers.join(",")),
        "--leader-elect=false".to_owned(),
        // It serves nothing, and needs neither port nor certificate.
        "--secure-port=0".to_owned(),
        // Tests wait for the deletion of a namespace: about two requests for each resource of the API server.
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}
