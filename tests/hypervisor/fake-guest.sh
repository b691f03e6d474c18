#!/bin/bash
# A guest in seconds: in place of a booted domain, a network namespace on the bridge with the domain's MAC address, which
# gets a lease of libvirt's DHCP server and runs a real squid. libvirt's LEASE source knows it; there is no agent.
# usage: fake-guest.sh up NAME DOMAIN      prints ADDRESS=… and PORT=…
#        fake-guest.sh down NAME DOMAIN
# env, for up: SQUID_CONF (a squid.conf, used as it is), or PASSWD (a file for basic_ncsa_auth; without one squid is open
#      to all) and PORT (default 3128)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command=${1:?up or down}; use "${2:?name}"; domain=${3:?domain}
dir=$state/guests/$domain
netns=po-$name-$domain
# An interface's name has at most 15 bytes.
link=pg$(printf %s "$name/$domain" | sha256sum | cut -c1-12)

down() {
  local pids
  if ip link show "$link" > /dev/null 2>&1; then ip link delete "$link"; fi
  if [ -e "/run/netns/$netns" ]; then
    mapfile -t pids < <(ip netns pids "$netns")
    # As when a machine is switched off: squid would wait for its clients.
    [ ${#pids[@]} = 0 ] || { kill -KILL "${pids[@]}" 2>/dev/null || true; end "${pids[@]}"; }
    ip netns delete "$netns"
  fi
  rm -rf "$dir"
}

# In the guest's network and the hypervisor's mount namespace: so it ends with the hypervisor.
in_guest() { nsenter --mount="/proc/$NS_PID/ns/mnt" --net="/run/netns/$netns" -- "$@"; }
listens() { [ -n "$(ip netns exec "$netns" ss -Hltn "sport = :$PORT")" ]; }

up() {
  local mac conf=${SQUID_CONF:-$dir/squid.conf}
  PORT=${PORT:-3128}
  . "$state/env"
  mac=$(virsh dumpxml "$domain" | sed -nE "s/.*<mac address='([^']*)'.*/\1/p" | head -n 1)
  [ -n "$mac" ] || die "$domain has no interface"
  mkdir -p "$dir"; chmod 755 "$dir"
  ip netns add "$netns"
  ip link add "$link" type veth peer name eth0 address "$mac" netns "$netns"
  ip link set "$link" master "$BRIDGE" up
  ip -n "$netns" link set lo up
  ip -n "$netns" link set eth0 up

  cat > "$dir/udhcpc.sh" <<'X'
#!/bin/sh
[ "$1" = bound ] && ip address add "$ip/$mask" dev "$interface" && echo "$ip" > "${0%/*}/address"
exit 0
X
  chmod 755 "$dir/udhcpc.sh"
  in_guest busybox udhcpc -i eth0 -f -n -q -t 10 -T 1 -s "$dir/udhcpc.sh" > "$dir/udhcpc.log" 2>&1 ||
    { cat "$dir/udhcpc.log" >&2; die "no lease for $domain"; }

  if [ -n "${SQUID_CONF:-}" ]; then
    PORT=$(sed -nE 's/^http_port ([^ ]*:)?([0-9]+).*/\2/p' "$SQUID_CONF" | head -n 1); PORT=${PORT:-3128}
  else
    squid_conf > "$conf"
  fi
  chown proxy: "$dir"
  detached "$dir/squid.log" nsenter --mount="/proc/$NS_PID/ns/mnt" --net="/run/netns/$netns" -- \
    sh -c 'echo $$ >&3; exec "$@" 3>&-' squid squid -N -n "$link" -f "$conf" > "$dir/squid.pid"
  wait_for 20 "squid of $domain" listens ||
    { tail -n 20 "$dir"/squid.log "$dir"/cache.log >&2 || true; exit 1; }
  echo "ADDRESS=$(cat "$dir/address")"
  echo "PORT=$PORT"
}

squid_conf() {
  echo "http_port $PORT"
  if [ -n "${PASSWD:-}" ]; then
    install -m 640 -g proxy "$PASSWD" "$dir/passwd"
    echo "auth_param basic program /usr/lib/squid/basic_ncsa_auth $dir/passwd"
    echo 'acl authed proxy_auth REQUIRED'
    echo 'http_access allow authed'
    echo 'http_access deny all'
  else
    echo 'http_access allow all'
  fi
  cat <<X
dns_nameservers $BRIDGE_ADDRESS
cache deny all
via off
forwarded_for delete
shutdown_lifetime 1 second
pinger_enable off
netdb_filename none
pid_filename none
coredump_dir $dir
cache_log $dir/cache.log
access_log stdio:$dir/access.log
X
}

case $command in
  up)
    down
    trap down EXIT
    up
    trap - EXIT ;;
  down) down ;;
  *) die "unknown command $command" ;;
esac
