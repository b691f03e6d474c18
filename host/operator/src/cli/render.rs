//! What commands print. The only place that writes to standard output.

use std::io::Write as _;

use jiff::Timestamp;

/// Prints text to standard output. A reader that went away (`| head`) is no failure.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// Prints an error with its causes, each once.
pub(super) fn error(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr(), "proxy-operator: {error:#}");
}

/// A table with columns as wide as they need be, in the manner of kubectl.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, width) in cells.zip(&widths) {
            line.push_str(&format!("{cell:<width$}   "));
        }
        format!("{}\n", line.trim_end())
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// How long ago, in two units at the most: `3d4h`, `5m`, `12s`.
pub(super) fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(since) = since else { return "-".to_owned() };
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    duration(seconds.unsigned_abs())
}

/// A number of seconds for people.
pub(super) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600, seconds / 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 1..=9) if !seconds.is_multiple_of(60) => format!("{minutes}m{}s", seconds % 60),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        (0, _, _) => format!("{hours}h"),
        _ if hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// Text for one cell: a dash where there is none.
pub(super) fn cell(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_space() {
        let text = table(&["NAME", "PHASE"], &[vec!["crawl-1".into(), "Ready".into()], vec!["a".into(), "-".into()]]);
        assert_eq!(text, "NAME      PHASE\ncrawl-1   Ready\na         -\n");
    }

    #[test]
    fn ages_are_short() {
        let shown = [0, 59, 60, 61, 600, 3_600, 5_400, 86_400, 90_000].map(duration);
        assert_eq!(shown, ["0s", "59s", "1m", "1m1s", "10m", "1h", "1h30m", "1d", "1d1h"]);
    }
}
