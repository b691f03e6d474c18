//! How far a transfer is: real bytes, read by those who ask.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What is done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for a turn, or for what the pool says.
    Queued = 0,
    /// Bytes come from the image server.
    Downloading = 1,
    /// Digest and header are looked at.
    Verifying = 2,
    /// Waiting for somebody else's upload of the same volume.
    Waiting = 3,
    /// Bytes go to the hypervisor.
    Uploading = 4,
}

/// The phase and the bytes of a transfer.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    done: AtomicU64,
    /// 0: unknown.
    total: AtomicU64,
}

// === impl Phase ===

impl Phase {
    /// One CamelCase word for a condition.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Queued => "ImageQueued",
            Self::Downloading => "ImageDownloading",
            Self::Verifying => "ImageVerifying",
            Self::Waiting | Self::Uploading => "ImageUploading",
        }
    }
}

// === impl Progress ===

impl Progress {
    /// Enters a phase that moves so many bytes, or an unknown number.
    pub fn enter(&self, phase: Phase, total: Option<u64>) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total.unwrap_or_default(), Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// So many bytes more.
    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes start over: an upload that is made again.
    pub fn restart(&self) {
        self.done.store(0, Ordering::Relaxed);
    }

    /// The bytes of this phase so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            1 => Phase::Downloading,
            2 => Phase::Verifying,
            3 => Phase::Waiting,
            4 => Phase::Uploading,
            _ => Phase::Queued,
        }
    }

    /// 0 to 100, where the size is known.
    pub fn percent(&self) -> Option<u8> {
        let total = self.total.load(Ordering::Relaxed);
        let done = self.done().min(total);
        let percent = u128::from(done) * 100 / u128::from(total).max(1);
        (total > 0).then(|| u8::try_from(percent).unwrap_or(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_of_real_bytes_and_absent_without_a_size() {
        let progress = Progress::default();
        assert_eq!((progress.phase(), progress.percent()), (Phase::Queued, None));
        progress.enter(Phase::Uploading, Some(200));
        progress.add(84);
        assert_eq!((progress.phase(), progress.percent()), (Phase::Uploading, Some(42)));
        progress.add(1_000);
        assert_eq!(progress.percent(), Some(100));
        progress.enter(Phase::Downloading, None);
        progress.add(5);
        assert_eq!((progress.done(), progress.percent()), (5, None));
        progress.enter(Phase::Uploading, Some(u64::MAX));
        progress.add(u64::MAX);
        assert_eq!(progress.percent(), Some(100));
    }
}
