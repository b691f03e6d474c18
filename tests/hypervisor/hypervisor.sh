#!/bin/bash
# A hypervisor of the tests' own: libvirtd and an sshd in a mount namespace, with run directory, configuration, user and
# storage of their own. Nothing on the machine is changed, a libvirtd that runs there is left alone, and several of these
# stand side by side. What is shared with the machine: its network (the bridge po-NAME) and its packages.
#
# usage: hypervisor.sh up NAME                         starts it, or what of it does not run
#        hypervisor.sh env NAME                        prints the file with its addresses, keys and process ids
#        hypervisor.sh down NAME                       ends it and removes all that it made
#        hypervisor.sh session NAME                   up; prints the same and an empty line; down when its stdin ends, that
#                                                     is, when the process that started it ends in whatever way. Two
#                                                     sessions of one name follow each other. KEEP=1: no down
#        hypervisor.sh start|stop|kill|restart NAME libvirtd|virtlogd|sshd
#        hypervisor.sh freeze|thaw NAME libvirtd|sshd  as on a host that hangs
#        hypervisor.sh virsh NAME ARGUMENT...          virsh on it
#        hypervisor.sh run NAME COMMAND...             any command on it
# env, for up: SSH_STREAMLOCAL=no (refuse forwarding of unix sockets), SSH_MAX_STARTUPS=10:30:100, KVM=yes (offer
#      /dev/kvm: the default is to hide it, as emulation works everywhere), SUBNET=N (use 192.168.N.0/24)
# env: STATE_DIR (default /tmp/proxy-operator-test)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. "$folder/namespace.sh"
. "$folder/daemons.sh"

choose_subnet() {
  local n=${SUBNET:-} used i
  if [ -z "$n" ]; then
    # hv1 is 192.168.177.0/24, hv2 .178 and so on, where that is free.
    i=${name##*[!0-9]}; n=$((176 + ${i:-20}))
    used=$(ip -4 -o addr show | sed -nE 's/.* inet 192\.168\.([0-9]+)\..*/\1/p'; cat "$STATE_DIR"/*/subnet 2>/dev/null || true)
    while grep -qx "$n" <<< "$used"; do n=$((n + 1)); done
  fi
  [ "$n" -le 254 ] || die "no free subnet"
  echo "$n" > "$state/subnet"
}

network_and_pool() {
  local net=192.168.$(cat "$state/subnet")
  cat > "$state/lan.xml" <<X
<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
  <name>lan</name>
  <bridge name='$bridge' stp='off' delay='0'/>
  <dns><host ip='$net.1'><hostname>packages.test</hostname></host></dns>
  <ip address='$net.1' netmask='255.255.255.0'><dhcp><range start='$net.10' end='$net.200'/></dhcp></ip>
  <!-- else it waits three seconds before an offer, for an answer to a ping -->
  <dnsmasq:options><dnsmasq:option value='no-ping'/></dnsmasq:options>
</network>
X
  if ! virsh net-info lan > /dev/null 2>&1; then
    virsh net-define "$state/lan.xml" > /dev/null
    virsh net-autostart lan > /dev/null
  fi
  virsh net-info lan | grep '^Active: *yes' > /dev/null || virsh net-start lan > /dev/null
  if ! virsh pool-info default > /dev/null 2>&1; then
    virsh pool-define-as default dir --target /var/lib/libvirt/images > /dev/null
    virsh pool-build default > /dev/null
    virsh pool-autostart default > /dev/null
  fi
  virsh pool-info default | grep '^State: *running' > /dev/null || virsh pool-start default > /dev/null
}

write_env() {
  local net=192.168.$(cat "$state/subnet") port
  port=$(cat "$state/ssh/port")
  cat > "$state/env.new" <<X
NAME=$name
STATE=$state
SSH_ADDRESS=ssh://operator@127.0.0.1:$port
SSH_HOST=127.0.0.1
SSH_PORT=$port
SSH_USER=operator
SSH_KEY=$state/ssh/id_ed25519
SSH_KEY_ECDSA=$state/ssh/id_ecdsa
SSH_KEY_ECDSA_PEM=$state/ssh/id_ecdsa.pem
SSH_KEY_RSA=$state/ssh/id_rsa
SSH_KEY_RSA_PEM=$state/ssh/id_rsa.pem
SSH_KEY_ENCRYPTED=$state/ssh/id_encrypted
SSH_KEY_PASSPHRASE=$passphrase
SSH_KEY_STRANGER=$state/ssh/id_stranger
KNOWN_HOSTS=$state/ssh/known_hosts
POOL=default
POOL_PATH=/var/lib/libvirt/images
POOL_DIR=$state/lib/images
NETWORK=lan
BRIDGE=$bridge
BRIDGE_ADDRESS=$net.1
BRIDGE_CIDR=$net.0/24
LIBVIRT_SOCKET=$state/run/libvirt-sock
LIBVIRT_URI=qemu:///system?socket=$state/run/libvirt-sock
LIBVIRTD_PID=$(cat "$state/libvirtd.pid" 2>/dev/null || true)
SSHD_PID=$(cat "$state/sshd.pid" 2>/dev/null || true)
NS_PID=$(cat "$state/namespace.pid")
LOGS=$state/log
X
  mv "$state/env.new" "$state/env"
}

up() {
  "$folder/../setup/packages.sh" --check
  [ "$(id -u)" = 0 ] || die "needs root"
  # A socket's path has at most 107 bytes.
  [ ${#state} -le 70 ] || die "STATE_DIR is too long for a socket in it: $STATE_DIR"
  mkdir -p "$state"
  [ -O "$STATE_DIR" ] && [ -O "$state" ] || die "$STATE_DIR belongs to someone else"
  exec 9> "$STATE_DIR/$name.lock"; flock 9
  if ! alive "$state/namespace.pid" "$holder"; then
    # What one left that was killed.
    [ -e "$state/subnet" ] || ! ip link show "$bridge" > /dev/null 2>&1 || die "$bridge exists already and is not of $STATE_DIR"
    take_down
    mkdir -p "$state"
  fi
  # One at a time from the choice of a subnet until the bridge has it, and while libvirtd writes firewall rules: two that
  # change the same chains at once fail.
  lock_machine
  [ -e "$state/subnet" ] || choose_subnet
  keys
  make_namespace
  start virtlogd
  start libvirtd
  if [ "$(sshd_config | tee "$state/ssh/sshd_config.new")" != "$(cat "$state/ssh/sshd_config" 2>/dev/null)" ]; then
    stop sshd
    mv "$state/ssh/sshd_config.new" "$state/ssh/sshd_config"
  fi
  start sshd
  network_and_pool
  unlock_machine
  write_env
}

take_down() {
  local pids guest
  for guest in "$state"/guests/*/; do
    [ ! -d "$guest" ] || "$folder/fake-guest.sh" down "$name" "$(basename "$guest")" || true
  done
  # libvirtd is not asked to end its guests, as it may be one that hangs.
  mapfile -t pids < <(members)
  if [ ${#pids[@]} -gt 0 ]; then
    kill -CONT "${pids[@]}" 2>/dev/null || true
    end "${pids[@]}"
  fi
  if ip link show "$bridge" > /dev/null 2>&1; then ip link delete "$bridge"; fi
  lock_machine
  remove_firewall_rules
  unlock_machine
  rm -rf --one-file-system "$state"
}

# libvirtd leaves its rules for the bridge when it is killed, and its (empty) chains in any case. The chains go with the
# last hypervisor, unless they were there before the first.
remove_firewall_rules() {
  local iptables table rule chain last=no
  if [ ! -e "$STATE_DIR/.chains-were-there" ] && [ -z "$(others)" ]; then last=yes; fi
  for iptables in iptables ip6tables; do
    for table in filter nat mangle; do
      remove_rules "^-A (LIBVIRT_.* $bridge( .*)?)$"
      [ $last = yes ] && ! rules | grep '^-A LIBVIRT_' > /dev/null || continue
      remove_rules '^-A (.* -j LIBVIRT_[A-Z]+)$'
      for chain in $(rules | sed -nE 's/^-N (LIBVIRT_.*)/\1/p'); do $iptables -w -t $table -X "$chain" || true; done
    done
  done
}
rules() { $iptables -w -t $table -S 2>/dev/null || true; }
remove_rules() {
  rules | sed -nE "s/$1/\1/p" | while read -r rule; do
    # shellcheck disable=SC2086
    $iptables -w -t $table -D $rule || true
  done
}
# Other hypervisors of ours on this machine, whatever their STATE_DIR.
others() { ps -eo args | grep '^namespace-of:' | grep -vF "$holder" || true; }
# Also for hypervisors of another STATE_DIR. `up` takes a hypervisor down that was killed, with the lock held or not.
lock_machine() { exec 8>> /run/lock/proxy-operator-hypervisors.lock; flock 8; }
unlock_machine() { exec 8>&-; }

command=${1:?see the head of this script}; use "${2:?name}"; shift 2
case $command in
  up) up; cat "$state/env" ;;
  env) cat "$state/env" ;;
  down)
    [ -d "$state" ] || exit 0
    exec 9> "$STATE_DIR/$name.lock"; flock 9
    take_down ;;
  session)
    mkdir -p "$STATE_DIR"
    exec 7> "$STATE_DIR/$name.session"; flock 7
    # An interrupt is for the owner; what it has started is then to be cleared away all the same.
    trap '' INT TERM HUP
    [ -n "${KEEP:-}" ] || trap '"$0" down "$name"' EXIT
    "$0" up "$name" 7>&- < /dev/null; echo
    cat > /dev/null ;;
  start) start "$1"; write_env ;;
  stop) stop "$1"; write_env ;;
  kill) stop "$1" KILL; write_env ;;
  restart) stop "$1"; start "$1"; write_env ;;
  freeze) kill -STOP "$(cat "$state/$1.pid")" ;;
  thaw) kill -CONT "$(cat "$state/$1.pid")" ;;
  virsh) virsh "$@" ;;
  run) inside "$@" ;;
  *) die "unknown command $command" ;;
esac
