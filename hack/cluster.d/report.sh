# What the user sees: steps with elapsed time, failures with the log that
# matters. All of it goes to stderr; stdout is for what other programs read.
# shellcheck shell=bash disable=SC2154

step() {
  printf '[%3ds] %s\n' "$SECONDS" "$*" >&2
}

fail() {
  printf 'hack/%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# fail_with_log FILE MESSAGE...: fails and shows the end of FILE.
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

# wait_for SECONDS NAME WHAT COMMAND...: waits until COMMAND succeeds, which is
# when process NAME has reached the state called WHAT.
wait_for() {
  local deadline=$((SECONDS + $1)) name=$2 what=$3 last=''
  shift 3
  until last=$("$@" 2>&1); do
    process_alive "$name" || fail_with_log "$log_dir/$name.log" "$name ended before it was $what"
    if ((SECONDS >= deadline)); then
      fail_with_log "$log_dir/$name.log" "$name is not $what in time; last answer: ${last:-none}"
    fi
    sleep 0.2
  done
}
