# The cluster on the bare machine: processes with one state directory. Each
# bare_NAME is the command NAME of hack/cluster.
# shellcheck shell=bash disable=SC2154

bare_up() {
  claim_state_dir bare
  mkdir -p "$run_dir" "$log_dir" "$config_dir"
  if [[ $profile == node ]]; then
    # A killed e2e test leaves them. They reject connections of pods with the same addresses.
    nft delete table ip olm_network_policies 2>/dev/null || true
  fi
  if components_alive && ready_kube_apiserver >/dev/null 2>&1; then
    step "already up: $state_dir"
    return
  fi
  if [[ $profile == node ]]; then
    install_packages
  fi
  build_binaries
  make_pki
  if [[ $profile == node ]]; then
    prepare_node
  fi
  start_components
  step "up: export KUBECONFIG=$admin_kubeconfig"
}

# claim_state_dir BACKEND: marks the directory as created by hack/cluster,
# because `down` removes it.
claim_state_dir() {
  local marker=$state_dir/.olm-cluster
  [[ ! -e $marker ]] || return 0
  [[ $state_dir =~ ^[A-Za-z0-9/._-]+$ ]] ||
    fail "the path of the state directory may contain letters, digits and /._-, got: $state_dir"
  if [[ -e $state_dir ]]; then
    [[ -d $state_dir && -z $(ls -A "$state_dir") ]] ||
      fail "$state_dir is not empty and was not created by hack/cluster; set another OLM_CLUSTER_DIR"
  fi
  mkdir -p "$state_dir"
  chmod 700 "$state_dir"
  [[ $(stat --file-system --format=%T "$state_dir") != overlayfs ]] ||
    fail "$state_dir is on an overlay file system, which cannot hold those of containers; set OLM_CLUSTER_DIR"
  echo "$1" >"$marker"
}

components_alive() {
  local name
  for name in "${components[@]}"; do
    process_alive "$name" || return 1
  done
}

# prepare_node: writes configuration files and configures the machine.
prepare_node() {
  step "preparing the machine: $state_dir, bridge $bridge"
  # shellcheck disable=SC2034 # used by the Corefile
  local name forward=''
  if grep -qs '^nameserver' /etc/resolv.conf; then
    # shellcheck disable=SC2034
    forward='forward . /etc/resolv.conf'
  fi
  mkdir -p "$containerd_dir" "$config_dir/cni"
  for name in containerd.toml registry.yaml kubelet.yaml kube-proxy.yaml Corefile network.nft; do
    render "$name" "$config_dir/$name"
  done
  render cni.conflist "$config_dir/cni/olm.conflist"
  for name in "$registry" "$registry_address"; do
    mkdir -p "$config_dir/registries/$name"
    render registry-hosts.toml "$config_dir/registries/$name/hosts.toml"
  done
  if ! process_alive containerd; then
    stop_process kubelet
    remove_pods
  fi
  prepare_machine
}

# render TEMPLATE FILE: writes config/TEMPLATE with each @name@ replaced by the
# variable of that name.
render() {
  local text name
  text=$(<"$cluster_d/config/$1")
  while [[ $text =~ @([a-z_]+)@ ]]; do
    name=${BASH_REMATCH[1]}
    text=${text//"@$name@"/"${!name}"}
  done
  printf '%s\n' "$text" >"$2"
}

start_components() {
  local name
  step "starting ${components[*]}"
  for name in "${components[@]}"; do
    case $name in
      etcd | kube-apiserver | containerd) start_component "$name" ;;
    esac
  done
  wait_until_ready etcd
  wait_until_ready kube-apiserver
  step "kube-apiserver is ready: https://$api_address:$api_port"
  [[ $profile == node ]] || return 0

  wait_until_ready containerd
  load_pause_image
  admin_kubectl apply --filename "$cluster_d/config/coredns-rbac.yaml" >/dev/null
  for name in "${components[@]}"; do
    start_component "$name"
  done
  for name in "${components[@]}"; do
    wait_until_ready "$name"
  done
  step "node $node_name is Ready, DNS is on $bridge_address, the registry is $registry ($registry_address)"
}

bare_down() {
  if [[ ! -e $state_dir/.olm-cluster ]]; then
    step "nothing to remove: $state_dir does not exist"
    return
  fi
  step "stopping ${components[*]}"
  local i
  for ((i = ${#components[@]} - 1; i >= 0; i--)); do
    stop_process "${components[i]}"
  done
  if [[ $profile == node ]]; then
    step "removing pods, mounts and network"
    remove_pods
    restore_machine
  fi
  rm -rf --one-file-system "$state_dir"
  step "down: $state_dir is removed"
}

bare_status() {
  local name pid ok=0
  printf '%-24s %-8s %s\n' NAME PID STATE
  for name in "${components[@]}"; do
    if ! pid=$(process_pid "$name"); then
      printf '%-24s %-8s %s\n' "$name" - 'not running'
      ok=1
    elif "ready_${name//-/_}" >/dev/null 2>&1; then
      printf '%-24s %-8s %s\n' "$name" "$pid" ready
    else
      printf '%-24s %-8s %s\n' "$name" "$pid" 'not ready'
      ok=1
    fi
  done
  printf 'state and logs: %s\n' "$state_dir"
  return $ok
}

require_up() {
  [[ -e $admin_kubeconfig ]] || fail "no cluster in $state_dir; run hack/cluster up"
}

bare_kubeconfig() {
  require_up
  echo "$admin_kubeconfig"
}

bare_env() {
  require_up
  print_exports KUBECONFIG="$admin_kubeconfig" KUBECACHEDIR="$kubectl_cache"
  print_path "$bin_dir"
  [[ $profile == node ]] || return 0
  print_exports OLM_REGISTRY="$registry" OLM_REGISTRY_ADDRESS="$registry_address" \
    OLM_REGISTRY_CA="$pki_dir/ca.crt" OLM_HOST_ADDRESS="$bridge_address" \
    CONTAINERD_ADDRESS="$containerd_socket" CONTAINERD_NAMESPACE=k8s.io
}

# print_exports NAME=VALUE...: prints lines for eval.
print_exports() {
  local pair
  for pair in "$@"; do
    printf 'export %s=%q\n' "${pair%%=*}" "${pair#*=}"
  done
}

# print_path DIR: prints a line for eval that prepends DIR to PATH.
print_path() {
  # shellcheck disable=SC2016 # expanded by eval
  printf 'export PATH=%q:"$PATH"\n' "$1"
}

bare_load() {
  require_up
  [[ $profile == node ]] || fail "--control-plane-only has no node to load images into"
  local file
  for file in "$@"; do
    load_image "$file"
  done
}

# require_components NAME...: fails unless each NAME is a component.
require_components() {
  local name
  for name in "$@"; do
    [[ " ${components[*]} " == *" $name "* ]] ||
      fail "no component $name; components: ${components[*]}"
  done
}

bare_stop() {
  require_up
  require_components "$@"
  local name
  for name in "$@"; do
    stop_process "$name"
    step "stopped $name"
  done
}

bare_start() {
  require_up
  require_components "$@"
  local name
  for name in "$@"; do
    start_component "$name"
    wait_until_ready "$name"
    step "$name is ready"
  done
}
