# Sourced by hack/classic-test: kills migrations at each of their steps, and repeats them.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of hack/classic-test

# Commands have at least this number of steps.
readonly least_steps=5

# kills PACKAGE: migrates and returns a package, each time killed at another step. Counts the kills in $cycles, and fails if
# there are too few, as without the steps in the output.
kills() {
  local command back number code=0 distance=${OLM_CLASSIC_KILLS:-1}
  for command in apply rollback; do
    back=rollback
    [ $command = apply ] || back=apply
    number=1
    while killed $command "$1" $number; do
      cycles=$((cycles + 1))
      take $command "$1" || return
      compare "$1" "after $command, killed at step $number" || code=1
      [ $command = apply ] || is_installed "$1" || { echo "    $1: NOT INSTALLED" | tee -a "$run/faults"; code=1; }
      take $back "$1" || return
      compare "$1" "after $back" || code=1
      number=$((number + distance))
    done
    if [ "$number" -le $least_steps ]; then
      echo "    $1: $command was not KILLED after step $((number - distance))" | tee -a "$run/faults"
      code=1
    fi
  done
  sleep "$settle"
  compare "$1" "$settle s after all kills" || code=1
  return $code
}

# killed COMMAND PACKAGE NUMBER: runs a command, and kills it when it begins its step NUMBER. Fails if it ends before.
killed() {
  local line count=0 pid fifo=$run/steps code=0
  local -a options=(--yes)
  [ "$1" != apply ] || options+=(--ca-dir "$run/ca")
  rm -f "$fifo"
  mkfifo "$fifo"
  CONTAINERS_REGISTRIES_CONF=$run/registries.conf "$CARGO_TARGET_DIR/debug/olm" migrate "$1" "$2" "${options[@]}" \
    >"$run/killed.log" 2>"$fifo" &
  pid=$!
  while IFS= read -r line; do
    echo "$line" >>"$run/killed.log"
    [[ $line == "$2: "* ]] || continue
    count=$((count + 1))
    [ $count -lt "$3" ] || kill -KILL $pid 2>/dev/null
    [ $count -ne "$3" ] || echo "    $1 killed at: ${line#"$2": }"
  done <"$fifo"
  { wait $pid || code=$?; } 2>/dev/null
  case $code in
  137) return 0 ;;
  0) return 1 ;;
  esac
  echo "    $2: $1 FAILED with status $code" | tee -a "$run/faults"
  sed 's/^/      /' "$run/killed.log"
  return 1
}
