# The cluster in Docker, by kind's documented commands; the registry is a
# container on kind's network, where Docker's DNS gives nodes and pods its name.
# shellcheck shell=bash disable=SC2154

kind_usable() {
  command -v kind >/dev/null && timeout 20 docker info >/dev/null 2>&1
}

kind_up() {
  claim_state_dir kind
  mkdir -p "$log_dir"
  if kind_well; then
    step "already up: kind cluster $kind_name"
    return
  fi
  find_kubectl
  make_ca
  make_registry_certificate
  if ! kind_exists; then
    step "creating the kind cluster $kind_name"
    kind create cluster --name "$kind_name" --config "$cluster_d/config/kind.yaml" \
      --kubeconfig "$admin_kubeconfig" --wait 180s
  else
    step "starting the kind cluster $kind_name"
    docker start "$kind_name-control-plane" >/dev/null
    kind export kubeconfig --name "$kind_name" --kubeconfig "$admin_kubeconfig"
  fi
  kind_start registry
  kind_trust_registry
  step "up: export KUBECONFIG=$admin_kubeconfig"
}

kind_exists() {
  kind get clusters 2>/dev/null | grep --quiet --line-regexp "$kind_name"
}

kind_well() {
  kind_exists && [[ $(docker inspect --format '{{.State.Running}}' \
    "$kind_name-control-plane" "$registry_host" 2>/dev/null | sort --unique) == true ]]
}

kind_trust_registry() {
  local node dir=/etc/containerd/certs.d/$registry
  for node in $(kind get nodes --name "$kind_name"); do
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

kind_start() {
  [[ $* == registry ]] || fail "with kind only the registry can be stopped and started, got: $*"
  if docker inspect "$registry_host" >/dev/null 2>&1; then
    docker start "$registry_host" >/dev/null
  else
    docker run --detach --name "$registry_host" --network kind \
      --publish "127.0.0.1:$registry_port:5000" --volume "$pki_dir:/pki:ro" \
      --env REGISTRY_HTTP_TLS_CERTIFICATE=/pki/registry.crt \
      --env REGISTRY_HTTP_TLS_KEY=/pki/registry.key \
      --env REGISTRY_STORAGE_DELETE_ENABLED=true registry:2 >/dev/null
  fi
  step "the registry is $registry (127.0.0.1:$registry_port)"
}

kind_stop() {
  [[ $* == registry ]] || fail "with kind only the registry can be stopped and started, got: $*"
  docker stop "$registry_host" >/dev/null
  step "stopped registry"
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
  rm -rf "$state_dir"
  step "down: kind cluster $kind_name and its registry are removed"
}

kind_status() {
  docker ps --all --filter "name=^$kind_name-" --filter "name=^$registry_host\$" \
    --format 'table {{.Names}}\t{{.Status}}'
  kind_well
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

# find_kubectl: sets $kubectl to the one that we built before, else to the
# user's, else to one that is built now.
find_kubectl() {
  kubectl=$bin_dir/kubectl
  if [[ ! -x $kubectl ]] && ! kubectl=$(command -v kubectl); then
    build_binaries
    kubectl=$bin_dir/kubectl
  fi
}
