//! The vendor-data: the guest agent's script, and beside it what Provider and Proxy bring.
//!
//! The agent's script is a script and no cloud-config, because a user's lists replace a vendor's. What others wrote is
//! declared text/plain, whose kind cloud-init finds by itself, and is transferred as base64, so that every byte arrives.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::config::Config;

/// Installs and starts the guest agent.
const GUEST_AGENT: &str = include_str!("guest-agent.sh");

/// The bytes of base64 on one line.
const LINE: usize = 76;

/// One document.
struct Part<'a> {
    kind: &'static str,
    /// Distinct: of two parts with one name, cloud-init runs one. Scripts run in the order of their names.
    filename: &'static str,
    content: &'a [u8],
}

/// The vendor-data of a machine; `None` when there is nothing to say. A document that is alone is delivered as it is.
pub(crate) fn data(config: &Config, of_proxy: Option<&[u8]>) -> Option<Vec<u8>> {
    let agent = config.install_guest_agent.then_some(GUEST_AGENT.as_bytes());
    let of_provider = config.vendor_data.as_deref().map(str::as_bytes);
    let parts: Vec<Part<'_>> = [
        ("text/x-shellscript", "10-proxy-operator-guest-agent.sh", agent),
        ("text/plain", "50-provider-vendor-data", of_provider),
        ("text/plain", "60-proxy-vendor-data", of_proxy),
    ]
    .into_iter()
    .filter_map(|(kind, filename, content)| {
        content.filter(|content| !content.is_empty()).map(|content| Part { kind, filename, content })
    })
    .collect();
    match parts.as_slice() {
        [] => None,
        [alone] => Some(alone.content.to_vec()),
        several => Some(multipart(several).into_bytes()),
    }
}

fn multipart(parts: &[Part<'_>]) -> String {
    let boundary = boundary(parts);
    // cloud-init looks for MIME-Version in the first bytes: it stands first.
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for Part { kind, filename, content } in parts {
        text.push_str(&format!(
            "--{boundary}\nMIME-Version: 1.0\nContent-Type: {kind}; charset=\"utf-8\"\nContent-Transfer-Encoding: base64\n\
             Content-Disposition: attachment; filename=\"{filename}\"\n\n"
        ));
        let encoded = BASE64_STANDARD.encode(content);
        for line in encoded.as_bytes().chunks(LINE) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
    }
    text.push_str(&format!("--{boundary}--\n"));
    text
}

/// A boundary that is in no part.
fn boundary(parts: &[Part<'_>]) -> String {
    let taken = |boundary: &str| {
        parts.iter().any(|part| part.content.windows(boundary.len()).any(|window| window == boundary.as_bytes()))
    };
    (0_u64..).map(|n| format!("==proxy-operator-{n}==")).find(|boundary| !taken(boundary)).unwrap_or_default()
}
