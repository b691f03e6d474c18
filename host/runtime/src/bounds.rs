//! Bounds on what crosses between host and guest, both ways.
//!
//! An argument of a capability that is over its bound is `invalid-proxy`, a result of a provider is `internal`; both
//! name item, size and bound. Texts for people are cut instead: half a message is better than none.

use proxy_operator_core::error::{Error, ErrorCode, Result};

/// The mark at the end of a text that was cut.
const CUT: &str = "…";

/// Holds the size of an argument, which a guest gave to a capability, against its bound.
pub(crate) fn argument(function: &str, item: &str, size: usize, most: usize) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    let message = format!("{function}: {item} has {size} bytes or items, at most {most} are allowed");
    Err(Error::new(ErrorCode::InvalidProxy, "TooLarge", message))
}

/// Holds the size of an argument, which the host gives to a guest, against its bound.
pub(crate) fn input(code: ErrorCode, item: &str, size: usize, most: usize) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    Err(Error::new(code, "TooLarge", format!("{item} has {size} bytes or items, at most {most} are allowed")))
}

/// Holds the size of what a provider returned against its bound.
pub(crate) fn result(item: &str, size: usize, most: usize) -> Result<()> {
    if size <= most {
        return Ok(());
    }
    let message = format!("the plugin returned {item} of {size} bytes or items, at most {most} are allowed");
    Err(Error::internal("ResultTooLarge", message))
}

/// The text, or as much of it as `most` bytes hold, with a mark.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most.saturating_sub(CUT.len()));
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}{CUT}")
}

/// The text with its control characters escaped, so that it stays one line and moves no cursor.
pub(crate) fn escape(text: &str) -> String {
    // Beside the control characters: line and paragraph separators, and what turns the direction of a text.
    let hidden = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(hidden) {
        return text.to_owned();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// A reason as conditions and metrics take it: one CamelCase word; `Other` in place of what is none.
pub(crate) fn reason(text: String) -> String {
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_uppercase());
    if starts && text.len() <= crate::limits::REASON && chars.all(|c| c.is_ascii_alphanumeric()) {
        text
    } else {
        "Other".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_keeps_whole_characters() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("äöüäöü", 8), "äö…");
        assert!(cut(&"x".repeat(5000), 2048).len() <= 2048);
    }

    #[test]
    fn escape_leaves_one_line() {
        assert_eq!(escape("a\nb\x1b[31m\u{202e}"), "a\\nb\\u{1b}[31m\\u{202e}");
        assert_eq!(escape("plain ä 字"), "plain ä 字");
    }

    #[test]
    fn reasons_are_one_word() {
        assert_eq!(reason("HostUnreachable".into()), "HostUnreachable");
        for bad in ["", "lower", "Two Words", "Ünicode", "With-Dash", &"A".repeat(65)] {
            assert_eq!(reason(bad.into()), "Other", "{bad}");
        }
    }

    #[test]
    fn errors_name_item_size_and_bound() {
        let error = argument("libvirt.write-volume", "content", 9, 8).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::InvalidProxy, "TooLarge"));
        assert_eq!(error.message, "libvirt.write-volume: content has 9 bytes or items, at most 8 are allowed");
        assert_eq!(result("instance.id", 9, 8).unwrap_err().reason, "ResultTooLarge");
    }
}
