#!/bin/bash
# A flat apt repository with PACKAGES and all that they need beyond what ROOTDIR has.
# usage: repo.sh SOURCES.LIST ROOTDIR REPODIR PACKAGE...     apt itself resolves and fetches.
set -euo pipefail
sources=$(realpath "${1:?sources.list}") root=$(realpath "${2:?root dir}") repo=$(realpath "${3:?repo dir}"); shift 3
state=$(mktemp -d); trap 'rm -rf "$state"' EXIT
mkdir -p "$state"/{lists,cache/archives}/partial
apt=(-o "Dir::State=$state" -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state/cache"
  -o "Dir::Etc::SourceList=$sources" -o Dir::Etc::SourceParts=/dev/null
  -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
  -o "Dir::State::status=$root/var/lib/dpkg/status"
  -o APT::Install-Recommends=false -o Acquire::Languages=none -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" -qq update
# "Inst name (version source [arch])": a line for each package that the guest will unpack.
apt-get "${apt[@]}" -s -qq install "$@" | sed -nE 's/^Inst ([^ ]+) (\[[^]]*\] )?\(([^ ]+) .*/\1=\3/p' > "$state/want"
test -s "$state/want"
cd "$repo"
xargs apt-get "${apt[@]}" -qq download < "$state/want"
dpkg-scanpackages -m . /dev/null 2>/dev/null > Packages
gzip -9nk Packages
{
  echo "Date: $(LC_ALL=C date -u '+%a, %d %b %Y %H:%M:%S UTC')"
  echo 'SHA256:'
  for f in Packages Packages.gz; do echo " $(sha256sum $f | cut -d' ' -f1) $(stat -c %s $f) $f"; done
} > Release
