# Paths and addresses. Sourced by hack/cluster.
# shellcheck shell=bash disable=SC2034

# su(1) keeps a user's PATH, which lacks the folders of ip, nft and runc.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

readonly cache_dir=${XDG_CACHE_HOME:-$HOME/.cache}/olm/cluster
readonly bin_dir=$cache_dir/bin${OLM_KUBERNETES:+-$OLM_KUBERNETES}

readonly node_name=olm-node
readonly bridge=olm0
readonly pod_cidr=10.244.0.0/24
readonly bridge_address=10.244.0.1
readonly service_cidr=10.96.0.0/16
readonly kubernetes_service_address=10.96.0.1
# The nft table and the CNI network.
readonly network=olm-cluster
readonly kind_name=olm

readonly registry_host=registry.olm.test
readonly registry_port=5000
readonly registry=$registry_host:$registry_port
readonly registry_address=$bridge_address:$registry_port
readonly pause_image=olm.test/pause:1

# select_backend PROFILE: sets $backend to the prefix of the functions of the
# commands (bare, kind or given), and the settings of PROFILE (node or
# control-plane). An existing cluster takes precedence over installed programs.
select_backend() {
  profile=$1
  local bare_dir=/var/lib/olm-cluster kind_dir=$cache_dir/kind
  if [[ $profile == control-plane ]]; then
    select_control_plane_only
    backend=bare
    state_dir=${OLM_CLUSTER_DIR:-$cache_dir/control-plane}
  else
    select_node
    if [[ ${OLM_USE_CLUSTER:-} == 1 ]]; then
      backend=given
    elif ! backend=$(cat "${OLM_CLUSTER_DIR:-$bare_dir}/.olm-cluster" 2>/dev/null ||
      cat "${OLM_CLUSTER_DIR:-$kind_dir}/.olm-cluster" 2>/dev/null); then
      if kind_usable; then backend=kind; else backend=bare; fi
    fi
    if [[ $backend == kind ]]; then
      state_dir=${OLM_CLUSTER_DIR:-$kind_dir}
    else
      state_dir=${OLM_CLUSTER_DIR:-$bare_dir}
    fi
  fi
  [[ $state_dir == /?* ]] || fail "OLM_CLUSTER_DIR must be an absolute path, got: $state_dir"
  run_dir=$state_dir/run
  log_dir=$state_dir/log
  pki_dir=$state_dir/pki
  config_dir=$state_dir/config
  containerd_dir=$state_dir/containerd
  containerd_socket=$containerd_dir/containerd.sock
  admin_kubeconfig=$state_dir/admin.kubeconfig
  kubectl_cache=$state_dir/kubectl-cache
}

select_node() {
  components=(etcd kube-apiserver containerd kube-controller-manager kube-scheduler
    kubelet kube-proxy coredns registry)
  api_address=$bridge_address
  api_port=6443
  # Not the default ports of etcd, which another etcd may use.
  etcd_port=12379
  etcd_peer_port=12380
  endpoint_reconciler=lease
}

select_control_plane_only() {
  components=(etcd kube-apiserver)
  api_address=127.0.0.1
  api_port=16443
  etcd_port=22379
  etcd_peer_port=22380
  # The endpoint of the kubernetes Service cannot be a loopback address.
  endpoint_reconciler=none
}
