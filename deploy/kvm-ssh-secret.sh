#!/bin/bash
# Makes the Secret that an ssh:// hypervisor needs: ssh-privatekey and known_hosts.
# env: KVM_SSH_KEY (the private key), KVM_KNOWN_HOSTS (default ~/.ssh/kvm_known_hosts), SECRET (default kvm-ssh),
#      FOLDER (a folder of manifests: fills FOLDER/secrets/SECRET), NAMESPACE (with kubectl; default proxy-operator)
set -euo pipefail
die() { printf 'kvm-ssh-secret: %s\n' "$*" >&2; exit 1; }
key=${KVM_SSH_KEY:-} hosts=${KVM_KNOWN_HOSTS:-$HOME/.ssh/kvm_known_hosts} secret=${SECRET:-kvm-ssh}
[ -n "$key" ] || die "set KVM_SSH_KEY to the private key, e.g. KVM_SSH_KEY=~/.ssh/kvm"
case $key in *.pub) die "$key is a public key; the operator needs the private one, ${key%.pub}" ;; esac
[ -f "$key" ] || die "there is no key $key; make one with: ssh-keygen -t ed25519 -N '' -f $key"
grep -q 'PRIVATE KEY' "$key" || die "$key is not a private key in OpenSSH or PEM form"
ssh-keygen -y -P '' -f "$key" > /dev/null 2>&1 ||
  die "$key cannot be read without a passphrase; make one for the operator: ssh-keygen -t ed25519 -N '' -f KEY"
[ -s "$hosts" ] || die "there is no $hosts; write it with: ssh-keyscan -p PORT HOST > $hosts (under the address that the Provider dials), and compare the fingerprints"
if [ -n "${FOLDER:-}" ]; then
  target=$FOLDER/secrets/$secret
  mkdir -p -m 0700 "$FOLDER/secrets" "$target"
  install -m 0600 "$key" "$target/ssh-privatekey"
  install -m 0644 "$hosts" "$target/known_hosts"
  echo "filled $target"
elif command -v kubectl > /dev/null && kubectl cluster-info > /dev/null 2>&1; then
  kubectl create secret generic "$secret" --namespace "${NAMESPACE:-proxy-operator}" --type kubernetes.io/ssh-auth \
    --from-file=ssh-privatekey="$key" --from-file=known_hosts="$hosts" --dry-run=client -o yaml | kubectl apply -f -
else
  die "no cluster answers to kubectl; for a standalone operator give FOLDER=its folder of manifests"
fi
