//! Which URLs are granted: a URL begins with a granted prefix.
//!
//! Scheme, host and port are compared exactly, the path by whole segments, after the URL has been normalised (`..`,
//! `%2e%2e`, capital letters of a host, other spellings of an IPv4 address). What could mean one thing here and another
//! on the server is refused: user names, fragments, encoded slashes and dots.

use proxy_operator_core::error::{Error, Result};
use url::{Host, Url};

use super::address::Standing;
use super::limits::URL_MAX_BYTES;

/// The granted prefixes of one Provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Prefixes {
    valid: Vec<Url>,
    invalid: Vec<String>,
}

/// A URL as it may be shown: without its query, which can hold a token.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    if url.query().is_some() {
        url.set_query(Some("…"));
        return url.as_str().replace("?%E2%80%A6", "?…");
    }
    url.into()
}

/// Reads the URL of an image.
pub fn parse(text: &str) -> Result<Url> {
    let refuse = |what: &str| {
        // Not the URL itself beyond its path: it may hold a password.
        let start: String = text.split(['?', '#']).next().unwrap_or_default().chars().take(200).collect();
        let start = if start.contains('@') { "…".to_owned() } else { start };
        Error::invalid_config("ConfigInvalid", format!("the image URL {start:?} {what}"))
    };
    if text.len() > URL_MAX_BYTES {
        return Err(refuse(&format!("has {} bytes; at most {URL_MAX_BYTES} are allowed", text.len())));
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(refuse("holds spaces, backslashes or control characters; encode them"));
    }
    let url = Url::parse(text).map_err(|error| refuse(&format!("is not a URL: {error}")))?;
    check(&url).map_err(|what| refuse(&what))?;
    Ok(url)
}

/// What every URL must be, the target of a redirect too.
fn check(url: &Url) -> std::result::Result<(), String> {
    match url.scheme() {
        "https" | "http" if url.has_host() => {}
        "file" if !url.has_host() => {}
        "file" => return Err("names a host; a file is on the machine of the operator: file:///path".to_owned()),
        scheme => return Err(format!("has the scheme {scheme}; use https, http or file")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user name or a password, which is not supported; leave them out".to_owned());
    }
    if url.fragment().is_some() {
        return Err("has a fragment (#…), which no server sees; leave it out".to_owned());
    }
    if url.scheme() == "file" && url.query().is_some() {
        return Err("has a query (?…), which no file has; leave it out, or encode the ? as %3f".to_owned());
    }
    if segments(url).any(is_tricky) {
        return Err(
            "has an encoded slash, backslash, NUL or dots as a segment of its path; write it plainly".to_owned()
        );
    }
    Ok(())
}

/// A segment that another program may take for something else than one name.
fn is_tricky(segment: &str) -> bool {
    let mut decoded = segment.to_owned();
    // Twice: some servers decode once more.
    for _ in 0..2 {
        let bytes = decode(&decoded);
        if bytes.iter().any(|byte| matches!(byte, b'/' | b'\\' | 0)) || bytes == b"." || bytes == b".." {
            return true;
        }
        decoded = String::from_utf8_lossy(&bytes).into_owned();
    }
    false
}

/// The bytes of a percent-encoded text.
pub fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match digits.filter(|pair| *byte == b'%' && pair.bytes().all(|digit| digit.is_ascii_hexdigit())) {
            Some(pair) => {
                decoded.push(u8::from_str_radix(pair, 16).unwrap_or_default());
                at += 3;
            }
            None => {
                decoded.push(*byte);
                at += 1;
            }
        }
    }
    decoded
}

fn segments(url: &Url) -> impl Iterator<Item = &str> {
    url.path_segments().into_iter().flatten()
}

impl Prefixes {
    /// Reads the grant. A prefix that is no URL grants nothing, and a denial names it.
    pub fn new(prefixes: &[String]) -> Self {
        let mut read = Self::default();
        for prefix in prefixes {
            match parse(prefix) {
                Ok(url) if url.query().is_none() => read.valid.push(url),
                _ => read.invalid.push(prefix.clone()),
            }
        }
        read
    }

    /// The prefix that grants a URL.
    pub fn granting(&self, url: &Url) -> Option<&Url> {
        self.valid.iter().find(|prefix| begins_with(url, prefix))
    }

    /// The prefix that grants a URL, or the denial.
    pub fn check(&self, provider: &str, url: &Url) -> Result<&Url> {
        self.granting(url).ok_or_else(|| {
            Error::permission_denied(
                "GrantMissing",
                format!(
                    "Provider {provider}: downloads from {} are not granted; to allow this one, add to spec.grants.images.urlPrefixes: {:?}{}",
                    shown(url),
                    suggestion(url),
                    self.faults()
                ),
            )
        })
    }

    /// Whether a redirect may be followed, and what then may be asked.
    pub fn check_redirect(&self, provider: &str, from: &Url, to: &Url, pinned: bool) -> Result<Standing> {
        let refuse = |why: &str| {
            Error::permission_denied(
                "GrantMissing",
                format!("Provider {provider}: {} redirects to {}, {why}", shown(from), shown(to)),
            )
        };
        check(to).map_err(|what| refuse(&format!("which {what}")))?;
        if to.scheme() == "file" {
            return Err(refuse("a file of this machine, which no redirect may name"));
        }
        if from.scheme() == "https" && to.scheme() != "https" {
            return Err(refuse("which would go on without TLS; give a URL that stays with https"));
        }
        if self.granting(to).is_some() {
            return Ok(Standing::Granted);
        }
        if !pinned {
            return Err(refuse(&format!(
                "which is not granted; give the image's digest, or add to spec.grants.images.urlPrefixes: {:?}{}",
                suggestion(to),
                self.faults()
            )));
        }
        if to.scheme() != "https" {
            return Err(refuse(&format!(
                "which is neither https nor granted; to allow it, add to spec.grants.images.urlPrefixes: {:?}",
                suggestion(to)
            )));
        }
        Ok(Standing::Redirected)
    }

    fn faults(&self) -> String {
        if self.invalid.is_empty() {
            return String::new();
        }
        format!(" (these are not prefixes and grant nothing: {:?})", self.invalid)
    }
}

/// Whether a URL has an IP address for a host.
pub fn literal_address(url: &Url) -> Option<std::net::IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

fn begins_with(url: &Url, prefix: &Url) -> bool {
    let same = url.scheme() == prefix.scheme()
        && url.host() == prefix.host()
        && url.port_or_known_default() == prefix.port_or_known_default();
    if !same {
        return false;
    }
    let mut wanted: Vec<&str> = segments(prefix).collect();
    // `/a/` means what is in `/a/`; `/a` means that, and `/a` itself.
    let is_folder = wanted.last() == Some(&"");
    if is_folder {
        wanted.pop();
    }
    let found: Vec<&str> = segments(url).collect();
    found.starts_with(&wanted) && (!is_folder || found.len() > wanted.len())
}

/// The prefix that would grant a URL and its neighbours.
fn suggestion(url: &Url) -> String {
    let mut prefix = url.clone();
    prefix.set_query(None);
    if let Ok(mut segments) = prefix.path_segments_mut() {
        segments.pop().push("");
    }
    prefix.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(prefix: &str, url: &str) -> bool {
        parse(url).is_ok_and(|url| Prefixes::new(&[prefix.to_owned()]).granting(&url).is_some())
    }

    #[test]
    fn a_prefix_grants_what_is_beneath_it() {
        for (prefix, url) in [
            ("https://h.example/", "https://h.example/a.qcow2"),
            ("https://h.example", "https://h.example/a/b?token=1"),
            ("https://h.example/a", "https://h.example/a"),
            ("https://h.example/a", "https://h.example/a/b"),
            ("https://h.example/a/", "https://h.example/a/b/c"),
            ("https://h.example/", "https://H.EXAMPLE:443/a"),
            ("https://h.example:443/", "https://h.example/a"),
            ("https://h.example/", "https://h.example/x/../a"),
            ("http://127.0.0.1:80/", "http://0x7f.1/a"),
            ("http://[::1]:8080/", "http://[0:0::1]:8080/a"),
            ("file:///srv/images/", "file:///srv/images/a.qcow2"),
            ("file:///srv/images/", "file://localhost/srv/images/a.qcow2"),
        ] {
            assert!(granted(prefix, url), "{prefix} grants {url}");
        }
    }

    #[test]
    fn a_prefix_grants_nothing_else() {
        for (prefix, url) in [
            ("https://h.example/", "http://h.example/a"),
            ("https://h.example/", "https://h.example:8443/a"),
            ("https://h.example/", "https://h.example.evil.example/a"),
            ("https://h.example/", "https://h.example./a"),
            ("https://h.example/", "https://sub.h.example/a"),
            ("https://h.example/", "https://h.example@evil.example/a"),
            ("https://h.example", "https://h.example:pw@evil.example/a"),
            ("https://h.example/", "https://user@h.example/a"),
            ("https://h.example/", "https://h.example/a#b"),
            ("https://h.example/a", "https://h.example/ab"),
            ("https://h.example/a/", "https://h.example/a"),
            ("https://h.example/a/", "https://h.example/a/../b"),
            ("https://h.example/a/", "https://h.example/a/%2e%2e/b"),
            ("https://h.example/a/", "https://h.example/a/%2E./b"),
            ("https://h.example/a/", "https://h.example/a/..%2fb"),
            ("https://h.example/a/", "https://h.example/a/%2e%2e%2fb"),
            ("https://h.example/a/", "https://h.example/a/%252e%252e/b"),
            ("https://h.example/a/", "https://h.example/a/..%5cb"),
            ("https://h.example/a/", "https://h.example/a\\..\\b"),
            ("https://h.example/a/", "https://h.example/a/b%00"),
            ("https://h.example/a/", "https://h.example/a/\tb"),
            ("https://h.example/?x=1", "https://h.example/a?x=1"),
            ("file:///srv/images/", "file:///srv/images/../secret"),
            ("file:///srv/images/", "file:///srv/images/%2e%2e/secret"),
            ("file:///srv/images/", "file:///srv/images-2/a"),
            ("file:///srv/images/", "file://host/srv/images/a"),
            ("file:///srv/", "ftp:///srv/a"),
            ("nonsense", "https://h.example/a"),
        ] {
            assert!(!granted(prefix, url), "{prefix} does not grant {url}");
        }
    }

    #[test]
    fn a_denial_names_the_grant_that_would_allow_it_and_no_token() {
        let prefixes = Prefixes::new(&["https://h.example/".to_owned(), "oops".to_owned()]);
        let url = parse("https://other.example/images/a.qcow2?token=hunter2").unwrap();
        let error = prefixes.check("kvm-home", &url).unwrap_err();
        assert_eq!((error.code.as_str(), error.reason.as_str()), ("permission-denied", "GrantMissing"));
        let expected = "spec.grants.images.urlPrefixes: \"https://other.example/images/\"";
        assert!(error.message.contains(expected) && error.message.contains("kvm-home"), "{error}");
        assert!(error.message.contains("oops") && !error.message.contains("hunter2"), "{error}");
        let error = parse("https://user:hunter2@h.example/").unwrap_err();
        assert!(!error.message.contains("hunter2"), "{error}");
    }

    #[test]
    fn redirects_are_policed() {
        let prefixes = Prefixes::new(&["https://h.example/".to_owned(), "http://127.0.0.1:8080/".to_owned()]);
        let url = |text: &str| Url::parse(text).unwrap();
        let ask = |from: &str, to: &str, pinned| prefixes.check_redirect("p", &url(from), &url(to), pinned);
        assert_eq!(ask("https://h.example/a", "https://h.example/b", false), Ok(Standing::Granted));
        assert_eq!(ask("http://127.0.0.1:8080/a", "https://h.example/b", false), Ok(Standing::Granted));
        assert_eq!(ask("https://h.example/a", "https://mirror.example/b", true), Ok(Standing::Redirected));
        for (from, to, pinned, word) in [
            ("https://h.example/a", "https://mirror.example/b", false, "digest"),
            ("https://h.example/a", "http://127.0.0.1:8080/b", true, "TLS"),
            ("http://127.0.0.1:8080/a", "http://mirror.example/b", true, "neither https nor granted"),
            ("https://h.example/a", "file:///etc/shadow", true, "file"),
            ("https://h.example/a", "ftp://h.example/b", true, "scheme"),
            ("https://h.example/a", "https://u:p@h.example/b", true, "user name"),
            ("https://h.example/a", "https://h.example/b%2fc", true, "encoded"),
        ] {
            let error = ask(from, to, pinned).unwrap_err();
            assert_eq!(error.reason, "GrantMissing", "{from} {to}");
            assert!(error.message.contains(word), "{error}");
        }
    }

    #[test]
    fn shown_urls_hide_their_query() {
        let url = Url::parse("https://h.example/a?X-Amz-Signature=abc").unwrap();
        assert_eq!(shown(&url), "https://h.example/a?…");
        assert_eq!(decode("a%20b%zz%4"), b"a b%zz%4");
    }
}
