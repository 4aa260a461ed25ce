# A Docker engine of Debian packages in a network namespace, so that its rules, ports and addresses do not conflict with
# those of the machine. The namespace exists while processes are in it.
# shellcheck shell=bash disable=SC2154

readonly engine_dir=${XDG_CACHE_HOME:-$HOME/.cache}/olm/docker
readonly docker_socket=$engine_dir/docker.sock
readonly containerd_address=$engine_dir/exec/containerd.sock
# Read by processes.sh.
# shellcheck disable=SC2034
readonly run_dir=$engine_dir/run log_dir=$engine_dir/log

# Paths of Docker and containerd that no configuration changes. /etc/docker may belong to another package.
readonly engine_foreign_paths=(/etc/docker /etc/docker/key.json /run/docker /run/containerd /var/lib/cni)

machine_has_docker() {
  timeout 20 docker info >/dev/null 2>&1
}

# enter_engine: sets $enter to the prefix of a command that runs in the engine's namespace. It has its own cluster.
enter_engine() {
  local pid
  pid=$(process_pid dockerd) || fail "the engine is not running; start it with: hack/kind up"
  enter=(nsenter --target "$pid" --net env --unset OLM_USE_CLUSTER "PATH=$tools_dir:$engine_bin:$PATH"
    DOCKER_HOST="unix://$docker_socket" OLM_CLUSTER_DIR="$engine_dir/cluster")
}

docker_cli() {
  DOCKER_HOST=unix://$docker_socket "$engine_bin/docker" "$@"
}

engine_up() {
  if ! process_alive dockerd; then
    install_engine
    start_engine
  fi
  wait_for 60 dockerd ready docker_cli info
}

start_engine() {
  [[ $(stat --file-system --format=%T "$engine_dir") != overlayfs ]] ||
    fail "$engine_dir is on an overlay file system, which cannot hold those of containers; set XDG_CACHE_HOME"
  step "starting Docker in a network namespace"
  local path
  local -a options=()
  if [[ ! -e $engine_dir/absent ]]; then
    for path in "${engine_foreign_paths[@]}"; do
      [[ -e $path ]] || echo "$path"
    done >"$engine_dir/absent"
  fi
  if ! has_sys_resource; then
    options=(--add-runtime "reduced=$kind_d/runc-reduced" --default-runtime reduced)
  fi
  [[ -e /sys/fs/cgroup/cgroup.controllers ]] || options+=(--exec-opt native.cgroupdriver=cgroupfs)
  # A pid of an earlier boot may belong to another process.
  rm -f "$engine_dir/exec/dockerd.pid"
  mkdir -p "$engine_dir/exec"
  cat >"$engine_dir/containerd.toml" <<END
version = 2
root = "$engine_dir/containerd"
state = "$engine_dir/exec/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$containerd_address"
END
  start_process containerd containerd --config "$engine_dir/containerd.toml"
  wait_for 60 containerd ready ctr --address "$containerd_address" version
  # shellcheck disable=SC2016 # expanded by the inner shell
  PATH=$engine_bin:$PATH start_process dockerd unshare --net sh -c 'ip link set lo up && exec "$@"' sh \
    "$engine_bin/dockerd" --host "unix://$docker_socket" --containerd "$containerd_address" \
    --data-root "$engine_dir/data" --exec-root "$engine_dir/exec" --pidfile "$engine_dir/exec/dockerd.pid" \
    --group root --storage-driver overlay2 --log-level warn "${options[@]}"
}

# has_sys_resource: succeeds if processes may raise their limits. A container with more capabilities than the machine does
# not start.
has_sys_resource() {
  (((0x$(sed -n 's/^CapBnd:\t//p' /proc/self/status) >> 24) & 1))
}

engine_status() {
  local pid
  if machine_has_docker; then
    echo "Docker of this machine"
  elif pid=$(process_pid dockerd) && docker_cli info >/dev/null 2>&1; then
    echo "Docker started by hack/kind, process $pid"
    docker_cli ps --all --format 'table {{.Names}}\t{{.Status}}'
  else
    echo "no Docker engine is running"
    return 1
  fi
}

# engine_down: starts the engine to remove the remains of a killed one.
engine_down() {
  if [[ ! -e $engine_dir/absent ]]; then
    step "nothing to remove: hack/kind started no Docker engine"
    return
  fi
  engine_up
  enter_engine
  "${enter[@]}" "${kind_d%/*}/cluster" down
  step "stopping Docker"
  docker_cli ps --all --quiet | xargs --no-run-if-empty "${enter[@]}" docker rm --force --volumes >/dev/null
  docker_cli network prune --force >/dev/null
  docker_cli volume prune --force >/dev/null
  stop_process dockerd
  stop_process containerd
  rm -rf --one-file-system "$engine_dir/exec" "$docker_socket"
  xargs --no-run-if-empty rm -rf --one-file-system <"$engine_dir/absent"
  remove_docker_cgroups
  rm "$engine_dir/absent"
  step "down: no engine; its images stay in $engine_dir"
}

remove_docker_cgroups() {
  local dir
  for dir in /sys/fs/cgroup/docker /sys/fs/cgroup/*/docker; do
    [[ ! -d $dir ]] || find "$dir" -depth -type d -exec rmdir {} + || step "not removed: $dir"
  done
}
