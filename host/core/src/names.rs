//! Names and identities: what is called how, and what is derived from what.
//!
//! One form serves all backends: it is a valid name in libvirt, Compute Engine and Kubernetes.

use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use proxy_operator_api::validate::is_identifier;

/// What every instance of one Provider in one installation is called by: `px` and 10 digits of a hash, then `-`.
///
/// The hash is over installation and Provider, so that two Providers on one hypervisor, or two installations, can
/// never take each other's instances for their own.
pub fn name_prefix(cluster_id: &str, provider: &str) -> String {
    let digest = hash(&["name-prefix", cluster_id, provider]);
    format!("px{}-", hex::encode(digest.get(..5).unwrap_or_default()))
}

/// The uid of an object in a store that assigns none: derived from installation, kind, namespace and name, hence
/// the same after the state was lost.
pub fn standalone_uid(cluster_id: &str, kind: &str, namespace: &str, name: &str) -> String {
    let installation = Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("proxy-operator:{cluster_id}").as_bytes());
    Uuid::new_v5(&installation, format!("{kind}/{namespace}/{name}").as_bytes()).hyphenated().to_string()
}

/// The uuid of the domain of an owner: derived from installation and owner.
pub fn domain_uuid(cluster_id: &str, owner: &str) -> Uuid {
    let installation = Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("proxy-operator:{cluster_id}").as_bytes());
    Uuid::new_v5(&installation, format!("domain/{owner}").as_bytes())
}

/// The MAC address of a network card: QEMU's prefix `52:54:00` and three bytes derived from installation, owner and
/// the card's index.
pub fn mac_address(cluster_id: &str, owner: &str, index: usize) -> String {
    let digest = hash(&["mac", cluster_id, owner, &index.to_string()]);
    let mut bytes = digest.iter().copied();
    let mut next = || bytes.next().unwrap_or_default();
    format!("52:54:00:{:02x}:{:02x}:{:02x}", next(), next(), next())
}

/// SHA-256 over parts, each preceded by its length, so that no two lists of parts give the same input.
fn hash(parts: &[&str]) -> Vec<u8> {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_safe_in_paths_and_ids() {
        for good in ["a", "hv1", "debian-12", "0-a"] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a/b", "a.b", "ä", "a b", "a\n", &"a".repeat(41)] {
            assert!(!is_identifier(bad), "{bad:?}");
        }
    }

    #[test]
    fn prefixes_differ_by_installation_and_provider() {
        let prefix = name_prefix("c1", "kvm-home");
        assert_eq!(prefix.len(), 13);
        assert_ne!(prefix, name_prefix("c2", "kvm-home"));
        assert_ne!(prefix, name_prefix("c1", "kvm-other"));
        assert_ne!(name_prefix("ab", "c"), name_prefix("a", "bc"));
        assert!(prefix.len() + 36 <= 60, "an instance's name has at most 60 bytes");
    }

    #[test]
    fn derived_identities_are_stable() {
        assert_eq!(standalone_uid("c", "Proxy", "n", "a"), standalone_uid("c", "Proxy", "n", "a"));
        assert_ne!(standalone_uid("c", "Proxy", "n", "a"), standalone_uid("c", "Proxy", "m", "a"));
        assert_ne!(domain_uuid("c", "o"), domain_uuid("d", "o"));
        let mac = mac_address("c", "o", 0);
        assert!(mac.starts_with("52:54:00:") && mac.len() == 17, "{mac}");
        assert_ne!(mac, mac_address("c", "o", 1));
    }
}
