//! Brings a base image into a pool so that at any moment of any crash it is told whole from partial.
//!
//! ```text
//!   claim ─▶ delete marker ─▶ delete volume ─▶ create ─▶ fill ─▶ look ─▶ marker ─▶ drop claim
//!   whole: ─── no longer ───────────────────────────────────────────────▶ from here ──────▶
//! ```
//!
//! libvirt has no rename, and a pool can be shared by installations that do not know each other. Of two who make the
//! volume of a claim at once, libvirt lets one win. The claim names who uploads and counts up while the upload goes on:
//! one of this installation whose upload is none of this process was left by a crash, and is taken over at once; one of
//! another installation is waited for, and taken over when it has stood still for long. An uploader that finds its
//! claim gone stops; a marker counts only without anybody else's claim, so one that comes late vouches for nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use proxy_operator_core::capability::images::BaseImage;
use proxy_operator_core::error::{Error, ErrorCode, Result};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::cache::Cached;
use super::digest::sha256_hex;
use super::download::cancelled;
use super::format::Inspected;
use super::limits::{ImageLimits, MARKER_BYTES};
use super::marker::{Claim, Marker, VERSION};
use super::name::{BaseName, format_word};
use super::pool::{Content, Created, ImagePool};
use super::progress::{Phase, Progress};
use super::stock::{self, Stock};

/// The uploads of this process that go on now.
#[derive(Debug, Default)]
pub struct Tokens(Mutex<HashSet<String>>);

/// One image on its way into one pool.
pub struct Upload<'a> {
    /// Where to.
    pub pool: &'a dyn ImagePool,
    /// The same for people: `hv1/default`.
    pub place: &'a str,
    /// The volume.
    pub name: BaseName,
    /// What.
    pub image: &'a Cached,
    /// What it is.
    pub inspected: Inspected,
    /// From where it came.
    pub url: &'a str,
    /// This installation.
    pub installation: &'a str,
    /// The uploads of this process.
    pub tokens: &'a Arc<Tokens>,
    /// How far it is.
    pub progress: &'a Arc<Progress>,
    /// Ends it.
    pub cancelled: &'a CancellationToken,
    /// How long each step may take.
    pub limits: &'a ImageLimits,
}

/// A token that is known while it is held.
struct Token {
    text: String,
    tokens: Arc<Tokens>,
}

/// Another's claim, and since when it stands still.
struct Standstill {
    bytes: Vec<u8>,
    since: Instant,
}

impl Upload<'_> {
    /// The image once it is whole, by this upload or by another.
    pub async fn run(&self) -> Result<BaseImage> {
        let token = Token::new(self.tokens);
        let mut standstill: Option<Standstill> = None;
        loop {
            match stock::look(self.pool, &self.name).await? {
                Stock::Whole(marker) => return stock::base_image(&self.name, &marker, &self.image.digest),
                Stock::Claimed(_) if !self.take_over(&mut standstill).await? => {
                    self.progress.enter(Phase::Waiting, None);
                    self.pause(self.limits.claim_settle).await?;
                }
                Stock::Claimed(_) => {}
                Stock::Absent | Stock::Partial(_) => {
                    if self.claim(&token, standstill.is_some()).await? {
                        break;
                    }
                }
            }
        }
        let outcome = tokio::select! {
            outcome = self.fill(&token) => outcome,
            error = self.beat(&token) => Err(error),
            () = self.cancelled.cancelled() => Err(cancelled()),
        };
        if let Err(error) = &outcome {
            self.clean_up(&token, error).await;
        }
        outcome
    }

    /// What is done under the claim.
    async fn fill(&self, token: &Token) -> Result<BaseImage> {
        let (volume, length) = (self.name.to_string(), self.image.length);
        match stock::look_under_claim(self.pool, &self.name).await? {
            // Somebody ended between the first look and the claim.
            Stock::Whole(marker) => {
                self.pool.delete(&self.name.claim()).await?;
                return stock::base_image(&self.name, &marker, &self.image.digest);
            }
            Stock::Partial(why) => self.check_unused(&volume, &why).await?,
            Stock::Absent | Stock::Claimed(_) => {}
        }
        // This order: without its marker the volume is nothing, whatever happens to it.
        self.pool.delete(&self.name.marker()).await?;
        self.pool.delete(&volume).await?;
        self.check_room(length).await?;
        if self.pool.create(&volume, length).await? == Created::Exists {
            return Err(self.disturbed(&format!("volume {volume} was made by somebody else")));
        }
        self.progress.enter(Phase::Uploading, Some(length));
        self.send(&volume).await?;
        self.progress.enter(Phase::Verifying, None);
        self.refresh().await?;
        let marker = self.marker(token);
        match self.pool.look(&volume).await? {
            None => return Err(self.disturbed(&format!("volume {volume} has gone while it was filled"))),
            Some(found) => {
                if let Some(why) = marker.contradiction(&self.name, &found) {
                    return Err(Error::invalid_config(
                        "ImageUnusable",
                        format!(
                            "{}: volume {volume} was filled, but {why}; base images need a pool of files (dir, fs, netfs) whose libvirt knows {}",
                            self.place,
                            format_word(self.name.format)
                        ),
                    ));
                }
            }
        }
        self.check_claim(token).await?;
        self.write_marker(&marker).await?;
        self.pool.delete(&self.name.claim()).await?;
        stock::base_image(&self.name, &marker, &self.image.digest)
    }

    /// The bytes, as long as they move.
    async fn send(&self, volume: &str) -> Result<()> {
        let file = Arc::new(self.image.open()?);
        let stop = self.cancelled.child_token();
        // Whatever ends this call ends the thread that reads the file.
        let _stop = stop.clone().drop_guard();
        let content = Content { file, length: self.image.length, progress: Arc::clone(self.progress), cancelled: stop };
        let started = Instant::now();
        let place = self.place;
        tracing::info!(target: "images", place, volume, digest = %self.image.digest, bytes = self.image.length, "upload starts");
        let outcome = tokio::select! {
            outcome = self.pool.upload(volume, content) => outcome,
            () = self.standing_still() => Err(Error::unavailable(
                "ImageUploadStalled",
                format!("{place}: the upload of {volume} has not moved for {:?}", self.limits.upload_stall),
            )),
            () = tokio::time::sleep(self.limits.upload) => Err(Error::deadline_exceeded(
                "ImageUploadStalled",
                format!("{place}: the upload of {volume} has not ended within {:?}", self.limits.upload),
            )),
        };
        let duration_ms = started.elapsed().as_secs_f64() * 1_000.0;
        let bytes = self.progress.done();
        match &outcome {
            Ok(()) => tracing::info!(target: "images", place, volume, bytes, duration_ms, "upload ended"),
            Err(error) => tracing::warn!(
                target: "images", place, volume, bytes, duration_ms, reason = error.reason, error = %error, "upload failed"
            ),
        }
        outcome
    }

    /// Returns when no byte has gone for long.
    async fn standing_still(&self) {
        let mut last = self.progress.done();
        loop {
            tokio::time::sleep(self.limits.upload_stall).await;
            let now = self.progress.done();
            if now == last {
                return;
            }
            last = now;
        }
    }

    /// libvirt refreshes a pool by itself after an upload, and refuses to do it twice at once.
    async fn refresh(&self) -> Result<()> {
        let until = Instant::now() + self.limits.pool_busy;
        loop {
            match self.pool.refresh().await {
                Err(error) if error.reason == "PoolBusy" && Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn check_unused(&self, volume: &str, why: &str) -> Result<()> {
        let users = self.pool.users().await?.remove(volume).unwrap_or_default();
        if users.is_empty() {
            return Ok(());
        }
        let shown = users.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let more = users.len().saturating_sub(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Err(Error::new(
            ErrorCode::Conflict,
            "ImageInUse",
            format!(
                "{}: volume {volume} is no image that can be trusted ({why}), and in use by {shown}{more}: it is not replaced; delete what stands on it, or give the image another key",
                self.place
            ),
        ))
    }

    async fn check_room(&self, length: u64) -> Result<()> {
        match self.pool.available().await? {
            Some(available) if available < length => Err(Error::new(
                ErrorCode::Exhausted,
                "PoolFull",
                format!(
                    "{}: an image of {length} bytes does not fit into the {available} bytes that are free",
                    self.place
                ),
            )),
            _ => Ok(()),
        }
    }

    fn marker(&self, token: &Token) -> Marker {
        Marker {
            version: VERSION,
            volume: self.name.to_string(),
            digest: self.image.digest.to_string(),
            length: self.image.length,
            capacity: self.inspected.capacity,
            source: sha256_hex(self.url),
            token: token.text.clone(),
            completed_at: jiff::Timestamp::now().to_string(),
        }
    }

    async fn write_marker(&self, marker: &Marker) -> Result<()> {
        let bytes = marker
            .encode()
            .ok_or_else(|| Error::internal("ImageMarkerTooLong", "a marker does not fit into its volume"))?;
        self.put(&self.name.marker(), bytes).await
    }

    /// Makes a small volume with this content, in place of one that is there.
    async fn put(&self, volume: &str, content: Vec<u8>) -> Result<()> {
        if self.pool.create(volume, MARKER_BYTES as u64).await? == Created::Exists {
            self.pool.delete(volume).await?;
            if self.pool.create(volume, MARKER_BYTES as u64).await? == Created::Exists {
                return Err(self.disturbed(&format!("volume {volume} was made by somebody else")));
            }
        }
        self.pool.write(volume, content.clone()).await?;
        match self.pool.read(volume, MARKER_BYTES as u64).await? {
            Some(read) if read.starts_with(&content) => Ok(()),
            _ => Err(self.disturbed(&format!("volume {volume} does not hold what was written to it"))),
        }
    }

    // === the claim ===

    /// Claims the volume, unless somebody else was faster.
    async fn claim(&self, token: &Token, taken_over: bool) -> Result<bool> {
        if self.pool.create(&self.name.claim(), MARKER_BYTES as u64).await? == Created::Exists {
            return Ok(false);
        }
        if let Err(error) = self.pool.write(&self.name.claim(), self.claim_bytes(token, 0)?).await {
            // One that says nothing would keep others waiting.
            let _ = self.pool.delete(&self.name.claim()).await;
            return Err(error);
        }
        if taken_over {
            // Another who took it over in the same moment may have deleted this one as well.
            self.pause(self.limits.claim_settle).await?;
        }
        Ok(self.own_claim(token).await?.is_some())
    }

    /// Whether a claim was abandoned, and is gone now.
    async fn take_over(&self, standstill: &mut Option<Standstill>) -> Result<bool> {
        let Some(bytes) = self.pool.read(&self.name.claim(), MARKER_BYTES as u64).await? else { return Ok(true) };
        let claim = Claim::decode(&bytes);
        let own = claim.as_ref().is_some_and(|claim| claim.installation == self.installation);
        let abandoned = match (&claim, &*standstill) {
            // Of this installation one process uploads at a time.
            (Some(claim), _) if own => !self.tokens.holds(&claim.token),
            // One that says nothing is written at once, or never.
            (None, Some(known)) if known.bytes == bytes => known.since.elapsed() >= 5 * self.limits.claim_settle,
            (Some(_), Some(known)) if known.bytes == bytes => known.since.elapsed() >= self.limits.claim_stale,
            _ => {
                *standstill = Some(Standstill { bytes, since: Instant::now() });
                false
            }
        };
        if abandoned {
            tracing::info!(
                target: "images", place = self.place, volume = %self.name,
                installation = claim.map(|claim| claim.installation), "taking over an upload that was abandoned"
            );
            self.pool.delete(&self.name.claim()).await?;
        }
        Ok(abandoned)
    }

    /// Renews the claim, and returns when it is lost.
    async fn beat(&self, token: &Token) -> Error {
        loop {
            tokio::time::sleep(self.limits.claim_beat).await;
            match self.own_claim(token).await {
                Ok(Some(claim)) => {
                    // A beat that fails is one that is missed; the next may come through.
                    if let Ok(bytes) = self.claim_bytes(token, claim.beat + 1)
                        && let Err(error) = self.pool.write(&self.name.claim(), bytes).await
                    {
                        tracing::debug!(target: "images", place = self.place, error = %error, "a claim could not be renewed");
                    }
                }
                Ok(None) => {
                    // At the very end the claim goes before the upload returns.
                    if let Ok(Stock::Whole(_)) = stock::look(self.pool, &self.name).await {
                        std::future::pending::<()>().await;
                    }
                    return self.disturbed("another operator has taken the upload over");
                }
                Err(error) => {
                    tracing::debug!(target: "images", place = self.place, error = %error, "a claim could not be read")
                }
            }
        }
    }

    async fn check_claim(&self, token: &Token) -> Result<()> {
        match self.own_claim(token).await? {
            Some(_) => Ok(()),
            None => Err(self.disturbed("another operator has taken the upload over")),
        }
    }

    /// The claim, when it is this upload's.
    async fn own_claim(&self, token: &Token) -> Result<Option<Claim>> {
        let bytes = self.pool.read(&self.name.claim(), MARKER_BYTES as u64).await?;
        Ok(bytes.as_deref().and_then(Claim::decode).filter(|claim| claim.token == token.text))
    }

    fn claim_bytes(&self, token: &Token, beat: u64) -> Result<Vec<u8>> {
        let claim = Claim {
            version: VERSION,
            volume: self.name.to_string(),
            installation: self.installation.to_owned(),
            token: token.text.clone(),
            beat,
        };
        claim.encode().ok_or_else(|| Error::internal("ImageMarkerTooLong", "a claim does not fit into its volume"))
    }

    /// Leaves the pool as it was, as far as it answers; what stays is taken over by the next upload.
    async fn clean_up(&self, token: &Token, why: &Error) {
        let work = async {
            if self.own_claim(token).await?.is_none() {
                return Ok(());
            }
            let in_use = why.reason == "ImageInUse";
            if !in_use && !matches!(stock::look(self.pool, &self.name).await?, Stock::Whole(_)) {
                self.pool.delete(&self.name.marker()).await?;
                self.pool.delete(&self.name.to_string()).await?;
            }
            self.pool.delete(&self.name.claim()).await
        };
        let outcome: Result<()> = tokio::time::timeout(self.limits.pool_busy, work)
            .await
            .unwrap_or_else(|_| Err(Error::deadline_exceeded("PoolBusy", "it took too long")));
        if let Err(error) = outcome {
            tracing::debug!(target: "images", place = self.place, volume = %self.name, error = %error, "a failed upload was left behind");
        }
    }

    async fn pause(&self, time: Duration) -> Result<()> {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = self.cancelled.cancelled() => Err(cancelled()),
        }
    }

    fn disturbed(&self, what: &str) -> Error {
        Error::unavailable("ImageUploadDisturbed", format!("{}: {what}; trying again", self.place))
    }
}

// === impl Tokens, Token ===

impl Tokens {
    /// Whether an upload of this process has this token.
    pub fn holds(&self, token: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(token)
    }
}

impl Token {
    fn new(tokens: &Arc<Tokens>) -> Self {
        let text = Uuid::new_v4().simple().to_string();
        tokens.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone());
        Self { text, tokens: Arc::clone(tokens) }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.tokens.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.text);
    }
}
