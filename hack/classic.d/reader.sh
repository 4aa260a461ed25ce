# Sourced by hack/classic-test: access to the API server, and the rights of a user who may only read.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of hack/classic-test

# access_api: sets $api and $token for the prober, and writes the files by which our tool finds the registry.
access_api() {
  local cluster
  cluster=$(kubectl config view --raw --minify -o json | jq -c '.clusters[0].cluster')
  api=$(jq -r .server <<<"$cluster")
  jq -r '."certificate-authority-data" // empty | @base64d' <<<"$cluster" >"$run/ca.crt"
  [ -s "$run/ca.crt" ] || cp "$(jq -r '."certificate-authority"' <<<"$cluster")" "$run/ca.crt"
  service_account prober cluster-admin
  token=$(kubectl -n default create token prober --duration 12h)
  mkdir -p "$run/ca"
  cp "$OLM_REGISTRY_CA" "$run/ca/ca.crt"
  printf '[[registry]]\nprefix = "%s"\nlocation = "%s"\n' "$OLM_REGISTRY" "$OLM_REGISTRY_ADDRESS" >"$run/registries.conf"
}

# service_account NAME CLUSTERROLE: creates a ServiceAccount with these rights.
service_account() {
  kubectl -n default create serviceaccount "$1" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  kubectl create clusterrolebinding "classic-test-$1" --clusterrole "$2" --serviceaccount "default:$1" --dry-run=client -o yaml |
    kubectl apply -f - >/dev/null
}

# read_only PACKAGE: plans as a user who may read everything but Secrets, and fails if this user can begin a migration.
read_only() {
  local code=0 before after
  say "$1: a user who may only read"
  kubectl apply -f - >/dev/null <<'EOT'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: classic-test-reader}
rules:
- {apiGroups: [""], resources: [pods, services, configmaps, serviceaccounts, namespaces, nodes, events], verbs: [get, list, watch]}
- apiGroups: [operators.coreos.com, olm.operatorframework.io, apps, batch, policy, rbac.authorization.k8s.io, scheduling.k8s.io,
    apiextensions.k8s.io, apiregistration.k8s.io, admissionregistration.k8s.io, networking.k8s.io]
  resources: ["*"]
  verbs: [get, list, watch]
EOT
  service_account reader classic-test-reader
  kubectl config view --raw --minify --flatten -o json | jq --arg token "$(kubectl -n default create token reader --duration 1h)" \
    '.users[0].user = {$token}' >"$run/reader.kubeconfig"
  before=$(state "$1")
  KUBECONFIG=$run/reader.kubeconfig olm migrate scan -n "$(namespace_of "$1")" --ca-dir "$run/ca" >"$run/scan.log" 2>&1 || code=$?
  case $code in
  0 | 4) ;;
  *)
    echo "    $1: scan FAILED with status $code" | tee -a "$run/faults"
    sed 's/^/      /' "$run/scan.log"
    ;;
  esac
  if KUBECONFIG=$run/reader.kubeconfig olm migrate apply "$1" --yes --ca-dir "$run/ca" --accept "$accepted" \
    >"$run/apply.log" 2>&1; then
    echo "    $1: apply SUCCEEDED without rights" | tee -a "$run/faults"
  fi
  sed 's/^/      /' "$run/apply.log"
  after=$(state "$1")
  [ "$before" = "$after" ] || echo "    $1: apply without rights CHANGED the package" | tee -a "$run/faults"
  compare "$1" "after an apply without rights"
}

# state PACKAGE: prints the objects of classic OLM and the backups with their versions.
state() {
  kubectl -n "$(namespace_of "$1")" get subscriptions.operators.coreos.com,csv -o json |
    jq -c '[.items[] | [.kind, .metadata.uid, .spec]]'
  kubectl -n olmv1-system get secrets -o name | grep -c "olm-migrate-$(namespace_of "$1")\." || true
}
