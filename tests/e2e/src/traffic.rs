//! Enforcement of NetworkPolicies. The networks of the clusters that `hack/` makes ignore them, so the tests translate
//! them to nftables. Other clusters must enforce them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt as _};

use crate::Cluster;

const TABLE: &str = "ip olm_network_policies";

/// Enforces the NetworkPolicies for the current pods until drop. Traffic from the node is allowed, as in every
/// cluster.
#[must_use = "policies are enforced while it lives"]
pub struct Enforced {
    /// Commands that enter the networks of the nodes.
    nodes: Vec<Vec<String>>,
}

impl Enforced {
    /// Enforces the current policies.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let everything = ListParams::default();
        let known = Known {
            policies: cluster.all::<NetworkPolicy>().list(&everything).await?.items,
            pods: cluster.all::<Pod>().list(&everything).await?.items,
            namespaces: cluster.all::<Namespace>().list(&everything).await?.items,
        };
        let (enforced, rules) = (Self { nodes: lax_nodes(cluster).await? }, known.table()?);
        enforced.nodes.iter().try_for_each(|node| load(node, &rules))?;
        Ok(enforced)
    }
}

impl Drop for Enforced {
    fn drop(&mut self) {
        for node in &self.nodes {
            // `hack/cluster up` removes a remaining table.
            let _ = load(node, &format!("table {TABLE}\ndelete table {TABLE}\n"));
        }
    }
}

/// Commands that enter the networks of nodes that do not enforce policies themselves: this machine with the bare
/// cluster, and nodes of kind without its network plugin.
async fn lax_nodes(cluster: &Cluster) -> Result<Vec<Vec<String>>> {
    if std::env::var_os("CONTAINERD_ADDRESS").is_some() {
        return Ok(vec![Vec::new()]);
    }
    let nodes = cluster.all::<Node>().list(&ListParams::default()).await?.items;
    let plugins = cluster.all::<DaemonSet>().list(&ListParams::default()).await?.items;
    let is_kind = nodes.iter().any(|node| {
        node.spec
            .as_ref()
            .and_then(|spec| spec.provider_id.as_deref())
            .is_some_and(|id| id.starts_with("kind://"))
    });
    if !is_kind || plugins.iter().any(|plugin| plugin.name_any() == "kindnet") {
        return Ok(Vec::new());
    }
    nodes.iter().map(|node| enter_container(&node.name_any())).collect()
}

/// Command that enters the network of a node of kind, which is a container of the same name.
fn enter_container(name: &str) -> Result<Vec<String>> {
    let found = Command::new("docker").args(["inspect", "--format", "{{.State.Pid}}", name]).output()?;
    ensure!(found.status.success(), "docker inspect {name}: {}", String::from_utf8_lossy(&found.stderr));
    let process = String::from_utf8(found.stdout)?;
    Ok(["nsenter", "--target", process.trim(), "--net"].map(str::to_owned).to_vec())
}

fn load(enter: &[String], rules: &str) -> Result<()> {
    let command: Vec<&str> = enter.iter().map(String::as_str).chain(["nft", "--file", "-"]).collect();
    let mut nft =
        Command::new(command[0]).args(&command[1..]).stdin(Stdio::piped()).spawn().context("nft")?;
    nft.stdin.take().context("no input")?.write_all(rules.as_bytes())?;
    ensure!(nft.wait()?.success(), "nft rejected:\n{rules}");
    Ok(())
}

/// Reports whether the pod can connect to the address.
pub fn connects(from: &Pod, address: &str, port: u16) -> Result<bool> {
    let process = process_of(from)?.to_string();
    let connect = format!("exec 3<>/dev/tcp/{address}/{port}");
    let status = Command::new("nsenter")
        .args(["--target", &process, "--net", "timeout", "5", "bash", "-c", &connect])
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}

/// Process of the pod on this machine, whose cgroup name contains the container ID.
fn process_of(pod: &Pod) -> Result<u32> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let id = statuses.unwrap_or_default().iter().find_map(|status| status.container_id.as_deref());
    let id = id.and_then(|id| id.split("//").nth(1)).context("the pod has no container")?;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        // The process may have exited.
        let cgroup = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && cgroup.contains(id)
        {
            return Ok(pid);
        }
    }
    bail!("no process of pod {} on this machine", pod.name_any())
}

/// Objects from which the rules are derived.
struct Known {
    policies: Vec<NetworkPolicy>,
    pods: Vec<Pod>,
    namespaces: Vec<Namespace>,
}

/// Direction of traffic of a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Known {
    /// Rules with one chain per direction of each selected pod. Traffic that no rule lets return is rejected.
    fn table(&self) -> Result<String> {
        let (mut chains, mut jumps) = (String::new(), [String::new(), String::new()]);
        for (number, pod) in self.pods.iter().enumerate() {
            let Some(address) = address(pod) else { continue };
            for (way, name, side) in [(Way::In, "in", "daddr"), (Way::Out, "out", "saddr")] {
                let Some(rules) = self.rules(pod, way)? else { continue };
                writeln!(chains, "  chain {name}_{number} {{\n{rules}    reject\n  }}")?;
                writeln!(jumps[way as usize], "    ip {side} {address} jump {name}_{number}")?;
            }
        }
        let [incoming, outgoing] = jumps;
        let known = "    ct state established,related accept";
        Ok(format!(
            "table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{chains}\
             \x20 chain forward {{\n    type filter hook forward priority 0;\n{known}\n{outgoing}{incoming}  }}\n\
             \x20 chain input {{\n    type filter hook input priority 0;\n{known}\n{outgoing}  }}\n}}\n"
        ))
    }

    /// Rules of the allowed traffic. `None` if no policy selects the pod.
    fn rules(&self, pod: &Pod, way: Way) -> Result<Option<String>> {
        let (mut is_selected, mut rules) = (false, String::new());
        for policy in self.policies.iter().filter(|policy| policy.namespace() == pod.namespace()) {
            let spec = policy.spec.as_ref().context("the policy has no spec")?;
            let kind = if way == Way::In { "Ingress" } else { "Egress" };
            let holds = spec.policy_types.iter().flatten().any(|held| held == kind);
            if !holds || !is_matched(spec.pod_selector.as_ref(), pod.labels())? {
                continue;
            }
            is_selected = true;
            let ingress = spec.ingress.iter().flatten().map(|rule| (&rule.from, &rule.ports));
            let egress = spec.egress.iter().flatten().map(|rule| (&rule.to, &rule.ports));
            let admitted: Vec<_> = if way == Way::In { ingress.collect() } else { egress.collect() };
            for (peers, ports) in admitted {
                self.admit(&mut rules, policy, way, peers.as_deref(), ports.as_deref())?;
            }
        }
        Ok(is_selected.then_some(rules))
    }

    fn admit(
        &self,
        rules: &mut String,
        policy: &NetworkPolicy,
        way: Way,
        peers: Option<&[NetworkPolicyPeer]>,
        ports: Option<&[NetworkPolicyPort]>,
    ) -> Result<()> {
        let side = if way == Way::In { "saddr" } else { "daddr" };
        let mut addresses = Vec::new();
        for peer in peers.unwrap_or_default() {
            addresses.extend(self.addresses(policy, peer)?);
        }
        let from = match (peers, addresses.is_empty()) {
            (None | Some([]), _) => String::new(),
            // No pod matches yet.
            (Some(_), true) => return Ok(()),
            (Some(_), false) => format!("ip {side} {{ {} }} ", addresses.join(", ")),
        };
        match ports {
            None | Some([]) => writeln!(rules, "    {from}return")?,
            Some(ports) => {
                for port in ports {
                    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
                    let Some(IntOrString::Int(number)) = port.port else {
                        bail!("{}: only numbers of ports are understood", policy.name_any());
                    };
                    writeln!(rules, "    {from}{protocol} dport {number} return")?;
                }
            }
        }
        Ok(())
    }

    /// Addresses of a peer: those of its pods, or its IP block.
    fn addresses(&self, policy: &NetworkPolicy, peer: &NetworkPolicyPeer) -> Result<Vec<String>> {
        if let Some(block) = &peer.ip_block {
            ensure!(block.except.is_none(), "{}: `except` is not understood", policy.name_any());
            return Ok(vec![block.cidr.clone()]);
        }
        let mut found = Vec::new();
        for pod in &self.pods {
            let is_in_namespace = match &peer.namespace_selector {
                None => pod.namespace() == policy.namespace(),
                Some(selector) => {
                    let of_pod = |namespace: &&Namespace| Some(namespace.name_any()) == pod.namespace();
                    let namespace = self.namespaces.iter().find(of_pod).context("unknown pod namespace")?;
                    is_matched(Some(selector), namespace.labels())?
                }
            };
            if is_in_namespace && is_matched(peer.pod_selector.as_ref(), pod.labels())? {
                found.extend(address(pod));
            }
        }
        Ok(found)
    }
}

fn is_matched(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> Result<bool> {
    let Some(selector) = selector else { return Ok(true) };
    Ok(Selector::try_from(selector.clone())?.matches(labels))
}

/// Pod IP address, if the pod has its own.
fn address(pod: &Pod) -> Option<String> {
    let is_on_node = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let status = pod.status.as_ref()?;
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    (!is_on_node && !has_ended).then(|| status.pod_ip.clone())?
}
