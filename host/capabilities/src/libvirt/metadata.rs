//! The stamp on each domain of ours: which installation, which Provider, whose, since when.

use std::io;

use quick_xml::Writer;
use quick_xml::events::BytesText;

use super::xml::{Element, text_of};

/// The namespace of our element in `<metadata>`. It never changes: by it an operator of any version knows its domains.
pub const NAMESPACE: &str = "https://crawl.example.com/xmlns/proxy-operator/1";

/// The stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The id of the operator's installation.
    pub installation: String,
    /// The name of the Provider.
    pub provider: String,
    /// The uid of the Proxy.
    pub owner: String,
    /// When the domain was defined, RFC 3339.
    pub created_at: String,
}

impl Stamp {
    /// Writes our element.
    pub fn write(&self, writer: &mut Writer<Vec<u8>>) -> io::Result<()> {
        let Self { installation, provider, owner, created_at } = self;
        writer
            .create_element("proxy-operator:instance")
            .with_attribute(("xmlns:proxy-operator", NAMESPACE))
            .write_inner_content(|writer| {
                for (name, value) in [
                    ("proxy-operator:installation", installation),
                    ("proxy-operator:provider", provider),
                    ("proxy-operator:owner", owner),
                    ("proxy-operator:created-at", created_at),
                ] {
                    writer.create_element(name).write_text_content(BytesText::new(value))?;
                }
                Ok(())
            })?;
        Ok(())
    }

    /// Reads our element as libvirt hands it out, with whatever prefix.
    pub fn read(xml: &str) -> Option<Self> {
        let root = Element::parse(xml)?;
        let value = |name| root.child(name).map(text_of);
        Some(Self {
            installation: value("installation")?,
            provider: value("provider")?,
            owner: value("owner")?,
            created_at: value("created-at")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_comes_back_from_what_was_written() {
        let stamp = Stamp {
            installation: "c1".to_owned(),
            provider: "kvm-home</x>&\"'".to_owned(),
            owner: "0f".to_owned(),
            created_at: "2026-01-01T00:00:00Z".to_owned(),
        };
        let mut writer = Writer::new(Vec::new());
        stamp.write(&mut writer).unwrap();
        let xml = String::from_utf8(writer.into_inner()).unwrap();
        assert_eq!(Stamp::read(&xml), Some(stamp), "{xml}");
        assert_eq!(Stamp::read("<instance><owner>x</owner></instance>"), None);
        assert_eq!(Stamp::read("nonsense"), None);
    }
}
