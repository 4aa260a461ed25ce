# Sourced by hack/classic-test: removes classic OLM after a migration of everything.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of hack/classic-test

# finish: migrates all packages, removes classic OLM, and fails if anything of it is left, or if a pod restarts meanwhile. The
# serving certificates are renewed, which the prober observes.
finish() {
  local package names prober='' code=0
  local -a packages=()
  names=$(kubectl get subscriptions.operators.coreos.com -A -o json | jq -er '.items[].spec.name') || {
    echo "    finish: the Subscriptions cannot be READ, or there are none" | tee -a "$run/faults"
    return 1
  }
  mapfile -t packages <<<"$names"
  say "finish: migration of ${packages[*]}"
  olm migrate apply --all --yes --ca-dir "$run/ca" --accept "$accepted" >"$run/all.log" 2>&1 || {
    echo "    finish: apply --all FAILED" | tee -a "$run/faults"
    tail -n 20 "$run/all.log"
    return 1
  }
  [[ " ${packages[*]} " != *" hooks "* ]] || start_prober hooks
  if ! olm migrate finish --yes >"$run/finish.log" 2>&1; then
    echo "    finish: FAILED" | tee -a "$run/faults"
    tail -n 20 "$run/finish.log"
    code=1
  fi
  leftovers >"$run/leftovers" || {
    echo "    finish: the objects that are left cannot be READ" | tee -a "$run/faults"
    code=1
  }
  if [ -s "$run/leftovers" ]; then
    echo "    finish: $(wc -l <"$run/leftovers") objects are LEFT" | tee -a "$run/faults"
    sed 's/^/      /' "$run/leftovers"
    code=1
  fi
  # Time in which the kubelet syncs the renewed certificates.
  [ -z "$prober" ] || sleep 100
  for package in "${packages[@]}"; do compare "$package" "after finish" || code=1; done
  [ -z "$prober" ] || stop_prober hooks
  return $code
}

# leftovers: prints what classic OLM made, except for OperatorConditions, which Deployments name until the next upgrade.
leftovers() {
  local kinds=crds,apiservices,clusterroles,clusterrolebindings,rolebindings,namespaces,secrets,services,configmaps,serviceaccounts
  kubectl get "$kinds" -A -o json | jq -r '.items[] | select(.metadata.name != "operatorconditions.operators.coreos.com")
    | select(.metadata.namespace != "olm" and .metadata.name != "olm")
    | . as $object | (.metadata.labels // {}) + (.metadata.annotations // {}) | keys as $keys | $object
    | select((.kind == "CustomResourceDefinition" and .spec.group == "operators.coreos.com")
        or (.kind == "APIService" and .spec.group == "packages.operators.coreos.com")
        or (.metadata.name | startswith("olm.og.")) or ((.roleRef.name // "") | startswith("olm.og."))
        or any(.metadata.ownerReferences[]?; .apiVersion | startswith("operators.coreos.com/v1"))
        or any($keys[]; startswith("olm.operatorgroup.uid/") or startswith("operatorframework.io/installed-alongside-")
          or . == "olmcahash" or . == "olm.owner"))
    | "\(.kind) \(.metadata.namespace // "")/\(.metadata.name)"'
}
