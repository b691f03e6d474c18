#!/bin/bash
# The guest's root tree.   usage: root.sh SOURCES.LIST ROOTDIR
set -euo pipefail
sources=${1:?sources.list} root=${2:?root dir}

# Before the kernel's installation, so that its initrd is made once: only the modules that find the root disk.
before='mkdir -p "$1/etc/initramfs-tools/conf.d"
echo MODULES=list > "$1/etc/initramfs-tools/conf.d/small"
printf "virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n" > "$1/etc/initramfs-tools/modules"'

# cloud-guest-utils (growpart) and eatmydata are what cloud-init recommends; Debian's cloud images have them.
# The last line are libraries and data that squid and the agent depend on: unpacked by an emulated processor they would
# cost each guest half a minute.
# No man pages, docs and translations: speed only, also for what the guest installs later.
mmdebstrap --quiet --mode=root --variant=minbase --format=directory \
  --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='force-unsafe-io' \
  --include=linux-image-cloud-amd64,initramfs-tools,zstd,systemd,systemd-sysv,systemd-resolved,udev,dbus,cloud-init,cloud-guest-utils,eatmydata,netplan.io,iproute2,openssh-server,ca-certificates,sudo,procps,python3,\
logrotate,netbase,sgml-base,squid-langpack,libdbi-perl,libecap3,libldap-2.5-0,libltdl7,libnetfilter-conntrack3,libtdb1,libnuma1,liburing2 \
  --essential-hook="$before" \
  bookworm "$root" "$sources"

for package in squid qemu-guest-agent curl; do
  if chroot "$root" dpkg-query -W -f '${db:Status-Status}' $package 2>/dev/null | grep -q '^installed'; then
    echo "$package is in the image; the guest is to install it" >&2; exit 1
  fi
done

# One package source: the one that a test network serves under this name (each has its own addresses).
find "$root/etc/apt/sources.list.d" "$root/var/lib/apt/lists" -mindepth 1 -delete
echo 'deb [trusted=yes] http://packages.test:8080/ ./' > "$root/etc/apt/sources.list"

echo 'LABEL=rootfs / ext4 defaults,discard 0 0' > "$root/etc/fstab"
echo guest > "$root/etc/hostname"
: > "$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_*
# The only change to cloud-init's configuration.
echo 'datasource_list: [ NoCloud, None ]' > "$root/etc/cloud/cloud.cfg.d/99_datasource.cfg"
# Without a default, cloud-init's locale module asks for en_US.UTF-8, which nothing has generated: "status: error".
echo 'LANG=C.UTF-8' > "$root/etc/default/locale"
chroot "$root" systemctl -q enable systemd-networkd systemd-resolved
# Timers that would start apt, fsck or trim work during a test, and mounts that nobody looks at.
chroot "$root" systemctl -q mask apt-daily.timer apt-daily-upgrade.timer e2scrub_reap.service e2scrub_all.timer \
  fstrim.timer dpkg-db-backup.timer systemd-timesyncd.service getty@tty1.service \
  dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
  sys-fs-fuse-connections.mount

# Kernel arguments for speed under emulation, and the console on the serial port.
kernel=$(cd "$root" && ls boot/vmlinuz-*); initrd=$(cd "$root" && ls boot/initrd.img-*)
mkdir -p "$root/boot/grub"
cat > "$root/boot/grub/grub.cfg" <<X
set gfxpayload=text
linux /$kernel root=LABEL=rootfs ro console=ttyS0,115200 net.ifnames=0 mitigations=off nokaslr audit=0 nowatchdog no_timer_check quiet loglevel=4 random.trust_cpu=on
initrd /$initrd
boot
X
