# The cluster in Docker, through documented commands of kind. The registry is a
# container on kind's network, where nodes and pods resolve its name with
# Docker's DNS.
# shellcheck shell=bash disable=SC2154

kind_usable() {
  command -v kind >/dev/null && timeout 20 docker info >/dev/null 2>&1
}

kind_up() {
  claim_state_dir kind
  mkdir -p "$log_dir"
  if kind_healthy; then
    kind_connect_nodes
    kind_check_nodes
    step "already up: kind cluster $kind_name"
    return
  fi
  find_kubectl
  make_ca ca /CN=olm-cluster-ca
  make_registry_certificate
  if [[ -e $state_dir/created ]]; then
    kind_fix
  else
    kind_create
  fi
  kind_start_registry
  kind_trust_registry
  kind_connect_nodes
  kind_wait "all nodes are ready" kind_nodes_ready
  kind_check_nodes
  step "up: export KUBECONFIG=$admin_kubeconfig"
}

kind_create() {
  local -a image=()
  local number
  [[ -z ${OLM_KIND_IMAGE:-} ]] || image=(--image "$OLM_KIND_IMAGE")
  [[ ${OLM_KIND_NODES:-1} =~ ^[1-9]$ ]] || fail "OLM_KIND_NODES must be from 1 to 9, got: $OLM_KIND_NODES"
  # Remains of a killed `up`, and a registry with a certificate of an earlier CA.
  ! kind_exists || kind delete cluster --name "$kind_name" --kubeconfig "$admin_kubeconfig"
  ! docker inspect "$registry_host" >/dev/null 2>&1 || docker rm --force --volumes "$registry_host" >/dev/null
  step "creating the kind cluster $kind_name, nodes: ${OLM_KIND_NODES:-1}"
  docker network inspect kind >/dev/null 2>&1 || touch "$state_dir/network-is-ours"
  raise_watches
  {
    kind_config
    for ((number = 1; number < ${OLM_KIND_NODES:-1}; number++)); do
      echo '- role: worker'
    done
  } >"$state_dir/kind.yaml"
  kind create cluster --name "$kind_name" --config "$state_dir/kind.yaml" \
    --kubeconfig "$admin_kubeconfig" "${image[@]}"
  touch "$state_dir/created"
}

# kind_config: prints the configuration. Kubelets 1.32 to 1.34 exit at two of the
# settings, because their feature gates are off by default.
kind_config() {
  local version=''
  [[ -z ${OLM_KIND_IMAGE:-} ]] || version=$(docker run --rm --entrypoint cat "$OLM_KIND_IMAGE" /kind/version)
  if [[ $version == v1.3[234].* ]]; then
    sed '/imagePullCredentialsVerificationPolicy/d; /crashLoopBackOff/d' "$cluster_d/config/kind.yaml"
  else
    cat "$cluster_d/config/kind.yaml"
  fi
}

# kind_check_nodes: fails unless the cluster has OLM_KIND_NODES nodes, which
# cannot change.
kind_check_nodes() {
  local count
  count=$(kind_nodes | wc -l)
  ((count == ${OLM_KIND_NODES:-$count})) ||
    fail "the kind cluster has $count nodes, not OLM_KIND_NODES=$OLM_KIND_NODES; take it down first"
}

# All nodes share the machine's limits of file watches, whose defaults are for one.
readonly watches=(fs/inotify/max_user_instances=1024 fs/inotify/max_user_watches=1048576)

# raise_watches: raises lower limits, if run by root.
raise_watches() {
  local limit name value now
  for limit in "${watches[@]}"; do
    name=${limit%=*} value=${limit#*=}
    now=$(</proc/sys/"$name")
    if ((now < value && EUID == 0)); then
      echo "$name $now" >>"$state_dir/watches"
      echo "$value" >/proc/sys/"$name"
    fi
  done
}

restore_watches() {
  local name value
  [[ -e $state_dir/watches ]] || return 0
  while read -r name value; do
    echo "$value" >/proc/sys/"$name"
  done <"$state_dir/watches"
}

# kind_fix: starts stopped nodes and processes.
kind_fix() {
  local node
  for node in $(kind_nodes); do
    if kind_running "$node"; then
      docker exec "$node" systemctl start containerd kubelet
    else
      step "starting node $node"
      docker start "$node" >/dev/null
    fi
  done
  kind_move_api_server '' manifests/
  kind export kubeconfig --quiet --name "$kind_name" --kubeconfig "$admin_kubeconfig"
  kind_wait "kube-apiserver is ready" kind_api_ready
}

kind_exists() {
  kind get clusters 2>/dev/null | grep --quiet --line-regexp "$kind_name"
}

kind_nodes() {
  kind get nodes --name "$kind_name" 2>/dev/null | LC_ALL=C sort
}

kind_running() {
  [[ $(docker inspect --format '{{.State.Running}}' "$1" 2>/dev/null) == true ]]
}

kind_kubectl() {
  timeout 20 "$kubectl" --kubeconfig "$admin_kubeconfig" --request-timeout 10s "$@"
}

kind_healthy() {
  [[ -e $state_dir/created ]] && find_kubectl && kind_api_ready && kind_nodes_ready && kind_registry_ready
} >/dev/null 2>&1

kind_api_ready() {
  kind_kubectl get --raw /readyz
}

kind_nodes_ready() {
  local node
  for node in $(kind_nodes); do
    kind_node_ready "$node" || return
  done
}

# kind_node_ready NODE: a lost node remains Ready until its Lease expires.
# Therefore its kubelet must have renewed the Lease recently, after its start.
kind_node_ready() {
  local started renewed ready
  started=$(docker inspect --format '{{.State.StartedAt}}' "$1") && kind_running "$1" || return 1
  ready=$(kind_kubectl get node "$1" --output jsonpath='{.status.conditions[?(@.type=="Ready")].status}') || return 1
  renewed=$(kind_kubectl get lease --namespace kube-node-lease "$1" --output jsonpath='{.spec.renewTime}') || return 1
  echo "node $1: Ready $ready, Lease renewed at $renewed"
  [[ $ready == True && $renewed > $started ]] && (($(date +%s) - $(date --date "$renewed" +%s) < 40))
}

# kind_wait WHAT COMMAND...: waits until COMMAND succeeds, for the time that a
# node may take to start, and prints WHAT.
kind_wait() {
  local deadline=$((SECONDS + 180)) what=$1 last=''
  shift
  until last=$("$@" 2>&1); do
    ((SECONDS < deadline)) || fail "timed out: $what; last output: ${last:-none}"
    sleep 0.5
  done
  step "$what"
}

# kind_connect_nodes: configures the network if the node image has no network
# plugin: each node has an address range for its pods and routes to the others,
# and masquerades packets that leave the pods' network.
kind_connect_nodes() {
  ! kind_kubectl --namespace kube-system get daemonset kindnet >/dev/null 2>&1 || return 0
  local node other address
  # shellcheck disable=SC2034 # used by the template
  local pod_subnet
  for node in $(kind_nodes); do
    kind_running "$node" || continue
    kind_wait "pods of $node have addresses" kind_pod_subnet "$node"
    pod_subnet=$(kind_pod_subnet "$node")
    render kind-network.conflist "$state_dir/kind-network.conflist"
    docker exec -i "$node" cp /dev/stdin /etc/cni/net.d/10-olm.conflist <"$state_dir/kind-network.conflist"
    address=$(docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}' "$node")
    for other in $(kind_nodes); do
      [[ $other == "$node" ]] || ! kind_running "$other" ||
        docker exec "$other" ip route replace "$pod_subnet" via "$address"
    done
    docker exec -i "$node" nft --file - <<'END'
table ip olm_masquerade
delete table ip olm_masquerade
table ip olm_masquerade {
  chain postrouting {
    type nat hook postrouting priority srcnat
    ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade
  }
}
END
  done
}

kind_pod_subnet() {
  kind_kubectl get node "$1" --output jsonpath='{.spec.podCIDR}' | grep .
}

kind_trust_registry() {
  local node dir=/etc/containerd/certs.d/$registry
  for node in $(kind_nodes); do
    docker exec "$node" mkdir -p "$dir"
    docker exec -i "$node" cp /dev/stdin "$dir/ca.crt" <"$pki_dir/ca.crt"
    docker exec -i "$node" cp /dev/stdin "$dir/hosts.toml" <<END
server = "https://$registry"
ca = "$dir/ca.crt"

[host."https://$registry"]
  ca = "$dir/ca.crt"
END
  done
}

kind_start_registry() {
  if docker inspect "$registry_host" >/dev/null 2>&1; then
    docker start "$registry_host" >/dev/null
  else
    docker run --detach --name "$registry_host" --network kind \
      --publish "127.0.0.1:$registry_port:5000" --volume "$pki_dir:/pki:ro" \
      --env REGISTRY_HTTP_TLS_CERTIFICATE=/pki/registry.crt \
      --env REGISTRY_HTTP_TLS_KEY=/pki/registry.key \
      --env REGISTRY_STORAGE_DELETE_ENABLED=true registry:2 >/dev/null
  fi
  kind_wait "the registry is $registry (127.0.0.1:$registry_port)" kind_registry_ready
}

kind_registry_ready() {
  timeout 5 openssl s_client -connect "127.0.0.1:$registry_port" -CAfile "$pki_dir/ca.crt" \
    -verify_return_error -verify_ip 127.0.0.1 </dev/null
}

# kind_move_api_server FROM TO: moves its manifest into or out of the folder of
# static pods, whose pods the kubelet runs.
kind_move_api_server() {
  # shellcheck disable=SC2016 # expanded in the node
  docker exec "$kind_name-control-plane" sh -euc 'test -e "$2" || mv "$1" "$2"' sh \
    "/etc/kubernetes/$1kube-apiserver.yaml" "/etc/kubernetes/$2kube-apiserver.yaml"
}

kind_start() {
  require_up
  find_kubectl
  local name
  for name in "$@"; do
    case $name in
      registry) kind_start_registry ;;
      kube-apiserver)
        kind_move_api_server '' manifests/
        kind_wait "kube-apiserver is ready" kind_api_ready
        ;;
      *)
        kind_require_node "$name"
        docker start "$name" >/dev/null
        kind_wait "kube-apiserver is ready" kind_api_ready
        kind_connect_nodes
        kind_wait "$name is ready" kind_node_ready "$name"
        ;;
    esac
  done
}

kind_stop() {
  require_up
  find_kubectl
  local name
  for name in "$@"; do
    case $name in
      registry) docker stop "$registry_host" >/dev/null ;;
      kube-apiserver)
        kind_move_api_server manifests/ ''
        kind_wait "kube-apiserver is stopped" kind_kill_api_server
        ;;
      *)
        kind_require_node "$name"
        docker stop --time 0 "$name" >/dev/null
        ;;
    esac
    step "stopped $name"
  done
}

# kind_kill_api_server: sends SIGKILL, which skips the graceful shutdown of 30 seconds. Succeeds if no process is left.
kind_kill_api_server() {
  ! docker exec "$kind_name-control-plane" pkill -KILL --exact kube-apiserver
}

kind_require_node() {
  kind_nodes | grep --quiet --line-regexp -- "$1" ||
    fail "no component $1; components: registry kube-apiserver $(kind_nodes | tr '\n' ' ')"
}

kind_down() {
  if [[ ! -e $state_dir/.olm-cluster ]]; then
    step "nothing to remove: $state_dir does not exist"
    return
  fi
  kind delete cluster --name "$kind_name" --kubeconfig "$admin_kubeconfig"
  if docker inspect "$registry_host" >/dev/null 2>&1; then
    docker rm --force --volumes "$registry_host" >/dev/null
  fi
  # Another kind cluster may use the network.
  [[ ! -e $state_dir/network-is-ours ]] || docker network rm kind >/dev/null || true
  restore_watches
  rm -rf "$state_dir"
  step "down: kind cluster $kind_name and its registry are removed"
}

kind_status() {
  find_kubectl
  local node code=0
  printf '%-24s %s\n' NAME STATE
  kind_state kube-apiserver kind_api_ready || code=1
  kind_state registry kind_registry_ready || code=1
  for node in $(kind_nodes); do
    kind_state "$node" kind_node_ready "$node" || code=1
  done
  return $code
}

# kind_state NAME COMMAND...: prints a line of the table. Fails unless COMMAND
# succeeds.
kind_state() {
  local name=$1 state=ready
  shift
  "$@" >/dev/null 2>&1 || state='not ready'
  printf '%-24s %s\n' "$name" "$state"
  [[ $state == ready ]]
}

kind_kubeconfig() {
  bare_kubeconfig
}

kind_env() {
  require_up
  find_kubectl
  print_path "$(dirname "$kubectl")"
  print_exports KUBECONFIG="$admin_kubeconfig" OLM_REGISTRY="$registry" \
    OLM_REGISTRY_ADDRESS="127.0.0.1:$registry_port" OLM_REGISTRY_CA="$pki_dir/ca.crt" \
    OLM_HOST_ADDRESS="$(kind_gateway)"
}

# kind_gateway: the address of this machine on kind's network.
kind_gateway() {
  docker network inspect kind \
    --format '{{range .IPAM.Config}}{{if .Gateway}}{{.Gateway}}{{"\n"}}{{end}}{{end}}' | grep --max-count=1 --invert-match :
}

kind_load() {
  local file
  for file in "$@"; do
    kind load image-archive "$file" --name "$kind_name"
  done
}

# find_kubectl: sets $kubectl to the built binary, to the one on PATH, or to a
# new build.
find_kubectl() {
  kubectl=$bin_dir/kubectl
  if [[ ! -x $kubectl ]] && ! kubectl=$(command -v kubectl); then
    build_binaries
    kubectl=$bin_dir/kubectl
  fi
}
