#!/bin/bash
# One qcow2 that boots under BIOS and UEFI.   usage: disk.sh ROOTDIR OUT.qcow2
# Built from files alone, as not every kernel that runs this has loop devices, a GPT parser or vfat.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${1:?root dir} out=${2:?output image}
work=$(mktemp -d "$(dirname "$out")/.disk-XXXXXX"); trap 'rm -rf "$work"' EXIT
image=$work/disk.raw

# Sectors of 512 bytes: 1 MiB of BIOS boot loader, 32 MiB of EFI system partition, then the root file system.
bios=2048 esp=4096 rootfs=69632
size=$((1536 * 2048)); root_size=$((size - rootfs - 2048))
truncate -s $((size * 512)) "$image"
sgdisk -a 2048 -n1:$bios:+1M -t1:ef02 -n2:$esp:+32M -t2:ef00 -n3:$rootfs:$((rootfs + root_size - 1)) -t3:8304 "$image" > /dev/null

# -d copies the tree in, owners and attributes included.
mke2fs -q -t ext4 -L rootfs -O ^metadata_csum_seed,^orphan_file -d "$root" -E "offset=$((rootfs * 512)),lazy_itable_init=1,nodiscard" "$image" $((root_size / 2))k

# One small GRUB for each firmware, which reads /boot/grub/grub.cfg of the root file system.
printf 'search --no-floppy --label rootfs --set=root\nset prefix=($root)/boot/grub\n' > "$work/early.cfg"
common=(part_gpt ext2 search search_label normal linux echo test minicmd)
grub-mkimage -O x86_64-efi -c "$work/early.cfg" -p /boot/grub -o "$work/BOOTX64.EFI" "${common[@]}"
grub-mkimage -O i386-pc -c "$work/early.cfg" -p /boot/grub -o "$work/core.img" biosdisk "${common[@]}"
python3 "$here/bios_boot.py" "$image" /usr/lib/grub/i386-pc/boot.img "$work/core.img" $bios

mkfs.vfat -F16 -n ESP -C "$work/esp.img" 32768 > /dev/null
mmd -i "$work/esp.img" ::/EFI ::/EFI/BOOT
mcopy -i "$work/esp.img" "$work/BOOTX64.EFI" ::/EFI/BOOT/BOOTX64.EFI
dd if="$work/esp.img" of="$image" bs=512 seek=$esp conv=notrunc status=none

qemu-img convert -O qcow2 -c "$image" "$out"
