# An existing cluster: OLM_USE_CLUSTER=1 and KUBECONFIG.
# shellcheck shell=bash disable=SC2154

given_up() {
  given_context
  "$kubectl" --request-timeout 20s get nodes >&2 || fail "the cluster of KUBECONFIG does not respond"
  step "OLM_REGISTRY must name a registry that its pods reach: ${OLM_REGISTRY:-not set}"
}

# given_context: prints which cluster is used before anything changes it.
given_context() {
  [[ -n ${KUBECONFIG:-} ]] || fail "OLM_USE_CLUSTER=1 needs KUBECONFIG"
  find_kubectl
  local context
  context=$("$kubectl" config current-context) || fail "KUBECONFIG=$KUBECONFIG has no current context"
  step "using the cluster of KUBECONFIG=$KUBECONFIG, context $context"
}

given_down() {
  given_context
  step "retained: hack/cluster did not create it"
}

given_status() {
  given_context
  "$kubectl" --request-timeout 20s get nodes
}

given_kubeconfig() {
  [[ -n ${KUBECONFIG:-} ]] || fail "OLM_USE_CLUSTER=1 needs KUBECONFIG"
  echo "$KUBECONFIG"
}

given_env() {
  given_context
  print_exports KUBECONFIG="$KUBECONFIG"
  print_path "$(dirname "$kubectl")"
}

given_load() {
  fail "cannot load images into the cluster of KUBECONFIG; push them to a registry that it reaches"
}

given_start() {
  fail "cannot start or stop processes of the cluster of KUBECONFIG"
}

given_stop() {
  given_start
}
