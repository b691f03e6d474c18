#!/bin/bash
# The guest that the tests boot: Debian 12 with Debian's own cloud-init and its stock module lists, bootable by UEFI and
# by BIOS, with neither squid nor the guest agent in it. Beside it a flat apt repository of what guests install.
# Prints the directory that holds base.qcow2, base.qcow2.sha256, base.qcow2.sha512 and repo/; progress goes to stderr.
# usage: build.sh        Built once (a minute) and kept in the cache. Needs root, no loop device, no mount of the image.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
started=$SECONDS
say() { echo "guest image: $* ($((SECONDS - started)) s)" >&2; }

cache=${PROXY_OPERATOR_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/proxy-operator}
hash=$(cat "$here"/*.sh "$here"/*.py | sha256sum | cut -c1-12)
out=$cache/guest-$hash
if [ -d "$out" ]; then echo "$out"; exit 0; fi

# Two runs at once: the second waits and finds what the first has made.
mkdir -p "$cache"
exec 9> "$cache/guest.lock"
flock 9
if [ -d "$out" ]; then echo "$out"; exit 0; fi
[ "$(id -u)" = 0 ] || { echo "guest image: needs root to build" >&2; exit 1; }

work=$(mktemp -d "$cache/.guest-XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root; made=$work/made
mkdir -p "$made/repo"

# Packages come from where this machine's own come from.
release=bookworm
sources() { apt-get indextargets --format 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT) # $(ORIGIN) $(CODENAME)' 'Created-By: Packages' | sed -nE "s/ # Debian $release(-updates|-security)?\$//p"; }
sources > "$work/sources.list"
if [ ! -s "$work/sources.list" ]; then apt-get -qq update >&2; sources > "$work/sources.list"; fi
[ -s "$work/sources.list" ] || { echo "guest image: apt has no source of Debian $release here" >&2; exit 1; }

say "making the root tree"
# In a mount namespace, so that no mount stays behind when it is killed.
unshare --mount --propagation private "$here/root.sh" "$work/sources.list" "$root" >&2
say "collecting the guests' packages"
"$here/repo.sh" "$work/sources.list" "$root" "$made/repo" squid qemu-guest-agent jq curl >&2
say "making the disk"
"$here/disk.sh" "$root" "$made/base.qcow2" >&2
for sum in sha256 sha512; do (cd "$made" && "${sum}sum" base.qcow2 > base.qcow2.$sum); done
chmod -R a+rX "$made"
mv "$made" "$out"
say "done, $(du -m "$out/base.qcow2" | cut -f1) MB"
echo "$out"
