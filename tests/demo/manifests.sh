# The manifests of the demo, with the addresses of its hypervisor. Sourced.

provider_manifest() {
  cat <<X
apiVersion: crawl.example.com/v1alpha1
kind: Provider
metadata:
  name: kvm-home
spec:
  plugin: {name: kvm}
  config:
    images:
      debian-12:
        url: file://$image/base.qcow2
        digest: sha256:$(cut -d' ' -f1 "$image/base.qcow2.sha256")
    machineTypes:
      small: {vcpus: 1, memoryMiB: 768, diskGiB: 4}
    defaultImage: debian-12
    defaultMachineType: small
    domainType: qemu
  grants:
    libvirt:
      hosts:
        hv1:
          address: $SSH_ADDRESS
          secret: kvm-ssh
          pools: [$POOL]
          networks: [$NETWORK]
    images:
      urlPrefixes: ["file://$image/"]
X
}

probe() {
  cat <<X
  probe:
    url: http://$BRIDGE_ADDRESS:8204/
    egressUrl: http://$BRIDGE_ADDRESS:8204/echo
    intervalSeconds: 10
X
}

# A user's own document: its packages, its files, its commands.
proxy_with_own_document() {
  cat <<X
apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata:
  name: crawl-own
spec:
  provider: kvm-home
  machineType: small
  image: debian-12
  access:
    allowFrom: [$BRIDGE_CIDR]
$(probe)
  cloudInit:
    userData: |
      #cloud-config
      packages: [squid, jq]
      write_files:
        - path: /etc/squid/conf.d/10-own.conf
          content: |
            acl bridge src $BRIDGE_CIDR
            http_access allow bridge
            cache deny all
            shutdown_lifetime 1 second
      runcmd:
        - [systemctl, restart, squid]
        - 'echo "user-runcmd squid=\$(dpkg-query -W -f "\\\${db:Status-Status}" squid) jq=\$(dpkg-query -W -f "\\\${db:Status-Status}" jq) agent=\$(dpkg-query -W -f "\\\${db:Status-Status}" qemu-guest-agent)" >> /var/log/order.log'
X
}

# No document: the operator renders one, with credentials of its own making.
proxy_with_rendered_document() {
  cat <<X
apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata:
  name: crawl-rendered
spec:
  provider: kvm-home
  access:
    # The demo's target stands on the hypervisor's bridge, a private destination.
    allowPrivateDestinations: [$BRIDGE_CIDR]
$(probe)
X
}
