# Sourced by hack/classic-test: migrates packages and returns them, and compares what runs.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of hack/classic-test

# olm ARGUMENT...: runs our tool, with access to the cluster's registry.
olm() {
  CONTAINERS_REGISTRIES_CONF=$run/registries.conf "$CARGO_TARGET_DIR/debug/olm" "$@"
}

# footprint PACKAGE: prints what must not change: pods with their restarts, Deployments with their revision, custom
# resources.
footprint() {
  local namespace
  namespace=$(namespace_of "$1")
  kubectl -n "$namespace" get pods -o json | jq -c '[.items[] | select(.metadata.ownerReferences[0].kind == "ReplicaSet")
    | {uid: .metadata.uid, restarts: [.status.containerStatuses[]?.restartCount]}] | sort'
  kubectl -n "$namespace" get deployments -o json | jq -S '.items[]
    | {name: .metadata.name, revision: .metadata.annotations["deployment.kubernetes.io/revision"], spec: .spec}'
  kubectl get greetings."$1.$sample_group" -A -o json | jq -c '[.items[].metadata.uid]'
}

# compare PACKAGE WHEN: fails if the footprint is not that before the first migration.
compare() {
  footprint "$1" >"$run/$1.after"
  diff "$run/$1.before" "$run/$1.after" >"$run/$1.diff" || {
    echo "    $1: CHANGED $2" | tee -a "$run/faults"
    cat "$run/$1.diff"
    return 1
  }
}

# probe PACKAGE FILE: calls all webhooks of a package every 0.25 s until it is stopped. Writes failures to FILE, and the number
# of calls to FILE.calls. A greeting is converted twice, and gets a salutation. The other one is denied.
probe() {
  local body answer code fault right url group=$1.$sample_group calls=0
  url=$api/apis/$group/v1/namespaces/$(namespace_of "$1")/greetings
  while :; do
    for body in '{"name": "world"}' '{"name": " "}'; do
      answer=$(curl --silent --max-time 10 --cacert "$run/ca.crt" -H "Authorization: Bearer $token" \
        -H 'Content-Type: application/json' --write-out ' %{http_code}' "$url?dryRun=All" --data \
        '{"apiVersion": "'"$group"'/v1", "kind": "Greeting", "metadata": {"generateName": "probe-"}, "spec": '"$body"'}') || true
      answer=${answer//$'\n'/ }
      code=${answer##* }
      calls=$((calls + 1))
      case $body:$code in
      *world*:201) fault='not mutated' right='*salutation*' ;;
      *'" "'*:4??) fault='not denied by the webhook' right='*denied the request*' ;;
      *) fault=failed right='' ;;
      esac
      # shellcheck disable=SC2053 # a pattern
      [[ $answer == $right ]] || echo "$(date +%T.%N) $fault: $body: $answer" >>"$2"
      echo $calls >"$2.calls"
    done
    sleep 0.25
  done
}

start_prober() {
  : >"$run/probe.$1"
  probe "$1" "$run/probe.$1" &
  prober=$!
}

# stop_prober PACKAGE: stops the prober, and prints its failures. They are a fault.
stop_prober() {
  kill "$prober" 2>/dev/null || true
  wait "$prober" 2>/dev/null || true
  prober=''
  calls=$((calls + $(cat "$run/probe.$1.calls")))
  if [ -s "$run/probe.$1" ]; then
    failed=$((failed + $(wc -l <"$run/probe.$1")))
    echo "    $1: $(wc -l <"$run/probe.$1") FAILED CALLS" | tee -a "$run/faults"
    cut -c 1-300 "$run/probe.$1" | sed 's/^/      /' | head -n 12
  fi
}

# take COMMAND PACKAGE...: runs `olm migrate COMMAND`, and prints its output if it fails.
take() {
  local log=$run/$1.$2.log from=$SECONDS
  local -a options=(--yes)
  [ "$1" != apply ] || options+=(--ca-dir "$run/ca" --accept "$accepted")
  if ! olm migrate "$1" "${@:2}" "${options[@]}" >"$log" 2>&1; then
    echo "    ${*:2}: $1 FAILED" | tee -a "$run/faults"
    sed 's/^/      /' "$log"
    return 1
  fi
  echo "    ${*:2}: $1 in $((SECONDS - from)) s"
}

# cycle PACKAGE...: migrates packages, dependents first, and returns them. Counts faults in $run/faults.
cycle() {
  local one prober='' code=0
  [ "$1" != hooks ] || start_prober "$1"
  take apply "$@" || code=1
  for one in "$@"; do compare "$one" "after apply" || code=1; done
  # Controllers have seen everything by then.
  sleep "$settle"
  for one in "$@"; do compare "$one" "$settle s after apply" || code=1; done
  [ "$1" != manual ] || upgrade_waits "$1" proposes || code=1
  for one in $(reversed "$@"); do
    take rollback "$one" || code=1
  done
  for one in "$@"; do compare "$one" "after rollback" || code=1; done
  sleep "$settle"
  for one in "$@"; do
    compare "$one" "$settle s after rollback" || code=1
    is_installed "$one" || { echo "    $one: NOT INSTALLED after rollback" | tee -a "$run/faults"; code=1; }
  done
  [ "$1" != manual ] || upgrade_waits "$1" plan_exists || code=1
  [ -z "$prober" ] || stop_prober "$1"
  return $code
}

# upgrade_waits PACKAGE COMMAND: fails if no upgrade to 1.1.0 waits for approval, or if it was executed.
upgrade_waits() {
  if ! wait_for 120 "$2" "$(namespace_of "$1")" "$1.v1.1.0"; then
    echo "    $1: the upgrade does not WAIT" | tee -a "$run/faults"
    return 1
  fi
}

# proposes NAMESPACE BUNDLE: reports whether the extension of that bundle's package proposes it.
proposes() {
  kubectl get clusterextension "${2%%.*}" -o json | jq -e --arg bundle "$2" '.status.conditions[]
    | select(.type == "UpgradeAvailable" and .reason == "ApprovalRequired") | .message | contains($bundle)' >/dev/null
}

reversed() { printf '%s\n' "$@" | tac; }
