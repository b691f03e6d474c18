//! Reads the documents of libvirt: small trees, by local names.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

/// The deepest document that is read.
const DEPTH_MAX: usize = 64;

/// The longest document that is read: capabilities of a large machine have a few hundred kilobytes.
const LENGTH_MAX: usize = 16 << 20;

/// An element with all that is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name without a prefix.
    pub name: String,
    /// Its text, that of its children excluded.
    pub text: String,
    /// Its children in order.
    pub children: Vec<Element>,
    attributes: Vec<(String, String)>,
}

/// The text of an element, without the white space around it.
pub fn text_of(element: &Element) -> String {
    element.text.trim().to_owned()
}

impl Element {
    /// Reads a document; `None` when it is not one.
    pub fn parse(xml: &str) -> Option<Self> {
        if xml.len() > LENGTH_MAX {
            return None;
        }
        let mut reader = Reader::from_str(xml);
        // The elements that are open; below them, one that collects the root.
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(start) => {
                    if open.len() > DEPTH_MAX {
                        return None;
                    }
                    open.push(Self::started(&start)?);
                }
                Event::Empty(start) => open.last_mut()?.children.push(Self::started(&start)?),
                Event::End(_) => {
                    let element = open.pop()?;
                    open.last_mut()?.children.push(element);
                }
                Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::GeneralRef(reference) => {
                    let element = open.last_mut()?;
                    match reference.resolve_char_ref().ok()? {
                        Some(character) => element.text.push(character),
                        None => element.text.push_str(resolve_predefined_entity(&reference.xml10_content())?),
                    }
                }
                Event::Eof => break,
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
        let top = open.pop().filter(|_| open.is_empty())?;
        top.children.into_iter().next()
    }

    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The children of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The first element at the end of a path of names.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |element, name| element.child(name))
    }

    /// An attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn started(start: &BytesStart<'_>) -> Option<Self> {
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.ok()?;
            let value = attribute.normalized_value(quick_xml::XmlVersion::Explicit1_0).ok()?.into_owned();
            attributes.push((attribute.key.local_name().as_ref().to_owned(), value));
        }
        Some(Self { name: start.local_name().as_ref().to_owned(), attributes, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read() {
        let xml =
            "<?xml version='1.0'?><!-- c --><a:x xmlns:a='u' k='1 &lt; 2'>t&amp;<y/>&#x41;<y><![CDATA[<z>]]></y></a:x>";
        let root = Element::parse(xml).unwrap();
        assert_eq!((root.name.as_str(), root.attribute("k"), root.text.as_str()), ("x", Some("1 < 2"), "t&A"));
        assert_eq!(root.all("y").map(text_of).collect::<Vec<_>>(), ["", "<z>"]);
    }

    #[test]
    fn what_is_no_document_is_none() {
        for xml in ["", "<a>", "<a></b>", "text", "<a>&unknown;</a>", &"<a>".repeat(100_000)] {
            assert_eq!(Element::parse(xml), None);
        }
    }
}
