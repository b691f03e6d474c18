#!/bin/bash
# The main job, seen from outside: a folder with a Provider and two Proxies becomes two machines with squid on a
# hypervisor reached through SSH; a request through each answers 204; what is deleted leaves nothing.
# usage: demo.sh          everything, and clean up
#        demo.sh keep     leaves operator, hypervisor and machines running, and says how to end them
#        demo.sh down     ends what `keep` left
# env: PROFILE (dev or release, default dev), LIMIT (seconds until both are Ready, default 900),
#      DEMO_DIR (default /tmp/proxy-operator-demo)
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(dirname "$(dirname "$here")")
. "$here/steps.sh"
. "$here/manifests.sh"

PROFILE=${PROFILE:-dev} LIMIT=${LIMIT:-900} DEMO_DIR=${DEMO_DIR:-/tmp/proxy-operator-demo}
export STATE_DIR=$DEMO_DIR/hypervisors
hypervisor=demo
folder=$DEMO_DIR/folder
hv="$root/tests/hypervisor/hypervisor.sh"

down() {
  if [ -e "$DEMO_DIR/operator.pid" ]; then
    end_process "$(cat "$DEMO_DIR/operator.pid")" "proxy-operator standalone"
    rm -f "$DEMO_DIR/operator.pid"
  fi
  "$root/tests/hypervisor/services.sh" down $hypervisor
  "$hv" down $hypervisor
}

build() {
  "$root/tests/setup/packages.sh" >&2
  (cd "$root" && cargo build --quiet --profile "$PROFILE" -p proxy-operator)
  target=${CARGO_TARGET_DIR:-$root/target}
  program=$target/$([ "$PROFILE" = dev ] && echo debug || echo "$PROFILE")/proxy-operator
  (cd "$root" && CARGO_TARGET_DIR='' && unset CARGO_TARGET_DIR && plugins/build.sh -o "$DEMO_DIR/plugins" kvm >&2)
}

start_hypervisor() {
  "$hv" up $hypervisor > /dev/null
  # shellcheck disable=SC1090
  . <("$hv" env $hypervisor)
  "$root/tests/hypervisor/services.sh" up $hypervisor "$image/repo"
}

start_operator() {
  mkdir -p "$folder/secrets/kvm-ssh"
  install -m 0600 "$SSH_KEY" "$folder/secrets/kvm-ssh/ssh-privatekey"
  install -m 0644 "$KNOWN_HOSTS" "$folder/secrets/kvm-ssh/known_hosts"
  provider_manifest > "$folder/provider.yaml"
  proxy_with_own_document > "$folder/crawl-own.yaml"
  proxy_with_rendered_document > "$folder/crawl-rendered.yaml"
  setsid "$program" standalone "$folder" --plugins "$DEMO_DIR/plugins" --log-format text \
    --log info,libvirt=debug > "$DEMO_DIR/operator.log" 2>&1 < /dev/null &
  echo $! > "$DEMO_DIR/operator.pid"
}

get() { "$program" get -C "$folder" "$@"; }

# both PHASE: whether both Proxies are in it
both() { [ "$(get proxies -o json 2> /dev/null | python3 -c '
import json, sys
text = sys.stdin.read() or "{}"
print(sum((item.get("status") or {}).get("phase") == sys.argv[1] for item in json.loads(text).get("items", [])))' "$1")" = 2 ]; }

show_progress() { get proxies 2> /dev/null | awk 'NR > 1 {$1 = $7 = ""; print "   " $0}' | cut -c1-150; }

request_through() { # NAME → the status of the target through the proxy of that name
  local url
  url=$(sed -n 's/^url=//p' "$folder/state/connections/$1")
  curl --silent --max-time 20 --output /dev/null --write-out '%{http_code}' --proxy "$url" "http://$BRIDGE_ADDRESS:8204/"
}

domain_of() { get proxies "$1" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["status"]["providerID"].split("/")[-1])'; }

in_guest() { "$root/tests/hypervisor/guest-exec.sh" $hypervisor "$(domain_of "$1")" "$2"; }

agent_answers() { in_guest "$1" true 2> /dev/null; }

see_inside() {
  # Squid answers before the vendor script has installed the agent.
  for name in crawl-own crawl-rendered; do wait_until "$LIMIT" true agent_answers $name; done
  in_guest crawl-own 'cloud-init status --wait > /dev/null; cat /var/log/order.log'
  # The user's packages first, then the vendor script with the agent, then the user's runcmd.
  in_guest crawl-own 'grep -h Commandline /var/log/apt/history.log' | tee "$DEMO_DIR/apt-own"
  grep -n squid "$DEMO_DIR/apt-own" | grep -q jq
  [ "$(grep -n 'install.*jq' "$DEMO_DIR/apt-own" | cut -d: -f1)" -lt "$(grep -n 'install.*qemu-guest-agent' "$DEMO_DIR/apt-own" | cut -d: -f1)" ]
  in_guest crawl-own 'grep "^user-runcmd squid=installed jq=installed agent=installed$" /var/log/order.log'
  in_guest crawl-rendered 'cloud-init status --wait > /dev/null; grep -h Commandline /var/log/apt/history.log'
  for name in crawl-own crawl-rendered; do
    in_guest $name '! grep -E "WARN|Traceback" /var/log/cloud-init.log' || fail "cloud-init warned in $name"
  done
}

leftovers() { # what is on the hypervisor that the operator made for a Proxy
  "$hv" virsh $hypervisor list --all --name | grep -v '^$' || true
  "$hv" virsh $hypervisor vol-list default | awk 'NR > 2 && NF {print $1}' | grep -v '^base-' || true
  "$hv" run $hypervisor find /var/lib/libvirt/qemu/nvram -type f 2> /dev/null || true
}

if [ "${1:-}" = down ]; then down; exit 0; fi
trap 'status=$?; [ $status = 0 ] || { echo "the demo failed; the operator log is $DEMO_DIR/operator.log, its end:" >&2; tail -n 25 "$DEMO_DIR/operator.log" >&2 || true; }; [ "${1:-}" = keep ] && [ $status = 0 ] || down || true' EXIT

[ ! -e "$DEMO_DIR/operator.pid" ] || down
rm -rf "$folder"
mkdir -p "$DEMO_DIR" "$folder"
step "packages, operator and kvm plugin are built" build
step "a stock Debian image is there" eval 'image=$("$root/tests/guest-image/build.sh")'
step "a hypervisor runs: libvirtd, sshd (user, key, known_hosts), network, pool" start_hypervisor
step "the operator runs over $folder" start_operator
step "both Proxies are Ready" wait_until "$LIMIT" show_progress both Ready
get
for name in crawl-own crawl-rendered; do
  step "a request through $name answers 204" wait_until 60 true eval "[ \"\$(request_through $name)\" = 204 ]"
done
step "inside the guests: packages, agent by the vendor script, then runcmd" see_inside
if [ "${1:-}" = keep ]; then
  cat <<X
All of it runs on. Look:    $program get -C $folder --watch
                            $program describe proxy crawl-own -C $folder
Use:                        curl -x "\$(sed -n 's/^url=//p' $folder/state/connections/crawl-rendered)" http://$BRIDGE_ADDRESS:8204/ -i
End:                        make demo-down
X
  exit 0
fi
rm "$folder/crawl-own.yaml"
step "crawl-own is deleted, crawl-rendered goes on" wait_until 120 show_progress eval '! get proxies crawl-own > /dev/null 2>&1'
[ "$(request_through crawl-rendered)" = 204 ] || fail "crawl-rendered does not answer any more"
rm "$folder/crawl-rendered.yaml"
step "crawl-rendered is deleted" wait_until 120 show_progress eval '! get proxies crawl-rendered > /dev/null 2>&1'
left=$(leftovers)
[ -z "$left" ] || fail "left on the hypervisor: $left"
echo "nothing of them is left: no domain, no overlay, no seed, no NVRAM"
trap - EXIT
step "the hypervisor is gone" down
