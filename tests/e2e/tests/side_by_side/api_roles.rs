//! Access of users to the APIs of an extension: a cluster administrator, a namespace administrator and a viewer.
//! All answers are those of the API server to requests of these users.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Api, Client, Config, ResourceExt};
use olm_e2e::{PATIENCE, Scenario, eventually};
use serde_json::{Value, json};

/// User in one namespace of a scenario, and another namespace in which it has no role.
struct User {
    name: String,
    resource: ApiResource,
    greetings: Api<DynamicObject>,
    elsewhere: Api<DynamicObject>,
}

impl User {
    /// User who has the built-in ClusterRole `role` in the scenario's namespace, or no role.
    async fn new(scenario: &Scenario, role: Option<&str>) -> Result<Self> {
        let namespace = &scenario.name;
        let name = format!("{namespace}-{}", role.unwrap_or("nobody"));
        if let Some(role) = role {
            let binding = json!({"metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
            let bindings: Api<RoleBinding> = scenario.cluster.within(namespace);
            bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        }
        let mut config = Config::infer().await?;
        config.auth_info.impersonate = Some(name.clone());
        let (client, resource) =
            (Client::try_from(config)?, sample_operator::greetings(&scenario.sample.group, "v1"));
        let greetings = |namespace: &str| Api::namespaced_with(client.clone(), namespace, &resource);
        let (greetings, elsewhere) = (greetings(namespace), greetings("default"));
        Ok(Self { name, resource, greetings, elsewhere })
    }

    async fn reads(&self) -> Result<bool> {
        allowed(self.greetings.list(&ListParams::default()).await.map(drop))
    }

    async fn reads_elsewhere(&self) -> Result<bool> {
        allowed(self.elsewhere.list(&ListParams::default()).await.map(drop))
    }

    async fn creates(&self) -> Result<bool> {
        self.creates_in(&self.greetings).await
    }

    async fn creates_elsewhere(&self) -> Result<bool> {
        self.creates_in(&self.elsewhere).await
    }

    /// Creates a greeting, unless this is forbidden.
    async fn creates_in(&self, api: &Api<DynamicObject>) -> Result<bool> {
        let mut greeting = DynamicObject::new("", &self.resource).data(json!({"spec": {"name": self.name}}));
        greeting.metadata.name = None;
        greeting.metadata.generate_name = Some("by-".to_owned());
        allowed(api.create(&PostParams::default(), &greeting).await.map(drop))
    }
}

/// Reports whether the API server permitted the request.
fn allowed(answer: kube::Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the answer is `expected`: roles are aggregated, and read by the authorizer, some time after a change.
async fn becomes(what: &str, expected: bool, mut ask: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    eventually(&format!("{what}: {expected}"), PATIENCE, async || {
        ensure!(ask().await? == expected, "still {}", !expected);
        Ok(())
    })
    .await
}

/// Names of the ClusterRoles of the extension, without those of the operator itself.
async fn api_roles(scenario: &Scenario) -> Result<Vec<String>> {
    let owned = ListParams::default().labels(&format!("{}={}", olm_api::labels::OWNER_NAME, scenario.name));
    let roles = scenario.cluster.all::<ClusterRole>().list(&owned).await?;
    let names = roles.items.iter().map(ResourceExt::name_any);
    Ok(names.filter(|name| name.starts_with("greetings.")).collect())
}

// docs/design/additions.md#api-roles; cases additions-r03, additions-r04
#[tokio::test(flavor = "multi_thread")]
async fn annotation_gives_built_in_roles_access_until_it_is_removed() -> Result<()> {
    let scenario = Scenario::new("api-roles", &["1.0.0", "1.1.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    let admin = User::new(&scenario, Some("admin")).await?;
    let viewer = User::new(&scenario, Some("view")).await?;
    ensure!(!admin.creates().await? && !admin.reads().await?);
    ensure!(!viewer.creates().await? && !viewer.reads().await?);
    ensure!(api_roles(&scenario).await?.is_empty());
    // The cluster administrator may do everything.
    scenario.greet("v1", &scenario.name, "first", json!({"name": "all"})).await?;

    scenario.annotate(json!({"aggregate-api-roles": "true"})).await?;
    scenario.wait_revision(2, "Succeeded", "True").await?;
    let group = &scenario.sample.group;
    let expected = ["admin", "crdview", "edit", "view"].map(|role| format!("greetings.{group}-v1-{role}"));
    ensure!(api_roles(&scenario).await? == expected);
    becomes("the namespace administrator creates", true, async || admin.creates().await).await?;
    becomes("the viewer reads", true, async || viewer.reads().await).await?;
    ensure!(admin.reads().await? && !viewer.creates().await?);
    ensure!(!admin.creates_elsewhere().await? && !admin.reads_elsewhere().await?);
    ensure!(!viewer.reads_elsewhere().await?);
    let greetings = scenario.greetings("v1", &scenario.name).list(&ListParams::default()).await?;
    ensure!(greetings.items.len() == 2, "{greetings:?}");

    // The roles are upgraded with the revision.
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;
    ensure!(admin.creates().await? && viewer.reads().await?);
    ensure!(api_roles(&scenario).await? == expected);

    scenario.annotate(json!({"aggregate-api-roles": null})).await?;
    scenario.wait_revision(4, "Succeeded", "True").await?;
    becomes("the namespace administrator creates", false, async || admin.creates().await).await?;
    becomes("the viewer reads", false, async || viewer.reads().await).await?;
    becomes("no API roles", true, async || Ok(api_roles(&scenario).await?.is_empty())).await?;

    scenario.annotate(json!({"aggregate-api-roles": "yes"})).await?;
    let note = scenario.wait_event("InvalidAnnotation").await?;
    ensure!(note.contains("aggregate-api-roles") && note.contains("true, false"), "{note}");
    scenario.finish().await
}

/// kubeconfig of a user, in `folder`.
fn kubeconfig(folder: &Path, user: &str) -> Result<PathBuf> {
    let text = std::fs::read_to_string(std::env::var("KUBECONFIG")?)?;
    let mut config: Value = serde_saphyr::from_str(&text)?;
    for entry in config["users"].as_array_mut().context("no users in kubeconfig")? {
        entry["user"]["as"] = json!(user);
    }
    let path = folder.join(user);
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

/// Runs `olm` with a kubeconfig. Returns its output.
fn olm(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let tool = std::env::var("OLM_TOOL").context("OLM_TOOL is not set; run hack/e2e")?;
    let output = Command::new(tool).args(arguments).env("KUBECONFIG", kubeconfig).output()?;
    if !output.status.success() {
        bail!("olm {arguments:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

// docs/design/additions.md#access-to-apis; cases additions-r05, additions-r06
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because cli/olm/tests/commands/changing/access.rs::granted_access_is_effective_and_listed proves it"]
async fn granted_access_is_effective_listed_and_revoked() -> Result<()> {
    let scenario = Scenario::new("api-grants", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let (admin, user) = (User::new(&scenario, Some("admin")).await?, User::new(&scenario, None).await?);
    let (name, folder) = (scenario.name.as_str(), tempfile::tempdir()?);
    let to = format!("user:{}", user.name);
    let api = format!("greetings.{}", scenario.sample.group);
    let root = PathBuf::from(std::env::var("KUBECONFIG")?);
    let as_admin = kubeconfig(folder.path(), &admin.name)?;
    let grant = ["rbac", "grant", name, "--to", &to, "--role", "view", "-n", name];
    let own = [&grant[..], &["--api", &api]].concat();
    ensure!(!user.reads().await?);
    namespace_administrator_without_access_is_refused(&as_admin, &grant, &own).await?;

    olm(&root, &[&grant[..], &["--dry-run=server"]].concat())?;
    ensure!(!user.reads().await?);
    let said = olm(&root, &grant)?;
    ensure!(said.contains("rolebinding") && said.contains(" created"), "{said}");
    becomes("the user reads", true, async || user.reads().await).await?;
    ensure!(!user.creates().await? && !user.reads_elsewhere().await?);
    ensure!(olm(&root, &grant)?.contains(" unchanged"));

    let who = || -> Result<Value> {
        Ok(serde_json::from_str(&olm(&root, &["rbac", "who", name, "-n", name, "-o", "json"])?)?)
    };
    let granted = format!("{name}-apis-view:user:{}", user.name);
    let expected = json!({"subject": {"kind": "User", "name": user.name}, "namespace": name, "access": "view",
        "apis": [api], "binding": {"kind": "RoleBinding", "name": granted},
        "role": {"kind": "Role", "name": granted}});
    let found = who()?;
    ensure!(found["holders"].as_array().is_some_and(|all| all.contains(&expected)), "{found}");
    ensure!(!holds(&found, &admin.name, "admin"), "{found}");

    scenario.cluster.delete(&scenario.cluster.within::<RoleBinding>(name), &granted).await?;
    scenario.cluster.delete(&scenario.cluster.within::<Role>(name), &granted).await?;
    becomes("the user reads", false, async || user.reads().await).await?;

    // With the annotation the namespace administrator has this access, and may grant it.
    scenario.annotate(json!({"aggregate-api-roles": "true"})).await?;
    becomes("the namespace administrator reads", true, async || admin.reads().await).await?;
    olm(&as_admin, &own)?;
    becomes("the user reads", true, async || user.reads().await).await?;
    let found = who()?;
    ensure!(holds(&found, &admin.name, "admin") && holds(&found, &user.name, "view"), "{found}");
    let own = olm(&as_admin, &["rbac", "who", name, "-n", name, "--api", &api])?;
    ensure!(own.contains(&user.name) && own.contains("cannot list ClusterRoleBindings"), "{own}");
    let nobody = kubeconfig(folder.path(), &user.name)?;
    let refused = olm(&nobody, &["rbac", "who", name, "--api", &api]).err().context("listed")?.to_string();
    ensure!(refused.contains("ask an administrator for the permission to list"), "{refused}");
    scenario.finish().await
}

async fn namespace_administrator_without_access_is_refused(
    as_admin: &Path,
    grant: &[&str],
    own: &[&str],
) -> Result<()> {
    eventually("grant is refused", PATIENCE, async || {
        let refused = olm(as_admin, own).err().context("granted")?.to_string();
        ensure!(refused.contains("ask an administrator to run this command"), "{refused}");
        Ok(())
    })
    .await?;
    let refused = olm(as_admin, grant).err().context("APIs were listed")?.to_string();
    ensure!(refused.contains("name them instead"), "{refused}");
    Ok(())
}

/// Tells from the output of `olm rbac who` whether the user has the access.
fn holds(who: &Value, user: &str, access: &str) -> bool {
    let mut all = who["holders"].as_array().into_iter().flatten();
    all.any(|holder| holder["subject"]["name"] == user && holder["access"] == access)
}
