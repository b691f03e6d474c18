//! Takes the user-data and the password hashes of a call out of what its guest says.
//!
//! A guest sees both, and a careless panic message or log line repeats them. What a guest wants to say in a code of
//! its own it can; this is against accidents, not against malice.

use proxy_operator_core::provider::InstanceSpec;

/// What stands in place of what was taken out.
const MARK: &str = "[redacted]";

/// The length of a piece that is looked for. Shorter pieces are words that any text shares.
const PIECE: usize = 12;

/// As many numbers in a row, as `[35, 99, 108, …]`, are bytes that were printed.
const NUMBERS: usize = 12;

/// Knows the secrets of one call by the hashes of all their pieces, whose order it keeps sorted.
#[derive(Default)]
pub(crate) struct Redactor {
    pieces: Vec<u64>,
}

impl Redactor {
    /// For a call that is given this spec.
    pub(crate) fn new(spec: &InstanceSpec) -> Self {
        let cloud_init = &spec.cloud_init;
        let user_data = cloud_init.user_data.expose().as_slice();
        let vendor_data = cloud_init.vendor_data.as_ref().map_or(&[][..], |data| data.expose().as_slice());
        let hashes = spec.software.access.credentials.iter().map(|c| c.password_hash.expose().as_bytes());
        let mut pieces: Vec<u64> = [user_data, vendor_data].into_iter().chain(hashes).flat_map(hashes_of).collect();
        pieces.sort_unstable();
        pieces.dedup();
        Self { pieces }
    }

    /// The text without pieces of the secrets.
    pub(crate) fn clean(&self, text: &str) -> String {
        if self.pieces.is_empty() {
            return text.to_owned();
        }
        self.without_pieces(&without_numbers(text))
    }

    fn without_pieces(&self, text: &str) -> String {
        let mut cleaned = String::with_capacity(text.len());
        // Where the secret that was found ends, and where the text that was copied ends.
        let (mut covered, mut copied) = (0, 0);
        for (at, hash) in hashes_of(text.as_bytes()).enumerate() {
            if self.pieces.binary_search(&hash).is_err() {
                continue;
            }
            if at > covered || covered == 0 {
                let (from, to) = (text.ceil_char_boundary(copied), text.floor_char_boundary(at));
                cleaned.push_str(text.get(from..to).unwrap_or_default());
                cleaned.push_str(MARK);
            }
            covered = at + PIECE;
            copied = covered;
        }
        cleaned.push_str(text.get(text.ceil_char_boundary(copied)..).unwrap_or_default());
        cleaned
    }
}

/// The hashes of all pieces of a text, in order.
fn hashes_of(text: &[u8]) -> impl Iterator<Item = u64> {
    text.windows(PIECE).map(|piece| {
        piece
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    })
}

/// The text without long rows of numbers, as `Debug` prints bytes.
fn without_numbers(text: &str) -> String {
    let is_row = |c: char| c.is_ascii_digit() || c == ',' || c == ' ';
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, row) = rest.split_at(start);
        let (row, after) = row.split_at(row.find(|c| !is_row(c)).unwrap_or(row.len()));
        cleaned.push_str(before);
        let numbers = row.split(',').filter(|n| n.trim().parse::<u8>().is_ok()).count();
        cleaned.push_str(if numbers >= NUMBERS { MARK } else { row });
        rest = after;
    }
    cleaned.push_str(rest);
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knowing(secret: &str) -> Redactor {
        let mut pieces: Vec<u64> = hashes_of(secret.as_bytes()).collect();
        pieces.sort_unstable();
        Redactor { pieces }
    }

    #[test]
    fn pieces_go_and_the_rest_stays() {
        let redactor = knowing("#cloud-config\nruncmd: [echo, s3cr3t-passw0rd]\n");
        assert_eq!(redactor.clean("it had s3cr3t-passw0rd in it"), "it had[redacted] in it");
        assert_eq!(redactor.clean("echo, s3cr3t-passw0rd"), "[redacted]");
        assert_eq!(redactor.clean("nothing of it"), "nothing of it");
        assert_eq!(knowing("").clean("[1, 2, 3]"), "[1, 2, 3]");
    }

    #[test]
    fn debug_output_goes_too() {
        let secret = "#cloud-config\nruncmd: [echo, s3cr3t-passw0rd]\n";
        let redactor = knowing(secret);
        assert!(!redactor.clean(&format!("got {secret:?}")).contains("s3cr3t"));
        assert_eq!(redactor.clean(&format!("got {:?}!", secret.as_bytes())), "got [[redacted]]!");
        assert_eq!(redactor.clean("ports 1, 2, 3"), "ports 1, 2, 3");
    }

    #[test]
    fn characters_stay_whole() {
        let redactor = knowing("äöüäöüäöüäöüß");
        assert_eq!(redactor.clean("vor äöüäöüäöüäöüß nach"), "vor [redacted] nach");
    }
}
