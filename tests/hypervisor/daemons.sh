# The daemons of a hypervisor: their configuration, start and end.

passphrase=correct-horse

libvirt_config() {
  mkdir -p "$state/etc/libvirt"
  # A user of group libvirt may use the socket. The default, polkit, needs a system bus.
  cat > "$state/etc/libvirt/libvirtd.conf" <<'X'
unix_sock_group = "libvirt"
unix_sock_rw_perms = "0770"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
X
  # No mount namespace and no cgroup for each guest: the first would hide a guest from those who look for what belongs
  # to this hypervisor, the second is one tree for the whole machine, in which guests of two hypervisors would collide.
  cat > "$state/etc/libvirt/qemu.conf" <<'X'
namespaces = []
cgroup_controllers = []
security_driver = "none"
X
  echo 'log_outputs = "3:file:/var/log/libvirt/virtlogd.log"' > "$state/etc/libvirt/virtlogd.conf"
}

# Keys of several kinds and forms, all authorised but the stranger's, and the server's own, which stay the same for the
# life of the state directory.
keys() {
  local ssh=$state/ssh kind size
  [ ! -e "$ssh/known_hosts" ] || return 0
  rm -rf "$ssh"; mkdir -p "$ssh"
  for kind in ed25519 ecdsa rsa; do
    size=(); [ $kind != rsa ] || size=(-b 2048) # quick to make
    ssh-keygen -q -t $kind "${size[@]}" -N '' -C "$kind" -f "$ssh/id_$kind"
    ssh-keygen -q -t $kind "${size[@]}" -N '' -C '' -f "$ssh/host_$kind"
  done
  for kind in ecdsa rsa; do
    cp -p "$ssh/id_$kind" "$ssh/id_$kind.pem"
    ssh-keygen -q -p -m PEM -P '' -N '' -f "$ssh/id_$kind.pem" > /dev/null
  done
  ssh-keygen -q -t ed25519 -N "$passphrase" -C encrypted -f "$ssh/id_encrypted"
  cat "$ssh"/id_*.pub > "$ssh/authorized_keys"
  ssh-keygen -q -t ed25519 -N '' -C stranger -f "$ssh/id_stranger"
  free_port > "$ssh/port"
  # As ssh-keyscan writes them.
  for kind in ed25519 ecdsa rsa; do
    echo "[127.0.0.1]:$(cat "$ssh/port") $(cut -d' ' -f1,2 "$ssh/host_$kind.pub")"
  done > "$ssh/known_hosts"
}

# Not one that the kernel gives to outgoing connections: while sshd is down another could take it, and a client that
# keeps trying would in the end connect to itself.
free_port() {
  local port=$((22000 + $(cat "$state/subnet")))
  while [ -n "$(ss -Hltn "sport = :$port")" ]; do port=$((port + 256)); done
  echo $port
}

sshd_config() {
  cat <<X
ListenAddress 127.0.0.1
Port $(cat "$state/ssh/port")
HostKey $state/ssh/host_ed25519
HostKey $state/ssh/host_ecdsa
HostKey $state/ssh/host_rsa
AuthorizedKeysFile $state/ssh/authorized_keys
AllowUsers operator
AuthenticationMethods publickey
UsePAM no
StrictModes no
PermitUserRC no
AllowStreamLocalForwarding ${SSH_STREAMLOCAL:-yes}
MaxStartups ${SSH_MAX_STARTUPS:-100}
MaxSessions 100
LogLevel VERBOSE
PidFile $state/sshd.pid
X
}

# Words in the command line of each, by which its process is known.
mark() { case $1 in sshd) echo "$state/ssh/sshd_config" ;; *) echo "$state/$1.pid" ;; esac; }

sshd_answers() { (exec 5<> "/dev/tcp/127.0.0.1/$(cat "$state/ssh/port")" && read -r -t 2 -N 4 word <&5 && [ "$word" = SSH- ]) 2>/dev/null; }
libvirtd_answers() { virsh uri > /dev/null 2>&1; }
virtlogd_answers() { [ -S "$state/run/virtlogd-sock" ]; }

start() {
  local daemon=$1 cache=$STATE_DIR/.cache
  if alive "$state/$daemon.pid" "$(mark "$daemon")"; then return; fi
  rm -f "$state/$daemon.pid"
  case $daemon in
    virtlogd) inside virtlogd -d -p "$state/virtlogd.pid" 8>&- 9>&- ;;
    libvirtd)
      # What libvirtd learns about QEMU takes it seconds; a new hypervisor starts with what an earlier one has learnt.
      [ -e "$state/cache/qemu" ] || ! [ -d "$cache/qemu-${KVM:-no}" ] || cp -a "$cache/qemu-${KVM:-no}" "$state/cache/qemu"
      inside libvirtd -d -f /etc/libvirt/libvirtd.conf -p "$state/libvirtd.pid" 8>&- 9>&- ;;
    sshd)
      [ -e "$state/ssh/sshd_config" ] || mv "$state/ssh/sshd_config.new" "$state/ssh/sshd_config"
      inside /usr/sbin/sshd -f "$state/ssh/sshd_config" -E "$state/log/sshd.log" 8>&- 9>&- ;;
    *) die "unknown daemon $daemon" ;;
  esac
  if ! wait_for 30 "$daemon" "${daemon}_answers"; then tail -n 20 "$state/log/$daemon.log" >&2; exit 1; fi
  if [ "$daemon" = libvirtd ] && [ ! -d "$cache/qemu-${KVM:-no}" ]; then
    virsh domcapabilities > /dev/null
    cp -a "$state/cache/qemu" "$cache/.new-$$" && mv -T "$cache/.new-$$" "$cache/qemu-${KVM:-no}" 2>/dev/null || rm -rf "$cache/.new-$$"
  fi
}

# stop DAEMON [KILL]: sshd takes its sessions along, as it does when a machine goes down.
stop() {
  local daemon=$1 pid sessions=
  if alive "$state/$daemon.pid" "$(mark "$daemon")"; then
    pid=$(cat "$state/$daemon.pid")
    if [ "$daemon" = sshd ]; then sessions=$(descendants "$pid"); fi
    kill -CONT "$pid"
    # shellcheck disable=SC2086
    if [ "${2:-}" = KILL ]; then kill -KILL "$pid" $sessions; wait_for 5 "end of $daemon" gone "$pid"; else end "$pid" $sessions; fi
  fi
  rm -f "$state/$daemon.pid"
}

descendants() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do echo "$child"; descendants "$child"; done
}
