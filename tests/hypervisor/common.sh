# Sourced by the scripts of this folder. After `use NAME` the variables below say where that hypervisor lives.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
STATE_DIR=$(realpath -m "${STATE_DIR:-/tmp/proxy-operator-test}")

say() { echo "${name:-hypervisor}: $*" >&2; }
die() { say "$@"; exit 1; }

use() {
  name=$1
  # It becomes part of an interface's name, which has at most 15 bytes.
  [[ $name =~ ^[a-z][a-z0-9-]{0,11}$ ]] || die "a name is at most 12 of a-z, 0-9, -"
  state=$STATE_DIR/$name
  bridge=po-$name
  # What the process calls itself that keeps the mount namespace.
  holder="namespace-of:$state/"
}

# Runs a command in the hypervisor's mount namespace, that is: on the hypervisor, if it had a console.
inside() { nsenter --mount="/proc/$(cat "$state/namespace.pid")/ns/mnt" -- "$@"; }
virsh() { inside virsh -q -c qemu:///system "$@"; }

# alive PIDFILE WORD: the process exists and is still the one that was started (its command line has WORD).
alive() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$2"
}

# wait_for SECONDS WHAT COMMAND...: polls what has no event to wait for.
wait_for() {
  local end=$(($(date +%s%N) + $1 * 1000000000)) what=$2; shift 2
  until "$@"; do
    [ "$(date +%s%N)" -lt "$end" ] || { say "$what: not within its time"; return 1; }
    sleep 0.05
  done
}

gone() { ! [ -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }

# end PID...: terminates processes, kills what stays.
end() {
  local pid
  [ $# -gt 0 ] || return 0
  kill "$@" 2>/dev/null || true
  for pid in "$@"; do
    wait_for 5 "end of process $pid" gone "$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
    wait_for 5 "end of process $pid" gone "$pid" || true
  done
}

# detached LOG COMMAND...: starts a command that outlives this script and holds none of its file descriptors but 3, on
# which it may say one line when it is ready. Prints that line; fails, with the log's tail, when there is none.
detached() {
  local log=$1 line; shift
  line=$(exec 3>&1; setsid "$@" < /dev/null >> "$log" 2>&1 8>&- 9>&- &) || true
  [ -n "$line" ] || { tail -n 20 "$log" >&2; return 1; }
  echo "$line"
}
