//! Composes the documents that libvirt reads, with a writer that escapes: nothing of a plugin's is markup.

use std::io;

use proxy_operator_core::capability::libvirt::{Disk, DomainSpec, Firmware, VolumeFormat};
use quick_xml::Writer;
use quick_xml::events::BytesText;
use uuid::Uuid;

use super::facts::HostFacts;
use super::metadata::Stamp;

/// What a domain has beside its spec.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its uuid.
    pub uuid: Uuid,
    /// The MAC address of each network card.
    pub macs: Vec<String>,
    /// Its stamp.
    pub stamp: Stamp,
}

/// The volume that another one stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// Its path on the hypervisor.
    pub path: String,
    /// Its format.
    pub format: VolumeFormat,
}

type Inner = Writer<Vec<u8>>;

/// The document of a domain.
pub fn domain(spec: &DomainSpec, identity: &Identity, facts: &HostFacts) -> io::Result<String> {
    let DomainSpec { name, title, domain_type, vcpus, memory_mib, firmware, disks, networks, autostart: _ } = spec;
    let kind = domain_type.as_deref().or(facts.domain_types.first().map(String::as_str)).unwrap_or("qemu");
    document(|writer| {
        writer.create_element("domain").with_attribute(("type", kind)).write_inner_content(|writer| {
            text(writer, "name", name)?;
            text(writer, "uuid", &identity.uuid.hyphenated().to_string())?;
            let title = one_line(title);
            if !title.is_empty() {
                text(writer, "title", &title)?;
            }
            writer.create_element("metadata").write_inner_content(|writer| identity.stamp.write(writer))?;
            measured(writer, "memory", "MiB", &memory_mib.to_string())?;
            text(writer, "vcpu", &vcpus.to_string())?;
            os(writer, *firmware, facts)?;
            writer.create_element("features").write_inner_content(|writer| {
                writer.create_element("acpi").write_empty()?;
                Ok(())
            })?;
            if matches!(kind, "kvm" | "hvf") {
                // The default is a CPU of 2003, on which systems for x86-64-v2 do not start. Emulation keeps it.
                writer.create_element("cpu").with_attribute(("mode", "host-passthrough")).write_empty()?;
            }
            writer.create_element("clock").with_attribute(("offset", "utc")).write_empty()?;
            text(writer, "on_poweroff", "destroy")?;
            text(writer, "on_reboot", "restart")?;
            text(writer, "on_crash", "destroy")?;
            writer.create_element("devices").write_inner_content(|writer| {
                for (index, each) in disks.iter().enumerate() {
                    disk(writer, index, each)?;
                }
                for (network, mac) in networks.iter().zip(&identity.macs) {
                    card(writer, network, mac)?;
                }
                fittings(writer)
            })?;
            Ok(())
        })?;
        Ok(())
    })
}

/// The document of a volume.
pub fn volume(name: &str, format: VolumeFormat, capacity: u64, backing: Option<&Backing>) -> io::Result<String> {
    document(|writer| {
        writer.create_element("volume").write_inner_content(|writer| {
            text(writer, "name", name)?;
            measured(writer, "capacity", "bytes", &capacity.to_string())?;
            measured(writer, "allocation", "bytes", "0")?;
            writer.create_element("target").write_inner_content(|writer| {
                writer.create_element("format").with_attribute(("type", word(format))).write_empty()?;
                Ok(())
            })?;
            if let Some(backing) = backing {
                writer.create_element("backingStore").write_inner_content(|writer| {
                    text(writer, "path", &backing.path)?;
                    writer.create_element("format").with_attribute(("type", word(backing.format))).write_empty()?;
                    Ok(())
                })?;
            }
            Ok(())
        })?;
        Ok(())
    })
}

/// What libvirt calls a format.
pub fn word(format: VolumeFormat) -> &'static str {
    match format {
        VolumeFormat::Raw => "raw",
        VolumeFormat::Qcow2 => "qcow2",
    }
}

fn document(write: impl FnOnce(&mut Inner) -> io::Result<()>) -> io::Result<String> {
    let mut writer = Writer::new(Vec::new());
    write(&mut writer)?;
    String::from_utf8(writer.into_inner()).map_err(io::Error::other)
}

fn text(writer: &mut Inner, name: &str, value: &str) -> io::Result<()> {
    writer.create_element(name).write_text_content(BytesText::new(&legal(value)))?;
    Ok(())
}

fn measured(writer: &mut Inner, name: &str, unit: &str, value: &str) -> io::Result<()> {
    writer.create_element(name).with_attribute(("unit", unit)).write_text_content(BytesText::new(value))?;
    Ok(())
}

/// Machine and firmware. UEFI is libvirt's to choose and its NVRAM libvirt's to keep; secure boot is off, since the
/// images are not all signed by someone whom the firmware knows.
fn os(writer: &mut Inner, firmware: Firmware, facts: &HostFacts) -> io::Result<()> {
    let mut os = writer.create_element("os");
    if firmware == Firmware::Uefi {
        os = os.with_attribute(("firmware", "efi"));
    }
    os.write_inner_content(|writer| {
        let mut kind = writer.create_element("type");
        if !facts.arch.is_empty() {
            kind = kind.with_attribute(("arch", facts.arch.as_str()));
        }
        if let Some(machine) = facts.machine() {
            kind = kind.with_attribute(("machine", machine));
        }
        kind.write_text_content(BytesText::new("hvm"))?;
        if firmware == Firmware::Uefi {
            writer.create_element("firmware").write_inner_content(|writer| {
                for feature in ["enrolled-keys", "secure-boot"] {
                    writer
                        .create_element("feature")
                        .with_attributes([("enabled", "no"), ("name", feature)])
                        .write_empty()?;
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A virtio disk whose driver format is pinned: a raw disk in which a guest has written a qcow2 header stays raw.
fn disk(writer: &mut Inner, index: usize, disk: &Disk) -> io::Result<()> {
    let Disk { pool, volume, format, read_only } = disk;
    let letter = char::from(b'a' + u8::try_from(index).unwrap_or(u8::MAX).min(25));
    writer.create_element("disk").with_attributes([("type", "volume"), ("device", "disk")]).write_inner_content(
        |writer| {
            writer
                .create_element("driver")
                .with_attributes([("name", "qemu"), ("type", word(*format)), ("discard", "unmap")])
                .write_empty()?;
            let (pool, volume) = (legal(pool), legal(volume));
            writer
                .create_element("source")
                .with_attributes([("pool", pool.as_str()), ("volume", volume.as_str())])
                .write_empty()?;
            let target = format!("vd{letter}");
            writer
                .create_element("target")
                .with_attributes([("dev", target.as_str()), ("bus", "virtio")])
                .write_empty()?;
            if *read_only {
                writer.create_element("readonly").write_empty()?;
            }
            if index == 0 {
                writer.create_element("boot").with_attribute(("order", "1")).write_empty()?;
            }
            Ok(())
        },
    )?;
    Ok(())
}

fn card(writer: &mut Inner, network: &str, mac: &str) -> io::Result<()> {
    writer.create_element("interface").with_attribute(("type", "network")).write_inner_content(|writer| {
        writer.create_element("mac").with_attribute(("address", mac)).write_empty()?;
        writer.create_element("source").with_attribute(("network", legal(network).as_str())).write_empty()?;
        writer.create_element("model").with_attribute(("type", "virtio")).write_empty()?;
        Ok(())
    })?;
    Ok(())
}

/// What every domain has: a serial console, the guest agent's channel, randomness, a balloon; no graphics, no USB.
fn fittings(writer: &mut Inner) -> io::Result<()> {
    writer.create_element("controller").with_attributes([("type", "usb"), ("model", "none")]).write_empty()?;
    for (name, target) in [("serial", "isa-serial"), ("console", "serial")] {
        writer.create_element(name).with_attribute(("type", "pty")).write_inner_content(|writer| {
            if name == "console" {
                writer.create_element("target").with_attributes([("type", target), ("port", "0")]).write_empty()?;
            } else {
                // The kind of port is the machine's: ISA on q35, PL011 on virt.
                writer.create_element("target").with_attribute(("port", "0")).write_empty()?;
            }
            Ok(())
        })?;
    }
    writer.create_element("channel").with_attribute(("type", "unix")).write_inner_content(|writer| {
        writer
            .create_element("target")
            .with_attributes([("type", "virtio"), ("name", "org.qemu.guest_agent.0")])
            .write_empty()?;
        Ok(())
    })?;
    writer.create_element("rng").with_attribute(("model", "virtio")).write_inner_content(|writer| {
        writer
            .create_element("backend")
            .with_attribute(("model", "random"))
            .write_text_content(BytesText::new("/dev/urandom"))?;
        Ok(())
    })?;
    writer.create_element("memballoon").with_attribute(("model", "virtio")).write_empty()?;
    Ok(())
}

/// A text without the characters that XML cannot hold, however they are escaped.
fn legal(value: &str) -> String {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'));
    value.chars().map(|c| if allowed(c) { c } else { '\u{fffd}' }).collect()
}

/// A title, in which libvirt allows no line break.
fn one_line(value: &str) -> String {
    value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
