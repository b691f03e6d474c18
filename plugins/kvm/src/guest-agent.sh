#!/bin/sh
# Installs and starts the QEMU guest agent, which tells the hypervisor this machine's addresses. The machine serves
# without it: whatever fails here is said, and does not fail the boot.
export DEBIAN_FRONTEND=noninteractive
PATH="$PATH:/usr/sbin:/sbin"

have() { command -v "$1" >/dev/null 2>&1; }

apt_install() { apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install qemu-guest-agent; }

install_agent() {
    if have apt-get; then
        # The lists may be there already; if not, or if they are old, they are fetched.
        apt_install || { apt-get -q -o DPkg::Lock::Timeout=300 update; apt_install; }
    elif have dnf; then
        dnf -y -q install qemu-guest-agent
    elif have zypper; then
        zypper --non-interactive --quiet install --no-recommends qemu-guest-agent
    elif have apk; then
        apk add --no-cache qemu-guest-agent
    else
        echo "no package manager that is known here"
        return 1
    fi
}

# No `systemctl enable`: the unit is static, and udev starts it at later boots.
start_agent() {
    if have systemctl; then
        systemctl start qemu-guest-agent
    elif have rc-service; then
        rc-update add qemu-guest-agent default
        rc-service qemu-guest-agent start
    fi
}

if have qemu-ga; then
    exit 0
fi
if install_agent && start_agent; then
    echo "the guest agent runs"
else
    echo "the guest agent was not installed; addresses come from leases" >&2
fi
exit 0
