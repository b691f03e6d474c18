//! What a hypervisor says of itself.

use proxy_operator_core::capability::libvirt::Firmware;

use super::xml::{Element, text_of};

/// What is read from a hypervisor's capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The machine's own uuid; empty where libvirt knows none.
    pub uuid: String,
    /// Its architecture.
    pub arch: String,
    /// Values for `<domain type=…>` on that architecture, the fastest first.
    pub domain_types: Vec<String>,
}

impl HostFacts {
    /// From `virConnectGetCapabilities`.
    pub fn read(capabilities: &str) -> Option<Self> {
        let root = Element::parse(capabilities)?;
        let host = root.child("host")?;
        let own = host.at(&["cpu", "arch"]).map(text_of);
        let hvm = || {
            root.all("guest")
                .filter(|guest| guest.child("os_type").is_some_and(|kind| kind.text.trim() == "hvm"))
                .filter_map(|guest| guest.child("arch"))
        };
        // A hypervisor that does not run its own architecture runs the first that it offers.
        let guest = hvm().find(|arch| arch.attribute("name") == own.as_deref()).or_else(|| hvm().next());
        let arch = guest.and_then(|arch| arch.attribute("name")).map(str::to_owned).or(own).unwrap_or_default();
        let mut domain_types: Vec<String> = Vec::new();
        for found in guest.iter().flat_map(|arch| arch.all("domain")).filter_map(|domain| domain.attribute("type")) {
            if !domain_types.iter().any(|known| known == found) {
                domain_types.push(found.to_owned());
            }
        }
        // Stable: what is neither keeps libvirt's order.
        domain_types.sort_by_key(|kind| match kind.as_str() {
            "kvm" | "hvf" => 0,
            "qemu" => 2,
            _ => 1,
        });
        Some(Self { uuid: host.child("uuid").map(text_of).unwrap_or_default(), arch, domain_types })
    }

    /// The machine that domains of this architecture have; `None` leaves it to libvirt.
    pub fn machine(&self) -> Option<&'static str> {
        match self.arch.as_str() {
            "x86_64" => Some("q35"),
            "aarch64" | "riscv64" => Some("virt"),
            _ => None,
        }
    }

    /// The kinds of firmware that a domain can ask for, from `virConnectGetDomainCapabilities`.
    pub fn firmwares(&self, domain_capabilities: Option<&str>) -> Vec<Firmware> {
        let mut firmwares = Vec::new();
        if matches!(self.arch.as_str(), "x86_64" | "i686") {
            // SeaBIOS is part of QEMU.
            firmwares.push(Firmware::Bios);
        }
        let root = domain_capabilities.and_then(Element::parse);
        let offered = root.iter().filter_map(|root| root.child("os")).flat_map(|os| os.all("enum"));
        let efi = offered
            .filter(|list| list.attribute("name") == Some("firmware"))
            .any(|list| list.all("value").any(|value| value.text.trim() == "efi"));
        if efi {
            firmwares.push(Firmware::Uefi);
        }
        firmwares
    }
}

/// A version as libvirt packs it: `9000000` is 9.0.0.
pub fn version(packed: u32) -> String {
    format!("{}.{}.{}", packed / 1_000_000, packed / 1_000 % 1_000, packed % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_fastest_first_and_of_the_hosts_own_architecture() {
        let facts = HostFacts::read(
            "<capabilities><host><uuid>u-1</uuid><cpu><arch>x86_64</arch></cpu></host>
            <guest><os_type>hvm</os_type><arch name='i686'><domain type='qemu'/></arch></guest>
            <guest><os_type>xen</os_type><arch name='x86_64'><domain type='xen'/></arch></guest>
            <guest><os_type>hvm</os_type><arch name='x86_64'><domain type='qemu'/><domain type='kvm'><machine/></domain></arch></guest>
            </capabilities>",
        );
        let facts = facts.unwrap();
        assert_eq!((facts.uuid.as_str(), facts.arch.as_str(), facts.machine()), ("u-1", "x86_64", Some("q35")));
        assert_eq!(facts.domain_types, ["kvm", "qemu"]);
    }

    #[test]
    fn firmwares_come_from_the_domain_capabilities() {
        let facts = HostFacts { arch: "x86_64".to_owned(), ..HostFacts::default() };
        let xml = "<domainCapabilities><os supported='yes'><enum name='firmware'><value>bios</value><value>efi</value></enum></os></domainCapabilities>";
        assert_eq!(facts.firmwares(Some(xml)), [Firmware::Bios, Firmware::Uefi]);
        assert_eq!(facts.firmwares(None), [Firmware::Bios]);
        assert_eq!(HostFacts::default().firmwares(Some(xml)), [Firmware::Uefi]);
    }

    #[test]
    fn versions_are_unpacked() {
        assert_eq!(version(9_000_000), "9.0.0");
        assert_eq!(version(10_002_013), "10.2.13");
    }
}
