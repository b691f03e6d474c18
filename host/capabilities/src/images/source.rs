//! What is asked for, read and checked.

use std::fmt;

use proxy_operator_core::capability::images::Source;
use proxy_operator_core::error::{Error, Result};
use proxy_operator_core::names::is_identifier;
use url::Url;

use super::digest::Digest;
use super::name::url_key;
use super::prefix::{parse, shown};

/// An image that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its key, given or made from the URL.
    pub key: String,
    /// From where.
    pub url: Url,
    /// What it must be.
    pub digest: Option<Digest>,
    /// Whether the key was given.
    named: bool,
}

impl Request {
    /// Reads a source.
    pub fn read(source: &Source) -> Result<Self> {
        let Source { key, url, digest } = source;
        if let Some(key) = key.as_ref().filter(|key| !is_identifier(key)) {
            return Err(Error::invalid_config(
                "ConfigInvalid",
                format!(
                    "{:?} is not an image's key; use lower-case letters, digits and inner hyphens, at most 40 characters",
                    key.chars().take(80).collect::<String>()
                ),
            ));
        }
        let url = parse(url)?;
        let digest = digest.as_deref().map(Digest::parse).transpose()?;
        let named = key.is_some();
        let key = key.clone().unwrap_or_else(|| url_key(url.as_str()));
        Ok(Self { key, url, digest, named })
    }
}

impl fmt::Display for Request {
    /// As people call it: by its key, or by its URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.named { f.write_str(&self.key) } else { f.write_str(&shown(&self.url)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(key: Option<&str>, url: &str, digest: Option<&str>) -> Source {
        Source { key: key.map(str::to_owned), url: url.to_owned(), digest: digest.map(str::to_owned) }
    }

    #[test]
    fn a_key_is_made_where_none_is_given() {
        let request = Request::read(&source(None, "https://h.example/a?t=1", None)).unwrap();
        assert!(request.key.starts_with("url-"));
        assert_eq!(request.to_string(), "https://h.example/a?…");
        assert_eq!(Request::read(&source(Some("a"), "https://h.example/a", None)).unwrap().to_string(), "a");
    }

    #[test]
    fn nonsense_is_a_fault_of_the_config() {
        for (key, url, digest) in [
            (Some("../a"), "https://h.example/a", None),
            (Some(""), "https://h.example/a", None),
            (Some("a"), "nonsense", None),
            (Some("a"), "https://h.example/a", Some("md5:0")),
        ] {
            let error = Request::read(&source(key, url, digest)).unwrap_err();
            assert_eq!((error.code.as_str(), error.reason.as_str()), ("invalid-config", "ConfigInvalid"));
        }
    }
}
