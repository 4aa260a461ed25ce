use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use olm_api::ClusterExtension;
use olm_bundle::Certificates;
use olm_control_plane::ports::free_port;
use olm_controller_core::install_error::InstallErrorClass;
use olm_image::Image;
use olm_image::registry::Registry;
use olm_oci::{Config, ImageLimits, RegistryPaths};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use super::fixture::{HangingRegistry, digest, files, image, open};
use super::*;
use crate::features::Features;

fn features() -> Features {
    Features {
        single_own_namespace: false,
        deployment_config: true,
        multi_watch_namespaces: false,
        owned_api_services: false,
        impersonation: false,
        status_summary: false,
        extension_plans: false,
        certificates: Certificates::None,
        settings: olm_request::Settings::default(),
    }
}

fn request(config: Option<Value>) -> RenderRequest {
    RenderRequest {
        system_namespace: "olmv1-system".to_owned(),
        namespace: "ns".to_owned(),
        config,
        features: features(),
        operator_condition: false,
        aggregate_api_roles: false,
        namespaces: None,
    }
}

/// Returns the folder with the rendering of the extension `demo`.
fn demo(directory: &TempDir) -> PathBuf {
    directory.path().join(EXTENSIONS).join("demo")
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"x": "<\u{2028}&>"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_is_rendered_once_for_each_digest_and_options() {
    let directory = tempfile::tempdir().unwrap();
    let files = files("1.0.0", &[config_map()]);
    let (path, kept) =
        (demo(&directory), directory.path().join(IMAGES).join(digest(&files).replace(':', "-")));
    let image = image(&files);
    let bundles = open(directory.path());
    bundles.store_pulled(&files);
    let first = bundles.rendered("demo", &image, request(None)).await.unwrap();
    assert_eq!(first.objects[0]["metadata"], json!({"name": "settings", "namespace": "ns"}));
    assert_eq!((&first.failed_checks, &first.warnings), (&Vec::new(), &Vec::new()));

    // Neither the registry nor the files are available to render again.
    fs::remove_file(&kept).unwrap();
    assert_eq!(bundles.rendered("demo", &image, request(None)).await.unwrap(), first);
    let mut restarted = open(directory.path());
    assert_eq!(restarted.rendered("demo", &image, request(None)).await.unwrap(), first);

    restarted.store_pulled(&files);
    let moved = RenderRequest { namespace: "other".to_owned(), ..request(None) };
    let other = restarted.rendered("demo", &image, moved).await.unwrap();
    assert_eq!(other.objects[0]["metadata"]["namespace"], "other");

    // A rendering of another build is not used.
    let key = request(None).key(&digest(&files), &restarted.build_identity);
    let odd = Rendered { objects: vec![json!("odd")], image: first.image.clone(), ..Rendered::default() };
    checksummed_file::write(&path.join(RENDERED), &key, &serde_json::to_vec(&odd).unwrap()).unwrap();
    assert_eq!(restarted.rendered("demo", &image, request(None)).await.unwrap(), odd);
    restarted.build_identity = "newer".to_owned();
    assert_eq!(restarted.rendered("demo", &image, request(None)).await.unwrap(), first);

    assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "only the last rendering is stored");
    restarted.remove("demo").await.unwrap();
    restarted.remove("demo").await.unwrap();
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_rendering_is_rendered_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, files) = (demo(&directory).join(RENDERED), files("1.0.0", &[config_map()]));
    let bundles = open(directory.path());
    bundles.store_pulled(&files);
    let first = bundles.rendered("demo", &image(&files), request(None)).await.unwrap();
    let whole = fs::read(&path).unwrap();
    for damaged in [b"".to_vec(), whole[..whole.len() - 1].to_vec(), [whole.as_slice(), b" "].concat()] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(bundles.rendered("demo", &image(&files), request(None)).await.unwrap(), first);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

// docs/design/bundles.md#author-checks
#[tokio::test(flavor = "multi_thread")]
async fn faulty_bundle_is_rendered_once() {
    let directory = tempfile::tempdir().unwrap();
    let bundles = open(directory.path());
    let unsupported = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}});
    let (faulty, whole) = (files("1.0.0", &[unsupported]), files("1.0.0", &[]));
    bundles.store_pulled(&faulty);
    let rendered = async |config| bundles.rendered("demo", &image(&faulty), request(config)).await;
    let failure = rendered(None).await.unwrap_err();
    let UnusableBundle::Faulty(InstallError { class: InstallErrorClass::Retry, message }) = &failure else {
        panic!("{failure:?}")
    };
    assert!(message.contains("Gadget"), "{message}");
    assert!(!demo(&directory).join(RENDERED).exists());

    // Intact files under the same digest would succeed if they were read.
    let repair = || bundles.images.write(&digest(&faulty), &whole).unwrap();
    repair();
    assert_eq!(rendered(None).await.unwrap_err(), failure);
    let invalid = rendered(Some(json!({"unknown": 1}))).await.unwrap_err();
    let UnusableBundle::Faulty(InstallError { class: InstallErrorClass::InvalidConfiguration, .. }) =
        &invalid
    else {
        panic!("{invalid:?}")
    };
    assert!(rendered(Some(json!({}))).await.is_ok());
    // Only the last fault is cached.
    assert!(rendered(None).await.is_ok());
    bundles.store_pulled(&faulty);
    fs::remove_file(demo(&directory).join(RENDERED)).unwrap();
    assert_eq!(rendered(None).await.unwrap_err(), failure);
    bundles.remove("demo").await.unwrap();
    repair();
    assert!(rendered(None).await.is_ok());
}

// Images are stored by digest for all extensions, as long as one of them needs the image.
#[tokio::test(flavor = "multi_thread")]
async fn images_are_stored_while_an_extension_needs_them() {
    let directory = tempfile::tempdir().unwrap();
    let versions = ["1.0.0", "2.0.0", "3.0.0"].map(|version| files(version, &[config_map()]));
    let bundles = open(directory.path());
    versions.iter().for_each(|files| bundles.store_pulled(files));
    let [first, second, third] = versions.each_ref().map(image);
    let left = || fs::read_dir(directory.path().join(IMAGES)).unwrap().count();
    let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let sweep = |names: &[&str]| bundles.sweep(named(names));
    // Files pulled for one extension are used for all.
    bundles.rendered("a", &first, request(None)).await.unwrap();
    bundles.rendered("b", &first, request(None)).await.unwrap();
    sweep(&["a", "b", "late"]).await;
    assert_eq!(left(), 3, "the needs of the last extension are not known yet");
    bundles.need("late", [third.as_str(), "r.example/tagged:1", "not an image"].into_iter());
    sweep(&["a", "b", "late"]).await;
    assert_eq!(left(), 2);
    // An upgrade retains the installed image until it is replaced.
    bundles.store_pulled(&versions[1]);
    bundles.need("a", [first.as_str()].into_iter());
    bundles.rendered("a", &second, request(None)).await.unwrap();
    bundles.remove("b").await.unwrap();
    sweep(&["a", "late"]).await;
    assert_eq!(left(), 3);
    bundles.need("a", [second.as_str()].into_iter());
    sweep(&["a", "late"]).await;
    assert_eq!(left(), 2);
    // After a restart the needs are unknown until every extension was reconciled.
    let restarted = open(directory.path());
    restarted.need("a", [second.as_str()].into_iter());
    restarted.sweep(named(&["a", "late"])).await;
    assert_eq!(left(), 2);
    restarted.sweep(named(&["a"])).await;
    assert_eq!(left(), 1);
}

// docs/design/apply.md#extension-conditions, docs/design/api.md#condition-updates: equal texts, so that the status
// does not churn
#[tokio::test(flavor = "multi_thread")]
async fn unreachable_registry_gives_equal_messages() {
    let directory = tempfile::tempdir().unwrap();
    // A closed port, and a server that closes connections, from another client port each time.
    let closed = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let rude = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs_up = rude.local_addr().unwrap();
    // It closes after reading the request, so that the error is always the same. A reset would give another one.
    std::thread::spawn(move || {
        for connection in rude.incoming() {
            let _ = connection.and_then(|mut connection| connection.read(&mut [0; 16 * 1024]));
        }
    });
    for address in [closed, hangs_up] {
        let bundles = open(directory.path());
        let mut wakes = Box::pin(bundles.pulls.wakes::<ClusterExtension>());
        let image = format!("{address}/demo@sha256:{}", "0".repeat(64));
        let mut attempt = async || loop {
            match bundles.rendered("demo", &image, request(None)).await.unwrap_err() {
                UnusableBundle::Unavailable(failure) => break failure,
                UnusableBundle::Pulling(_) => drop(wakes.next().await),
                UnusableBundle::Faulty(failure) => panic!("{failure}"),
            }
        };
        let (first, second) = (attempt().await, attempt().await);
        assert_eq!(first.class, InstallErrorClass::Retry);
        assert!(!first.message.contains('\n') && first.message.contains(&address.to_string()), "{first}");
        assert_eq!(first, second);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_image_reference_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let unusable = open(directory.path()).rendered("demo", "NOT:an:image", request(None)).await.unwrap_err();
    let UnusableBundle::Unavailable(InstallError { class: InstallErrorClass::Blocked, .. }) = &unusable
    else {
        panic!("{unusable:?}")
    };
}

/// Opens bundles that trust this registry.
fn open_with(directory: &TempDir, registry: &Registry) -> Bundles {
    let certificates = directory.path().join("cas");
    fs::create_dir(&certificates).unwrap();
    registry.write_ca(&certificates).unwrap();
    let (cas_dir, paths) = (Some(certificates), RegistryPaths::default());
    let config = Config { cas_dir, paths, ..Config::new(ImageLimits::BUNDLE) };
    Bundles::open(directory.path(), Puller::new(config), &CancellationToken::new()).unwrap()
}

/// Timeout below the deadlines of pulls.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn hanging_registries_delay_no_other_registry() {
    let (directory, registry) = (tempfile::tempdir().unwrap(), Registry::start().await.unwrap());
    let bundles = open_with(&directory, &registry);
    let mut wakes = Box::pin(bundles.pulls.wakes::<ClusterExtension>());
    // More than one, so that they could occupy all slots.
    let hanging = [HangingRegistry::start().await, HangingRegistry::start().await];
    let names: Vec<String> = (0..40).map(|number| format!("hanging-{number}")).collect();
    let pulls = names.iter().enumerate().map(|(number, name)| {
        let registry = &hanging[number % 2];
        let image = if number < 20 { registry.image(name) } else { registry.tagged(name) };
        let bundles = &bundles;
        async move { bundles.rendered(name, &image, request(None)).await }
    });
    for outcome in timeout(SOON, join_all(pulls)).await.unwrap() {
        assert!(matches!(outcome, Err(UnusableBundle::Pulling(_))), "{outcome:?}");
    }
    let files = files("1.0.0", &[config_map()]);
    let digest = registry.add_image("good", "v1", &Image::bundle(&files).unwrap());
    for (name, reference) in [("digest", format!("good@{digest}")), ("tag", "good:v1".to_owned())] {
        let image = format!("{}/{reference}", registry.host());
        let rendered = async {
            loop {
                match bundles.rendered(name, &image, request(None)).await {
                    Err(UnusableBundle::Pulling(_)) => drop(wakes.next().await),
                    outcome => break outcome.unwrap(),
                }
            }
        };
        let rendered = timeout(SOON, rendered).await.unwrap();
        assert_eq!(rendered.objects[0]["metadata"]["name"], "settings");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unneeded_pull_is_cancelled() {
    let (directory, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let puller = Puller::new(Config::new(ImageLimits::BUNDLE));
    let bundles = Bundles::open(directory.path(), puller, &stop).unwrap();
    let (first, second) = (HangingRegistry::start().await, HangingRegistry::start().await);
    // The next pull starts when the cancelled one has ended. That end triggers a reconcile.
    let pull = async |registry: &HangingRegistry, image: &str| {
        while *registry.connections.borrow() != 1 {
            let outcome = bundles.rendered("demo", image, request(None)).await;
            assert!(matches!(outcome, Err(UnusableBundle::Pulling(_))), "{outcome:?}");
            tokio::task::yield_now().await;
        }
    };
    let ends = async {
        pull(&first, &first.image("a")).await;
        // The extension requests another image.
        pull(&second, &second.image("a")).await;
        first.until_connections(0).await;
        // The extension no longer needs the registry.
        let files = files("1.0.0", &[]);
        bundles.store_pulled(&files);
        bundles.pulls.release_unrequested("demo");
        bundles.rendered("demo", &image(&files), request(None)).await.unwrap();
        bundles.pulls.release_unrequested("demo");
        second.until_connections(0).await;
        // The extension is deleted.
        pull(&first, &first.tagged("a")).await;
        bundles.remove("demo").await.unwrap();
        first.until_connections(0).await;
        // The process stops.
        pull(&second, &second.image("a")).await;
        stop.cancel();
        second.until_connections(0).await;
    };
    timeout(SOON, ends).await.unwrap();
}

#[test]
fn keys_differ_with_every_input_of_rendering() {
    let key = |request: RenderRequest| request.key("sha256:1", "p");
    let with = |change: fn(&mut Features)| {
        let mut features = features();
        change(&mut features);
        RenderRequest { features, ..request(None) }
    };
    let all = [
        key(request(None)),
        request(None).key("sha256:2", "p"),
        request(None).key("sha256:1", "q"),
        key(request(Some(json!({})))),
        key(request(Some(json!({"watchNamespace": "x"})))),
        key(RenderRequest { namespace: "x".to_owned(), ..request(None) }),
        key(with(|features| features.single_own_namespace = true)),
        key(with(|features| features.deployment_config = false)),
        key(with(|features| features.owned_api_services = true)),
        key(with(|features| features.multi_watch_namespaces = true)),
        key(with(|features| features.certificates = Certificates::CertManager)),
        key(with(|features| features.certificates = Certificates::Builtin)),
        key(RenderRequest { operator_condition: true, ..request(None) }),
        key(RenderRequest { system_namespace: "other".to_owned(), ..request(None) }),
        key(RenderRequest { aggregate_api_roles: true, ..request(None) }),
    ];
    let different: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len());
    assert_eq!(
        key(with(|features| features.settings.best_effort = true)),
        all[0],
        "inputs without effect on rendering do not change the key"
    );
}

/// Renderings are hashed into revisions: reading one back must not change any digit.
#[tokio::test(flavor = "multi_thread")]
async fn field_bundles_are_read_back_equal_to_rendering() {
    let Some(data) = olm_require::field_data() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (bundles, mut count) = (open(directory.path()), 0);
    let mut took = [std::time::Duration::ZERO; 2];
    for entry in fs::read_dir(data.join("bundles")).unwrap() {
        let (root, mut files) = (entry.unwrap().path(), Files::new());
        for folder in BUNDLE_FOLDERS {
            for file in fs::read_dir(root.join(folder)).into_iter().flatten() {
                let path = file.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                files.insert(format!("{folder}/{name}"), fs::read(&path).unwrap());
            }
        }
        let name = root.file_name().unwrap().to_str().unwrap();
        bundles.store_pulled(&files);
        let certificates = Certificates::CertManager;
        let request = RenderRequest {
            features: Features { certificates, single_own_namespace: true, ..features() },
            ..request(None)
        };
        let rendered = async || {
            let start = std::time::Instant::now();
            let result = bundles.rendered(name, &image(&files), request.clone()).await;
            (result, start.elapsed())
        };
        let ((first, made), (again, read)) = (rendered().await, rendered().await);
        assert_eq!(first, again, "{name}");
        took = [took[0] + made, took[1] + read];
        count += usize::from(first.is_ok());
    }
    eprintln!("{count} bundles: rendered in {:?}, read back in {:?}", took[0], took[1]);
    assert!(count > 0);
}
