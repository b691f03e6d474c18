# The mount namespace of a hypervisor: made once, kept by a process that sleeps, gone with its last process.

make_namespace() {
  alive "$state/namespace.pid" "$holder" && return
  mkdir -p "$state"/{run,mnt-run,lib/images,log,etc,cache,guests,home}
  # shellcheck disable=SC2174
  mkdir -p -m 711 "$STATE_DIR/.cache"
  if [ -z "$(others)" ]; then
    rm -f "$STATE_DIR/.chains-were-there"
    # Not ours to remove then.
    ! iptables -w -S 2>/dev/null | grep LIBVIRT > /dev/null || touch "$STATE_DIR/.chains-were-there"
  fi

  # The machine's accounts and one more. `*` as a password: no password fits, and sshd does not take it for locked.
  cp /etc/passwd /etc/group /etc/shadow "$state/etc/"
  chmod 640 "$state/etc/shadow"
  sed -i '/^operator:/d' "$state"/etc/{passwd,group,shadow}
  echo "operator:x:61234:61234::$state/home:/bin/sh" >> "$state/etc/passwd"
  echo 'operator:*:19000:0:99999:7:::' >> "$state/etc/shadow"
  echo 'operator:x:61234:' >> "$state/etc/group"
  sed -i -E 's/^(libvirt:[^:]*:[^:]*:).*/\1operator/' "$state/etc/group"
  chown 61234:61234 "$state/home"
  libvirt_config

  detached "$state/log/namespace.log" env STATE="$state" HOLDER="$holder" KVM="${KVM:-no}" \
    unshare --mount --propagation private bash -c "$inside_namespace" > "$state/namespace.pid" ||
    die "the namespace was not made"
}

# The processes of the namespace, that is, every one that is the hypervisor's: daemons, guests, dnsmasq, sessions.
members() {
  local ns link
  ns=$(namespace_id)
  [ -n "$ns" ] || return 0
  for link in /proc/[0-9]*/ns/mnt; do
    [ "$(readlink "$link" 2>/dev/null)" != "$ns" ] || { link=${link#/proc/}; echo "${link%%/*}"; }
  done
}

# Known by any one process that still runs: the one that keeps it may have been killed.
namespace_id() {
  local daemon
  if alive "$state/namespace.pid" "$holder"; then readlink "/proc/$(cat "$state/namespace.pid")/ns/mnt"; return; fi
  for daemon in libvirtd sshd virtlogd; do
    if alive "$state/$daemon.pid" "$(mark $daemon)"; then readlink "/proc/$(cat "$state/$daemon.pid")/ns/mnt"; return; fi
  done
}

# shellcheck disable=SC2016
inside_namespace='
set -euo pipefail
# A /dev of its own with the usual nodes. Without /dev/kvm libvirt offers emulation only, which is what works on any
# machine; with it, libvirt-qemu must be able to open it, or libvirtd probes QEMU again (for seconds) at every look-up.
mkdir -p "$STATE/dev"
mount -t tmpfs -o mode=755,nosuid tmpfs "$STATE/dev"
mkdir -p "$STATE"/dev/{pts,shm,net}
mount --rbind /dev/pts "$STATE/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$STATE/dev/shm"
node() { mknod -m "$1" "$STATE/dev/$2" c "$3" "$4"; }
node 666 null 1 3; node 666 zero 1 5; node 666 full 1 7; node 666 random 1 8; node 666 urandom 1 9
node 666 tty 5 0; node 666 ptmx 5 2; node 600 net/tun 10 200
if [ "$KVM" = yes ] && [ -e /dev/kvm ]; then node 660 kvm 10 232; chgrp kvm "$STATE/dev/kvm"; fi
ln -s /proc/self/fd "$STATE/dev/fd"
for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%:*}" "$STATE/dev/${n#*:}"; done
mount --rbind "$STATE/dev" /dev

# A /run of its own also keeps libvirtd from the system bus of a machine that has one.
mkdir -p /run
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$STATE/mnt-run"
mkdir -p "$STATE"/mnt-run/{libvirt,sshd,lock}
mount --bind "$STATE/run" "$STATE/mnt-run/libvirt"
mount --rbind "$STATE/mnt-run" /run

for pair in lib:/var/lib/libvirt log:/var/log/libvirt cache:/var/cache/libvirt etc/libvirt:/etc/libvirt \
  etc/passwd:/etc/passwd etc/group:/etc/group etc/shadow:/etc/shadow; do
  mount --bind "$STATE/${pair%%:*}" "${pair#*:}"
done
echo $BASHPID >&3
exec -a "$HOLDER" sleep infinity 3>&-
'
