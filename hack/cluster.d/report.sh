# Messages for the user: steps with elapsed time, failures with the end of a
# log. They are on stderr, because other programs read stdout.
# shellcheck shell=bash disable=SC2154

step() {
  printf '[%3ds] %s\n' "$SECONDS" "$*" >&2
}

fail() {
  printf 'hack/%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# fail_with_log FILE MESSAGE...: prints the end of FILE and fails.
fail_with_log() {
  local file=$1
  shift
  if [[ -s $file ]]; then
    printf -- '--- the last lines of %s:\n' "$file" >&2
    tail -n 25 "$file" | cut -c1-500 >&2
    printf -- '---\n' >&2
  fi
  fail "$*"
}

# wait_for SECONDS NAME WHAT COMMAND...: waits until COMMAND succeeds, when
# process NAME is in the state WHAT.
wait_for() {
  local deadline=$((SECONDS + $1)) name=$2 what=$3 last=''
  shift 3
  until last=$("$@" 2>&1); do
    process_alive "$name" || fail_with_log "$log_dir/$name.log" "$name exited before it was $what"
    if ((SECONDS >= deadline)); then
      fail_with_log "$log_dir/$name.log" "$name is not $what in time; last output: ${last:-none}"
    fi
    sleep 0.2
  done
}
