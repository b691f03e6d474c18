#!/bin/bash
# Installs the Debian packages that the tests and the demo need. Quick when all are there.
# usage: packages.sh [--check]      --check only says what is missing (exit status 1 if anything is)
set -euo pipefail

packages=(
  # the hypervisor: libvirtd, QEMU, UEFI firmware, DHCP
  libvirt-daemon-system libvirt-daemon libvirt-daemon-driver-qemu libvirt-clients
  qemu-system-x86 qemu-utils ipxe-qemu ovmf dnsmasq-base iptables
  # the way to it, and guests that are not booted
  openssh-server openssh-client squid busybox iproute2 curl python3 procps util-linux
  # the guest image and its package repository
  mmdebstrap dpkg-dev e2fsprogs gdisk dosfstools mtools grub-common grub-pc-bin grub-efi-amd64-bin
  # seeds are read back by the real parser
  cloud-init genisoimage xorriso
  # the build
  build-essential pkg-config libvirt-dev libssl-dev lld
)

mapfile -t installed < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' | sort -u)
mapfile -t missing < <(comm -23 <(printf '%s\n' "${packages[@]}" | sort -u) <(printf '%s\n' "${installed[@]}"))
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "${1:-}" = --check ] || [ "$(id -u)" != 0 ]; then
  echo "packages.sh: missing packages. As root: apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

# Nothing that is installed here may start a service: the tests start their own daemons.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' > $policy
  chmod 755 $policy
fi

export DEBIAN_FRONTEND=noninteractive
echo "packages.sh: installing ${missing[*]}" >&2
apt=(apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update >&2
install=("${apt[@]}" install -y --no-install-recommends "${missing[@]}")
if ! "${install[@]}" >&2; then
  # A qemu-utils newer than the release's own (from backports, say) keeps the release's QEMU out.
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  echo "packages.sh: trying again with qemu-utils of $codename" >&2
  "${install[@]}" --allow-downgrades "qemu-utils/$codename" >&2
fi
