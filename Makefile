# What can be run. Each target works on a fresh Debian 12 machine; what is missing is installed or named.
.PHONY: demo demo-keep demo-down test check e2e-kvm bench plugins crds kvm-ssh-secret setup deny fmt

CARGO ?= cargo
SSH_DIR ?= $(HOME)/.ssh
KVM_KNOWN_HOSTS ?= $(SSH_DIR)/kvm_known_hosts

# The main job: two Proxies on a hypervisor of its own, a request through each, both deleted.
demo:
	tests/demo/demo.sh
# The same, left running.
demo-keep:
	tests/demo/demo.sh keep
demo-down:
	tests/demo/demo.sh down

# Debian's packages, and the check of licences and advisories.
setup:
	tests/setup/packages.sh

# All suites on real parts.
test: setup
	tests/run.sh

# Format, lints, licences and unit tests: the quick one.
check:
	$(CARGO) fmt --all --check
	cd plugins && $(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace --exclude proxy-operator-bench --lib --bins

# Licences and advisories (needs cargo-deny).
deny:
	$(CARGO) deny check licenses bans sources

# Provider and Proxies on a real libvirtd through a real sshd.
e2e-kvm: setup plugins
	$(CARGO) test -p proxy-operator --test e2e_kvm -- --nocapture

# Figures into target/bench/results.json.
bench: setup plugins
	tests/bench.sh

# The plugins, into plugins/target/plugins.
plugins:
	plugins/build.sh

# A Secret with the key and the host keys for hypervisors.
#   make kvm-ssh-secret KVM_SSH_KEY=~/.ssh/kvm [KVM_KNOWN_HOSTS=…] [SECRET=kvm-ssh] [FOLDER=… | NAMESPACE=…]
kvm-ssh-secret:
	@KVM_SSH_KEY="$(KVM_SSH_KEY)" KVM_KNOWN_HOSTS="$(KVM_KNOWN_HOSTS)" SECRET="$(SECRET)" FOLDER="$(FOLDER)" \
	  NAMESPACE="$(NAMESPACE)" deploy/kvm-ssh-secret.sh
