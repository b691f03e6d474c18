# Steps with their times, and waiting with a bound. Sourced.

begun=$(date +%s.%N)
since() { echo "$(date +%s.%N) $1" | awk '{printf "%.1f", $1 - $2}'; }

# step DESCRIPTION COMMAND...: runs it, prints what it took.
step() {
  local what=$1 start
  start=$(date +%s.%N)
  shift
  "$@"
  printf '[%7.1f s] %s (%s s)\n' "$(since "$begun")" "$what" "$(since "$start")"
}

fail() { echo "demo: $*" >&2; exit 1; }

# wait_until SECONDS PROGRESS COMMAND...: until the command succeeds; prints what PROGRESS prints when it is new.
wait_until() {
  local limit=$1 progress=$2 start=$SECONDS shown='' now
  shift 2
  until "$@"; do
    [ $((SECONDS - start)) -lt "$limit" ] || fail "not within $limit s: $*"
    now=$($progress)
    if [ "$now" != "$shown" ]; then printf '%s\n' "$now"; shown=$now; fi
    sleep 1
  done
}

# end_process PID WORDS: ends a process of ours, and waits for it.
end_process() {
  local pid=$1 words=$2
  if [ -e "/proc/$pid" ] && tr '\0' ' ' < "/proc/$pid/cmdline" | grep -- "$words" > /dev/null; then
    kill "$pid"
    for _ in $(seq 150); do [ -e "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2> /dev/null || return 0; sleep 0.1; done
    kill -9 "$pid"
  fi
}
