# Changes of the cluster to the machine, and their reversal.
# shellcheck shell=bash disable=SC2154

# Settings that hack/cluster or the kubelet change.
readonly sysctls=(net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables
  vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops
  kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

# Folders of containerd, the CNI plugins and the kubelet that no configuration
# changes.
readonly foreign_dirs=(/run/containerd /var/lib/cni /var/lib/kubelet /var/log/containers)

# prepare_machine: sets sysctls and creates the network. Idempotent.
prepare_machine() {
  local module
  for module in br_netfilter overlay; do
    # The module may be built in. The checks below decide.
    modprobe -q "$module" 2>/dev/null || true
  done
  grep -qw overlay /proc/filesystems || fail "the kernel has no overlay file system"
  [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]] ||
    fail "the kernel has no bridge netfilter (module br_netfilter)"
  record_machine
  echo 1 >/proc/sys/net/ipv4/ip_forward
  # Answers of a Service's pod to a pod on the same bridge must pass its NAT.
  echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
  make_network
}

# record_machine: records what restore_machine restores. The record also proves
# that the bridge is that of this cluster.
record_machine() {
  local record=$state_dir/machine name dir
  [[ ! -e $record ]] || return 0
  ! ip link show "$bridge" >/dev/null 2>&1 ||
    fail "the bridge $bridge belongs to a cluster in another directory than $state_dir; take that down, or remove the bridge with: ip link delete $bridge"
  {
    for name in "${sysctls[@]}"; do
      [[ ! -r /proc/sys/$name ]] || echo "sysctl $name $(</proc/sys/"$name")"
    done
    for dir in "${foreign_dirs[@]}"; do
      [[ -e $dir ]] || echo "absent $dir"
    done
  } >"$record.new"
  mv "$record.new" "$record"
}

make_network() {
  local taken
  taken=$(ip -4 route show | grep -E '^10\.(244\.0|96)\.' | grep -v "dev $bridge " || true)
  [[ -z $taken ]] || fail "the cluster's addresses are in use on this machine: $taken"
  ip link show "$bridge" >/dev/null 2>&1 || ip link add "$bridge" type bridge
  ip address replace "$bridge_address/${pod_cidr#*/}" dev "$bridge"
  ip link set "$bridge" up
  # Services are reachable without a default route, too.
  ip route replace "$service_cidr" dev "$bridge"
  nft --file "$config_dir/network.nft"
}

remove_network() {
  local link table
  for link in $(ip -o link show master "$bridge" 2>/dev/null | sed -E 's/^[0-9]+: ([^@:]+).*/\1/'); do
    ip link delete "$link" 2>/dev/null || true # deleted with its network namespace
  done
  if ip link show "$bridge" >/dev/null 2>&1; then
    ip link delete "$bridge"
  fi
  for table in "ip $network" "ip olm_network_policies" "ip kube-proxy" "ip6 kube-proxy"; do
    # shellcheck disable=SC2086
    nft delete table $table 2>/dev/null || true # absent if never started
  done
}

# restore_machine: reverts prepare_machine. No component may be running.
restore_machine() {
  local what name value
  [[ -e $state_dir/machine ]] || return 0
  remove_network
  rm -f /var/lib/cni/results/"$network"-*
  if [[ -d /var/log/containers ]]; then
    find /var/log/containers -lname "$state_dir/*" -delete
  fi
  while read -r what name value; do
    case $what in
      sysctl) [[ $(</proc/sys/"$name") == "$value" ]] || echo "$value" >/proc/sys/"$name" ;;
      absent) rm -rf --one-file-system "$name" ;;
    esac
  done <"$state_dir/machine"
}

# remove_pods: kills processes that containerd started and removes mounts,
# cgroups and addresses of pods. Images and API objects are retained. Neither
# containerd nor the kubelet may be running.
remove_pods() {
  local bundle
  kill_pods
  for bundle in "$containerd_dir"/state/io.containerd.runtime.v2.task/k8s.io/*/; do
    if [[ -r $bundle/address ]]; then
      rm -f "$(sed 's|^unix://||' "$bundle/address")"
    fi
    remove_cgroup "$(basename "$bundle")"
  done
  unmount_all
  rm -rf "$containerd_dir/state" "$state_dir/cni"
}

# remove_cgroup CONTAINER_ID: in every hierarchy. containerd names the parent.
remove_cgroup() {
  local dir
  for dir in /sys/fs/cgroup/k8s.io/"$1" /sys/fs/cgroup/*/k8s.io/"$1"; do
    if [[ -d $dir ]]; then
      find "$dir" -depth -type d -exec rmdir {} +
      rmdir --ignore-fail-on-non-empty "$(dirname "$dir")"
    fi
  done
}

kill_pods() {
  local deadline=$((SECONDS + 20))
  local -a pids
  while mapfile -t pids < <(pod_pids) && ((${#pids[@]} > 0)); do
    ((SECONDS < deadline)) || fail "processes of pods do not exit: ${pids[*]}"
    kill -KILL "${pids[@]}" 2>/dev/null || true
    sleep 0.2
  done
}

# pod_pids: prints the pids of containerd's shims, identified by its socket, and
# of processes in containers, identified by their root file system.
pod_pids() {
  local file
  for file in $(grep -lsaF -- "$containerd_socket" /proc/[0-9]*/cmdline || true); do
    if [[ $(tr '\0' ' ' 2>/dev/null <"$file") == *containerd-shim*" -address $containerd_socket "* ]]; then
      live_pid "$file"
    fi
  done
  for file in $(grep -lsE "^[0-9]+ [0-9]+ [0-9:]+ / / .*upperdir=$containerd_dir/root/" \
    /proc/[0-9]*/mountinfo || true); do
    live_pid "$file"
  done
}

# live_pid /proc/PID/FILE: prints PID unless the process has exited.
live_pid() {
  local pid=${1#/proc/}
  if process_identity "${pid%%/*}" >/dev/null; then
    echo "${pid%%/*}"
  fi
}

# unmount_all: unmounts everything below the state directory, deepest first.
unmount_all() {
  local mount
  while read -r mount; do
    umount "$mount" 2>/dev/null || umount --lazy "$mount"
  done < <(cut -d' ' -f5 /proc/self/mountinfo | grep "^$state_dir/" | sort -r)
}
