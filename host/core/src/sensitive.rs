//! Values that must not reach a log, an event, a status or an error.

use std::fmt;

/// Wraps a secret or user-data, so that `Debug` shows its length alone and `Display` does not exist.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Sensitive<T>(T);

impl<T> Sensitive<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself: for the one place that hands it on.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// The value itself, by value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> From<T> for Sensitive<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T: AsRef<[u8]>> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} bytes]", self.0.as_ref().len())
    }
}

#[cfg(test)]
mod tests {
    use super::Sensitive;

    #[test]
    fn debug_shows_the_length_alone() {
        assert_eq!(format!("{:?}", Sensitive::new("hunter2".to_owned())), "[7 bytes]");
    }
}
