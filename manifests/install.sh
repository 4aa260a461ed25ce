#!/usr/bin/env bash
# Installs, upgrades or uninstalls OLM on the cluster of the current kubectl context.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
usage: install.sh [-n NAMESPACE] [--variant VARIANT] [--no-cert-manager] [--dry-run] [--uninstall [--purge]]

Installs catalogd and operator-controller from the manifest beside this script, or upgrades them. A second run changes
nothing.
  -n NAMESPACE        namespace of the servers (default: olmv1-system). An existing namespace must have the label
                      app.kubernetes.io/part-of=olm
  --variant VARIANT   manifest to apply: install (default), hardened, install-cert-manager or experimental
  --no-cert-manager   do not install cert-manager and do not wait for it, because its Deployments have other names
  --dry-run           run the checks, then print the objects that would be applied, or list what --uninstall would delete
  --uninstall         delete the servers and the ClusterCatalogs, keep the CRDs; refused while ClusterExtensions exist, or
                      a migration from classic OLM is unfinished
  --purge             with --uninstall: also delete all ClusterExtensions with their objects, and the CRDs
  -h, --help          print this text

Environment:
  INSTALL_DEFAULT_CATALOGS  false: do not apply the community catalog (default: true)
  CATALOG_WAIT_TIMEOUT      timeout until the catalogs are served (default: 60s)
  SERVER_WAIT_TIMEOUT       timeout for the rollout of each server (default: 5m)
  MANIFEST                  file to apply instead of the manifest of the variant
  DEFAULT_CATALOG           file with the ClusterCatalogs to apply (default: default-catalogs.yaml)
  CERT_MGR_MANIFEST         file or URL of cert-manager, to install it where a variant needs it and it is missing
EOT
}

fail() {
  printf 'Error: %s\n' "$1" >&2
  exit 1
}

namespace=olmv1-system variant=install cert_manager=yes dry_run=no uninstall=no purge=no
while [ $# -gt 0 ]; do
  case $1 in
  -n | --variant)
    [ -n "${2:-}" ] || fail "$1 needs a value"
    if [ "$1" = -n ]; then namespace=$2; else variant=$2; fi
    shift
    ;;
  --no-cert-manager) cert_manager=no ;;
  --dry-run) dry_run=yes ;;
  --uninstall) uninstall=yes ;;
  --purge) purge=yes ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    echo "Unknown option $1; see install.sh -h" >&2
    exit 1
    ;;
  esac
  shift
done
case $variant in
install | hardened) cert_manager=no ;;
install-cert-manager | experimental) ;;
*) fail "unknown variant $variant; use install, hardened, install-cert-manager or experimental" ;;
esac
case $namespace in
default | kube-*) fail "namespace $namespace is not allowed: the network policies of OLM would deny the traffic of its pods" ;;
*[!a-z0-9-]* | -* | *-) fail "invalid namespace name: $namespace" ;;
esac
[ $purge = no ] || [ $uninstall = yes ] || fail "--purge requires --uninstall"
manifest=${MANIFEST-$folder/$variant.yaml} default_catalogs=${DEFAULT_CATALOG-$folder/default-catalogs.yaml}
[ -n "$manifest" ] || fail "Missing required MANIFEST variable"
[ -r "$manifest" ] || fail "cannot read $manifest"

readonly group=olm.operatorframework.io servers="catalogd operator-controller"

# objects: prints the manifest with the chosen namespace.
objects() {
  sed "s/olmv1-system/$namespace/g" "$manifest"
}

apply() {
  kubectl apply --server-side --field-manager olmv1-install --force-conflicts -f "$@"
}

# existing KIND: prints the names of all objects of a kind, or nothing if its CRD does not exist.
existing() {
  local crd
  crd=$(kubectl get crd "$1.$group" --ignore-not-found -o name) || return
  [ -z "$crd" ] || kubectl get "$1.$group" -o name
}

# check: fails unless all preconditions are met. It changes nothing.
check() {
  local minor foreign namespaces other others='' owners
  minor=$(kubectl get --raw /version | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p')
  [ "${minor:-0}" -ge 30 ] || fail "Kubernetes 1.30 or newer is required; this cluster runs 1.$minor"
  kubectl auth can-i '*' '*' --all-namespaces --quiet || fail "cluster-admin permissions are required"
  foreign=$(kubectl get namespaces --field-selector "metadata.name=$namespace" -l app.kubernetes.io/part-of!=olm -o name)
  [ -z "$foreign" ] ||
    fail "namespace $namespace exists without the label app.kubernetes.io/part-of=olm. The network policies \
of OLM would deny the traffic of its pods, and --uninstall would delete it. Choose another namespace with -n, or label this \
one: kubectl label namespace $namespace app.kubernetes.io/part-of=olm"
  # Leases are per namespace, so two installations would both lead and write the same objects. Only Deployments in labeled
  # namespaces count, because many users may create a Deployment of such a name, but few may label a namespace.
  namespaces=$(kubectl get namespaces -l app.kubernetes.io/part-of=olm -o jsonpath='{.items[*].metadata.name}')
  for other in $namespaces; do
    [ "$other" = "$namespace" ] ||
      others+=$(kubectl -n "$other" get deployments {catalogd,operator-controller}-controller-manager --ignore-not-found \
        -o jsonpath='{range .items[*]} {.metadata.namespace}/{.metadata.name}{end}')
  done
  [ -z "$others" ] || fail "OLM is installed in another namespace:$others"
  owners=$(kubectl get crd "clusterextensions.$group" "clustercatalogs.$group" --ignore-not-found \
    -o jsonpath='{range .items[*]}{.metadata.ownerReferences[*].name}{.metadata.annotations.meta\.helm\.sh/release-name}{end}')
  [ -z "$owners" ] || fail "the CRDs of OLM are managed by $owners, which would revert changes; upgrade OLM with $owners instead"
}

# within_a_minute COMMAND...: runs COMMAND every 5 s until it succeeds, and fails after a minute.
within_a_minute() {
  for _ in {1..12}; do
    "$@" && return
    sleep 5
  done
  fail "timed out after a minute: $*"
}

# webhook_has_ca KIND: succeeds if cert-manager's webhook configuration of this kind has a CA bundle. Without it, the API
# server cannot call the webhook and rejects every Certificate.
webhook_has_ca() {
  [ -n "$(kubectl get "$1" cert-manager-webhook -o jsonpath='{.webhooks[*].clientConfig.caBundle}')" ]
}

prepare_cert_manager() {
  local deployment
  if kubectl get crd certificates.cert-manager.io >/dev/null 2>&1 &&
    kubectl -n cert-manager get deployment cert-manager-webhook cert-manager-cainjector >/dev/null 2>&1; then
    echo "cert-manager is already installed, skipping installation"
  else
    [ -n "${CERT_MGR_MANIFEST:-}" ] || fail "Missing CERT_MGR_MANIFEST variable: cert-manager is not installed; set it to a file or URL"
    kubectl apply -f "$CERT_MGR_MANIFEST"
  fi
  for deployment in cert-manager-webhook cert-manager-cainjector cert-manager; do
    kubectl -n cert-manager wait "deployment/$deployment" --for condition=Available --timeout 60s
  done
  within_a_minute webhook_has_ca mutatingwebhookconfiguration
  within_a_minute webhook_has_ca validatingwebhookconfiguration
}

# in_time COMMAND...: runs COMMAND. If it fails, prints the pods and the last Events of the servers, and fails.
in_time() {
  "$@" && return
  {
    kubectl -n "$namespace" get pods -o wide
    kubectl -n "$namespace" get events --sort-by .lastTimestamp | tail -n 20
  } >&2 || true
  fail "not ready in time; docs/troubleshooting.md explains the states and Events above"
}

# grant: lets operator-controller write in the namespaces of the extensions, before hardened.yaml takes this right in all
# namespaces away. `olm system upgrade` also reads their revisions.
grant() {
  local role=operator-controller-content-namespaced found
  found=$(kubectl get clusterrole $role --ignore-not-found -o name)
  [ -z "$found" ] || return 0
  set -f # A value of a configuration may be a pattern.
  for found in $([ -z "$(existing clusterextensions)" ] || kubectl get clusterextensions.$group \
    -o jsonpath='{.items[*].spec.namespace} {.items[*].spec.config.inline.watchNamespace} {.items[*].spec.config.inline.watchNamespaces[*]}'); do
    case $found in "$namespace" | kube-* | -* | *[!a-z0-9-]*) continue ;; esac
    kubectl -n "$found" create rolebinding operator-controller-content --clusterrole $role --dry-run=client -o yaml \
      --serviceaccount "$namespace:operator-controller-controller-manager" | apply - ||
      echo "warning: no grant in namespace $found" >&2
  done
  set +f
}

install() {
  local server
  # RBAC of older upstream installations that no server needs.
  kubectl delete clusterrolebinding operator-controller-manager-rolebinding \
    operator-controller-manager-admin-rolebinding --ignore-not-found
  kubectl delete clusterrole operator-controller-manager-role --ignore-not-found
  [ "$variant" != hardened ] || grant
  objects | apply -
  for server in $servers; do
    in_time kubectl -n "$namespace" rollout status "deployment/$server-controller-manager" --timeout "${SERVER_WAIT_TIMEOUT:-5m}"
  done
  if [ "${INSTALL_DEFAULT_CATALOGS:-true}" != false ]; then
    # The API server rejects ClusterCatalogs until the webhook configuration of catalogd has its CA bundle.
    within_a_minute apply "$default_catalogs"
    in_time kubectl wait -f "$default_catalogs" --for condition=Serving --timeout "${CATALOG_WAIT_TIMEOUT:-60s}"
  fi
}

# delete ARGUMENT...: deletes objects and waits until they are deleted. With --dry-run it only lists them.
delete() {
  local mode=none
  [ $dry_run = no ] || mode=server
  kubectl delete "$@" --ignore-not-found --dry-run="$mode" --timeout 10m
}

# unfinished: prints the packages whose migration by `olm migrate` is unfinished, from the Secrets of their backups.
unfinished() {
  kubectl -n "$namespace" get secrets -l "ext.$group/migration" -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.annotations.ext\.olm\.operatorframework\.io/migration-digest} {.metadata.annotations.ext\.olm\.operatorframework\.io/migration-complete}{"\n"}{end}' |
    sed -n 's|^olm-migrate-\([^.]*\)\.\(.*\) sha256:[^ ]* $|\1/\2|p'
}

uninstall() {
  local kind found
  found=$(unfinished)
  [ -z "$found" ] || fail "the only backup of an unfinished migration would be deleted: $(paste -sd ' ' - <<<"$found"); finish \
the migration first: olm migrate apply NAME, or olm migrate rollback NAME"
  found=$(existing clusterextensions && existing clusterobjectsets)
  [ -z "$found" ] || [ $purge = yes ] ||
    fail "uninstall these first, or delete them and all their objects with --purge: $(paste -sd ' ' - <<<"$found")"
  # The running servers delete the objects of each in order. Deleting the CRDs would delete everything in no order.
  for kind in clusterextensions clusterobjectsets clustercatalogs; do
    found=$(existing $kind)
    [ -z "$found" ] || delete "$kind.$group" --all
  done
  # CRDs have no label, all other objects have it.
  objects | delete -l app.kubernetes.io/part-of=olm -f -
  [ $purge = no ] || objects | delete -l '!app.kubernetes.io/part-of' -f -
}

check
if [ $uninstall = yes ]; then
  uninstall
elif [ $dry_run = yes ]; then
  objects
  if [ "${INSTALL_DEFAULT_CATALOGS:-true}" != false ]; then printf -- '---\n' && cat "$default_catalogs"; fi
else
  [ $cert_manager = no ] || prepare_cert_manager
  install
fi
