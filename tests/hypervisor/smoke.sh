#!/bin/bash
# Boots one real guest on a hypervisor of its own and sees it do what guests of the tests do: it gets a lease, installs
# squid and the guest agent from the test's repository, proxies a request. Prints the seconds since its start.
# usage: smoke.sh [uefi|bios]       env: KEEP=1 leaves all running, NAME (default smoke), LIMIT (seconds, default 600)
name=${NAME:-smoke} firmware=${1:-uefi}
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use "$name"
limit=${LIMIT:-600} domain=guest work=$(mktemp -d)
cleanup() {
  rm -rf "$work"
  [ -n "${KEEP:-}" ] || "$folder/hypervisor.sh" down "$name"
}
trap cleanup EXIT

image=$("$folder/../guest-image/build.sh")
"$folder/hypervisor.sh" up "$name" > /dev/null
. "$state/env"
"$folder/services.sh" up "$name" "$image/repo"

cat > "$work/user-data" <<X
#cloud-config
packages: [squid]
write_files:
  - path: /etc/squid/conf.d/10-smoke.conf
    content: |
      auth_param basic program /usr/lib/squid/basic_ncsa_auth /etc/squid/smoke.passwd
      acl authed proxy_auth REQUIRED
      http_access allow authed
      cache deny all
      shutdown_lifetime 1 second
  - path: /etc/squid/smoke.passwd
    owner: root:proxy
    permissions: "0640"
    content: "user:$(openssl passwd -5 secret)\n"
runcmd:
  - [systemctl, restart, squid]
  - 'echo "user \$(dpkg-query -s qemu-guest-agent | grep ^Status)" >> /var/log/order.log'
X
cat > "$work/vendor-data" <<'X'
#!/bin/sh
set -eu
export DEBIAN_FRONTEND=noninteractive
echo "vendor squid=$(dpkg-query -W -f '${db:Status-Status}' squid)" >> /var/log/order.log
apt-get -q -o DPkg::Lock::Timeout=300 update
apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install qemu-guest-agent
systemctl start qemu-guest-agent
X
printf 'instance-id: %s\nlocal-hostname: %s\n' "$domain-$(date +%s)" "$domain" > "$work/meta-data"
mkfs.vfat -n CIDATA -C "$work/seed" 1024 > /dev/null
mcopy -i "$work/seed" "$work"/{meta,user,vendor}-data ::

seconds() { echo "$(date +%s.%N) $started" | awk '{printf "%.1f", $1 - $2}'; }
upload() { # FILE VOLUME FORMAT
  virsh vol-create-as default "$2" "$(stat -c %s "$1")" --format "$3" > /dev/null
  virsh vol-upload "$2" "$1" --pool default
}
started=$(date +%s.%N)
upload "$image/base.qcow2" base.qcow2 qcow2
upload "$work/seed" seed.img raw
virsh vol-create-as default "$domain.qcow2" 4G --format qcow2 --backing-vol base.qcow2 --backing-vol-format qcow2 > /dev/null
say "uploaded in $(seconds) s"

if [ "$firmware" = uefi ]; then
  os="<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type><firmware><feature enabled='no' name='secure-boot'/></firmware><boot dev='hd'/></os>"
else
  os="<os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>"
fi
cat > "$work/domain.xml" <<X
<domain type='qemu'><name>$domain</name><memory unit='MiB'>768</memory><vcpu>1</vcpu>$os
<features><acpi/><apic/></features>
<devices>
<disk type='volume' device='disk'><driver name='qemu' type='qcow2' cache='unsafe'/><source pool='default' volume='$domain.qcow2'/><target dev='vda' bus='virtio'/></disk>
<disk type='volume' device='disk'><driver name='qemu' type='raw'/><source pool='default' volume='seed.img'/><target dev='vdb' bus='virtio'/><readonly/></disk>
<interface type='network'><source network='lan'/><model type='virtio'/><rom enabled='no'/></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<serial type='file'><source path='/var/log/libvirt/console.log'/></serial>
<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
<memballoon model='none'/>
</devices></domain>
X
virsh define "$work/domain.xml" > /dev/null
virsh start "$domain" > /dev/null
started=$(date +%s.%N)

lease() { address=$(virsh domifaddr "$domain" --source lease | awk '$3 == "ipv4" {sub("/.*", "", $4); print $4; exit}'); [ -n "$address" ]; }
proxies() { [ "$(curl -s -m 5 -o /dev/null -w '%{http_code}' -U user:secret -x "http://$address:3128" "http://$BRIDGE_ADDRESS:8204/")" = 204 ]; }
agent() { virsh qemu-agent-command --timeout 5 "$domain" '{"execute": "guest-ping"}' > /dev/null 2>&1; }
for what in lease proxies agent; do
  if ! wait_for "$limit" "$what of a $firmware guest" $what; then tail -n 40 "$LOGS/console.log" >&2; exit 1; fi
  say "$firmware: $what after $(seconds) s"
done
"$folder/guest-exec.sh" "$name" "$domain" 'cloud-init status --wait --long; cat /var/log/order.log; ! grep -E "WARN|ERROR|Traceback" /var/log/cloud-init.log'
say "$firmware: cloud-init done after $(seconds) s"
[ "$(curl -s -U user:secret -x "http://$address:3128" "http://$BRIDGE_ADDRESS:8204/echo")" = "$address" ] || die "the request did not leave through the guest"
say "$firmware: all as expected"
