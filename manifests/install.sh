#!/usr/bin/env bash
# Installs OLM on the cluster of the current kubectl context, upgrades it, or removes it.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOT'
usage: install.sh [-n NAMESPACE] [--variant VARIANT] [--dry-run] [--uninstall [--purge]]

Installs the servers of OLM from the manifest beside this script, or upgrades them: it may be run again and again.
  -n NAMESPACE        install into this namespace (olmv1-system); one that exists must have the label
                      app.kubernetes.io/part-of=olm
  --variant VARIANT   install (the default), hardened, install-cert-manager or experimental: the manifest of that name
  --no-cert-manager   neither install cert-manager nor wait for it: it is there under names of its own
  --dry-run           check, and print the objects that would be applied, or what --uninstall would delete
  --uninstall         remove the servers and the catalogs; refused while an extension is there
  --purge             with --uninstall: first all extensions with what they installed, last the CRDs
  -h                  this text

Environment:
  INSTALL_DEFAULT_CATALOGS  false: without the community's catalog (true)
  CATALOG_WAIT_TIMEOUT      longest wait until the catalogs are served (60s)
  SERVER_WAIT_TIMEOUT       longest wait for each server (5m)
  MANIFEST                  file to apply instead of the variant's
  DEFAULT_CATALOG           file with the catalogs to apply (default-catalogs.yaml)
  CERT_MGR_MANIFEST         file or URL of cert-manager, for variants that need it on clusters that have none
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
    echo "Unknown option $1; install.sh -h lists them" >&2
    exit 1
    ;;
  esac
  shift
done
case $variant in
install | hardened) cert_manager=no ;;
install-cert-manager | experimental) ;;
*) fail "there is no variant $variant; one of install, hardened, install-cert-manager, experimental" ;;
esac
case $namespace in
default | kube-*) fail "the namespace $namespace is not for OLM: its traffic would be cut off" ;;
*[!a-z0-9-]* | -* | *-) fail "no name of a namespace: $namespace" ;;
esac
[ $purge = no ] || [ $uninstall = yes ] || fail "--purge goes with --uninstall"
manifest=${MANIFEST-$folder/$variant.yaml} default_catalogs=${DEFAULT_CATALOG-$folder/default-catalogs.yaml}
[ -n "$manifest" ] || fail "Missing required MANIFEST variable"
[ -r "$manifest" ] || fail "cannot read $manifest"

readonly group=olm.operatorframework.io servers="catalogd operator-controller"

# The objects of the installation, all in its namespace.
objects() {
  sed "s/olmv1-system/$namespace/g" "$manifest"
}

apply() {
  kubectl apply --server-side --field-manager olmv1-install --force-conflicts -f "$@"
}

# existing KIND: its objects; nothing where the cluster does not know the kind.
existing() {
  local definition
  definition=$(kubectl get crd "$1.$group" --ignore-not-found -o name) || return
  [ -z "$definition" ] || kubectl get "$1.$group" -o name
}

# What must be so before anything is changed.
check() {
  local minor foreign namespaces other others='' owners
  minor=$(kubectl get --raw /version | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p')
  [ "${minor:-0}" -ge 30 ] || fail "Kubernetes 1.30 or newer is needed; this cluster has 1.$minor"
  kubectl auth can-i '*' '*' --all-namespaces --quiet || fail "the rights of a cluster administrator are needed"
  foreign=$(kubectl get namespaces --field-selector "metadata.name=$namespace" -l app.kubernetes.io/part-of!=olm -o name)
  [ -z "$foreign" ] || fail "the namespace $namespace is not OLM's, which would cut it off from the network, and delete it \
with --uninstall: name another one with -n, or give it to OLM: kubectl label namespace $namespace app.kubernetes.io/part-of=olm"
  # Leases are per namespace: two installations would both lead, and fight over the same objects. Anybody may make a
  # Deployment of such a name, but few may label a namespace.
  namespaces=$(kubectl get namespaces -l app.kubernetes.io/part-of=olm -o jsonpath='{.items[*].metadata.name}')
  for other in $namespaces; do
    [ "$other" = "$namespace" ] ||
      others+=$(kubectl -n "$other" get deployments {catalogd,operator-controller}-controller-manager --ignore-not-found \
        -o jsonpath='{range .items[*]} {.metadata.namespace}/{.metadata.name}{end}')
  done
  [ -z "$others" ] || fail "OLM is installed in another namespace:$others"
  owners=$(kubectl get crd "clusterextensions.$group" "clustercatalogs.$group" --ignore-not-found \
    -o jsonpath='{range .items[*]}{.metadata.ownerReferences[*].name}{.metadata.annotations.meta\.helm\.sh/release-name}{end}')
  [ -z "$owners" ] || fail "the CRDs of OLM belong to $owners, which would change them back"
}

# within_a_minute COMMAND...: tries until it succeeds.
within_a_minute() {
  for _ in {1..12}; do
    "$@" && return
    sleep 5
  done
  fail "given up after a minute: $*"
}

# trusts_itself KIND: whether the API server can call cert-manager's webhook; before, every Certificate is refused.
trusts_itself() {
  [ -n "$(kubectl get "$1" cert-manager-webhook -o jsonpath='{.webhooks[*].clientConfig.caBundle}')" ]
}

prepare_cert_manager() {
  local deployment
  if kubectl get crd certificates.cert-manager.io >/dev/null 2>&1 &&
    kubectl -n cert-manager get deployment cert-manager-webhook cert-manager-cainjector >/dev/null 2>&1; then
    echo "cert-manager is already installed, skipping installation"
  else
    [ -n "${CERT_MGR_MANIFEST:-}" ] || fail "Missing CERT_MGR_MANIFEST variable: there is no cert-manager to make certificates"
    kubectl apply -f "$CERT_MGR_MANIFEST"
  fi
  for deployment in cert-manager-webhook cert-manager-cainjector cert-manager; do
    kubectl -n cert-manager wait "deployment/$deployment" --for condition=Available --timeout 60s
  done
  within_a_minute trusts_itself mutatingwebhookconfiguration
  within_a_minute trusts_itself validatingwebhookconfiguration
}

# in_time COMMAND...: what the pods and Events say where it fails.
in_time() {
  "$@" && return
  {
    kubectl -n "$namespace" get pods -o wide
    kubectl -n "$namespace" get events --sort-by .lastTimestamp | tail -n 20
  } >&2 || true
  fail "not ready in time; docs/troubleshooting.md knows what pods and Events say"
}

install() {
  local server
  # Rights of older installations of the reference that no server needs any more.
  kubectl delete clusterrolebinding operator-controller-manager-rolebinding \
    operator-controller-manager-admin-rolebinding --ignore-not-found
  kubectl delete clusterrole operator-controller-manager-role --ignore-not-found
  objects | apply -
  for server in $servers; do
    in_time kubectl -n "$namespace" rollout status "deployment/$server-controller-manager" --timeout "${SERVER_WAIT_TIMEOUT:-5m}"
  done
  if [ "${INSTALL_DEFAULT_CATALOGS:-true}" != false ]; then
    # catalogd has to make its own webhook trusted, too.
    within_a_minute apply "$default_catalogs"
    in_time kubectl wait -f "$default_catalogs" --for condition=Serving --timeout "${CATALOG_WAIT_TIMEOUT:-60s}"
  fi
}

# delete ARGUMENT...: and waits until it is gone.
delete() {
  local really=none
  [ $dry_run = no ] || really=server
  kubectl delete "$@" --ignore-not-found --dry-run="$really" --timeout 10m
}

uninstall() {
  local kind found
  found=$(existing clusterextensions && existing clusterobjectsets)
  [ -z "$found" ] || [ $purge = yes ] ||
    fail "delete these first, or all with what they installed by --purge: $(paste -sd ' ' - <<<"$found")"
  # The servers clean up after each of these; the CRDs would take everything with them, in no order.
  for kind in clusterextensions clusterobjectsets clustercatalogs; do
    found=$(existing $kind)
    [ -z "$found" ] || delete "$kind.$group" --all
  done
  # Only the CRDs are without labels.
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
