#!/bin/bash
# The package repository and the HTTP target on a hypervisor's bridge address (see services.py).
# usage: services.sh up NAME [REPOSITORY]     a folder; `-` for none; default: that of the guest image, built if need be
#        services.sh down NAME
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command=${1:?up or down}; use "${2:?name}"
pidfile=$state/services.pid

case $command in
  up)
    repository=${3:-$("$folder/../guest-image/build.sh")/repo}
    [ "$repository" = - ] || [ -e "$repository/Packages" ] || die "no repository in $repository"
    . "$state/env"
    if alive "$pidfile" "services.py $BRIDGE_ADDRESS $repository "; then exit 0; fi
    "$0" down "$name"
    detached "$state/log/services.log" nsenter --mount="/proc/$NS_PID/ns/mnt" \
      /usr/bin/python3 "$folder/services.py" "$BRIDGE_ADDRESS" "$repository" > "$pidfile" || die "services do not start" ;;
  down)
    if alive "$pidfile" services.py; then end "$(cat "$pidfile")"; fi
    rm -f "$pidfile" ;;
  *) die "unknown command $command" ;;
esac
