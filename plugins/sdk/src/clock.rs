//! The time of day. `std::time::SystemTime::now` traps in a component of this target; this does not.

use std::time::Duration;

/// The time since 1970-01-01T00:00:00Z.
pub fn now() -> Duration {
    #[cfg(target_family = "wasm")]
    {
        let now = crate::bindings::wasi::clocks::wall_clock::now();
        Duration::new(now.seconds, now.nanoseconds)
    }
    #[cfg(not(target_family = "wasm"))]
    {
        std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
    }
}

/// A time as the interface writes it: RFC 3339 in UTC, whole seconds.
///
/// ```
/// # use std::time::Duration;
/// assert_eq!(proxy_operator_sdk::clock::rfc3339(Duration::from_secs(1_796_113_800)), "2026-12-01T08:30:00Z");
/// ```
pub fn rfc3339(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the day a leap year adds is its last; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert!(now().as_secs() > 1_700_000_000);
    }
}
