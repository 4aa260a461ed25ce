# Processes of hack/cluster and hack/kind, with pid files.
# shellcheck shell=bash disable=SC2154

# take_lock: commands that change the cluster run one at a time. The lock is
# not in the state directory, which `down` removes.
take_lock() {
  mkdir -p "$cache_dir"
  exec 9>"$cache_dir/$profile.lock"
  flock --wait 900 9 || fail "another hack/cluster holds $cache_dir/$profile.lock"
}

# process_identity PID: prints the boot and the start time in ticks, which
# differ between processes with the same pid. Fails if the process has exited.
process_identity() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The second field, the command name, may hold spaces and parentheses.
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != [ZX] ]] || return 1
  echo "$(</proc/sys/kernel/random/boot_id) ${fields[19]}"
}

# process_pid NAME: prints the pid of the process NAME. Fails if it has exited.
process_pid() {
  local pid identity
  [[ -s $run_dir/$1.pid ]] || return 1
  read -r pid identity <"$run_dir/$1.pid"
  [[ $(process_identity "$pid") == "$identity" ]] || return 1
  echo "$pid"
}

process_alive() {
  process_pid "$1" >/dev/null
}

# start_process NAME COMMAND...: runs COMMAND in the background unless it is
# running, without the caller's environment, terminal and lock.
start_process() {
  local name=$1 pid
  shift
  if process_alive "$name"; then
    return
  fi
  # GOGC: collects garbage less often, because processors are scarcer than memory.
  setsid env -i PATH="$PATH" HOME="$HOME" GOGC=400 "$@" </dev/null >>"$log_dir/$name.log" 2>&1 9>&- &
  pid=$!
  echo "$pid $(process_identity "$pid")" >"$run_dir/$name.pid" ||
    fail_with_log "$log_dir/$name.log" "$name exited at once"
}

# stop_process NAME: sends SIGTERM, after 10 seconds SIGKILL.
stop_process() {
  local name=$1 pid deadline=$((SECONDS + 10))
  if pid=$(process_pid "$name"); then
    kill -TERM "$pid" 2>/dev/null || true
    while process_alive "$name"; do
      if ((SECONDS >= deadline)); then
        kill -KILL "$pid" 2>/dev/null || true
      fi
      sleep 0.1
    done
  fi
  rm -f "$run_dir/$name.pid"
}
