# A Docker engine of Debian's packages, in a network namespace of its own so that neither its rules nor its ports and
# addresses meet those of the machine. The namespace lasts as long as processes are in it.
# shellcheck shell=bash disable=SC2154

readonly engine_dir=${XDG_CACHE_HOME:-$HOME/.cache}/olm/docker
readonly docker_socket=$engine_dir/docker.sock
# For processes.sh.
# shellcheck disable=SC2034
readonly run_dir=$engine_dir/run log_dir=$engine_dir/log
mkdir -p "$engine_dir" "$run_dir" "$log_dir"

machine_has_docker() {
  timeout 20 docker info >/dev/null 2>&1
}

in_engine() {
  local pid
  pid=$(process_pid dockerd) || fail "the engine does not run; start it with: hack/kind up"
  in_engine=(nsenter --target "$pid" --net env "PATH=$tools_dir:$PATH" DOCKER_HOST="unix://$docker_socket")
}

docker_cli() {
  DOCKER_HOST=unix://$docker_socket "$tools_dir/docker" "$@"
}

engine_up() {
  if ! process_alive dockerd; then
    [[ $(stat --file-system --format=%T "$engine_dir") != overlayfs ]] ||
      fail "$engine_dir is on an overlay file system, where containers cannot have theirs; set XDG_CACHE_HOME"
    install_engine
    step "starting Docker in a network namespace of its own"
    local -a runtime=()
    if ! has_sys_resource; then
      runtime=(--add-runtime "reduced=$kind_d/runc-reduced" --default-runtime reduced)
    fi
    [[ -e /sys/fs/cgroup/cgroup.controllers ]] || runtime+=(--exec-opt native.cgroupdriver=cgroupfs)
    # shellcheck disable=SC2016 # expanded by the inner shell
    PATH=$tools_dir:$PATH start_process dockerd unshare --net sh -c 'ip link set lo up && exec "$@"' sh \
      "$tools_dir/dockerd" --host "unix://$docker_socket" --data-root "$engine_dir/data" --exec-root "$engine_dir/exec" \
      --pidfile "$engine_dir/exec/dockerd.pid" --group root --storage-driver overlay2 --log-level warn "${runtime[@]}"
  fi
  wait_for 60 dockerd ready docker_cli info
  in_engine
}

# Whether processes may raise their limits; a container that is given more than the machine has does not start.
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
    echo "no Docker engine answers"
    return 1
  fi
}

engine_down() {
  if ! process_alive dockerd; then
    step "nothing to remove: hack/kind started no Docker engine"
    return
  fi
  in_engine
  "${in_engine[@]}" "${kind_d%/*}/cluster" down
  step "stopping Docker"
  docker_cli ps --all --quiet | xargs --no-run-if-empty "${in_engine[@]}" docker rm --force --volumes >/dev/null
  docker_cli network prune --force >/dev/null
  docker_cli volume prune --force >/dev/null
  stop_process dockerd
  rm -rf --one-file-system "$engine_dir/exec" "$docker_socket"
  remove_docker_cgroups
  step "down: no engine; its images stay in $engine_dir"
}

remove_docker_cgroups() {
  local dir
  for dir in /sys/fs/cgroup/docker /sys/fs/cgroup/*/docker; do
    [[ ! -d $dir ]] || find "$dir" -depth -type d -exec rmdir {} +
  done
}
