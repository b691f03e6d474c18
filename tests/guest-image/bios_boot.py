"""Writes GRUB's two BIOS stages into a disk image, as grub-install does on a mounted disk.

usage: bios_boot.py IMAGE BOOT.IMG CORE.IMG SECTOR      SECTOR is where the BIOS boot partition begins
"""
import struct
import sys

image, boot_path, core_path, sector = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
boot = bytearray(open(boot_path, "rb").read(512))
core = bytearray(open(core_path, "rb").read())
core += bytes(-len(core) % 512)

# boot.img: where the first sector of core.img lies.
struct.pack_into("<Q", boot, 0x5C, sector)
# core.img's first sector ends with a list of blocks: start, count, segment. One block: all the rest.
struct.pack_into("<QHH", core, 500, sector + 1, len(core) // 512 - 1, 0x820)

with open(image, "r+b") as disk:
    disk.write(boot[:440])  # what follows is the disk's signature and the protective partition table
    disk.seek(sector * 512)
    disk.write(core)
