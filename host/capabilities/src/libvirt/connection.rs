//! One shared connection to a hypervisor, and the threads that may block on it.
//!
//! ```text
//!            dialled                      ended, rotated, idle, used up
//!  idle ───────────────▶ up ──────────────────────────────▶ idle
//!   ▲ │
//!   │ └── failed ──▶ down ── its time has passed, or the Secret has changed ──▶ idle
//! ```
//!
//! A call waits for the connection, then for a thread, then runs. When its time is up its caller goes, and the thread
//! stays blocked until libvirt returns, or until the connection is cut: when it answers no keepalive, or when every
//! thread is held by a call that nobody waits for any more. A call that met a dead connection is made again, once, on
//! a new one: everything that is called through here may be made twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use proxy_operator_core::error::{Error, Result};
use rand::RngExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant as Deadline, timeout, timeout_at};
use uuid::Uuid;

use super::dial::{Dial, Dialled};
use super::error::Failure;
use super::facts::HostFacts;
use super::seam::Seam;
use super::trace::{Fence, Traced};
use crate::limits::Limits;
use crate::secrets::ContentDigest;
use crate::ssh::cutter::{Cutter, Stage};

/// A hypervisor as this process knows it: a connection for calls, and one for uploads, which would hold the other up.
pub struct Hypervisor {
    /// For calls.
    pub calls: Arc<Line>,
    /// For uploads.
    pub uploads: Arc<Line>,
    /// When domains of ours were defined, as far as it was seen: a listing does not tell.
    pub created: CreatedCache,
}

/// One connection that many share.
pub struct Line {
    name: &'static str,
    dial: Arc<dyn Dial>,
    limits: Arc<Limits>,
    identity: Arc<HostIdentity>,
    threads: Arc<Semaphore>,
    size: usize,
    failures: AtomicU32,
    slot: Mutex<Slot>,
    closed: AtomicBool,
    idle: Option<Duration>,
}

/// How a call is to be made.
#[derive(Clone, Debug)]
pub struct Call {
    /// The host's name in the grant, for the log.
    pub host: Arc<str>,
    /// How long it may take in all.
    pub time: Duration,
    /// Set when the grant ends.
    pub revoked: Arc<AtomicBool>,
}

/// What an operation has to work with.
pub struct Session<'a> {
    /// libvirt's calls.
    pub seam: &'a dyn Seam,
    /// What the hypervisor says of itself.
    pub facts: &'a HostFacts,
}

/// When domains were defined, by uuid.
#[derive(Debug, Default)]
pub struct CreatedCache(Mutex<HashMap<Uuid, String>>);

/// The machine behind an address, as it was seen last.
///
/// Its uuid alone does not tell: where the firmware gives none that is valid, libvirtd makes one up at each start. The
/// uuids of its storage pools are kept on its disk. One that has neither in common is another machine.
#[derive(Debug, Default)]
pub struct HostIdentity(Mutex<Option<Machine>>);

#[derive(Debug)]
struct Machine {
    uuid: String,
    pools: Vec<Uuid>,
}

type Dialling = Shared<BoxFuture<'static, Result<Arc<Link>>>>;

enum Slot {
    Idle,
    Dialling(Dialling),
    Up(Arc<Link>),
    Down { error: Error, until: Instant, digest: Option<ContentDigest> },
}

/// An open connection.
struct Link {
    // Declared in the order in which they go: libvirt's client last sees a socket that is shut.
    cut_on_drop: CutOnDrop,
    seam: Box<dyn Seam>,
    facts: HostFacts,
    digest: Option<ContentDigest>,
    ended: Option<watch::Receiver<Option<String>>>,
    last_used: Mutex<Instant>,
    /// Threads that are held by calls that nobody waits for.
    abandoned: AtomicUsize,
}

/// Cuts the connection before libvirt's client closes it: a close waits for an answer.
struct CutOnDrop(Arc<Cutter>);

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const ABANDONED: u8 = 2;

/// What caller and thread of a call tell each other.
struct Ticket {
    line: Arc<Line>,
    link: Arc<Link>,
    state: AtomicU8,
    fence: Fence,
}

/// The caller's end: gone means abandoned.
struct Waiting(Arc<Ticket>);

/// The thread's end: gone means done, also when the job has panicked.
struct Running {
    ticket: Arc<Ticket>,
    _permit: OwnedSemaphorePermit,
}

// === impl Hypervisor ===

impl Hypervisor {
    /// A hypervisor that is dialled so, when it is first called.
    pub fn new(dial: Arc<dyn Dial>, limits: Arc<Limits>) -> Self {
        let identity = Arc::new(HostIdentity::default());
        let line = |name, size, idle| {
            Arc::new(Line {
                name,
                dial: Arc::clone(&dial),
                limits: Arc::clone(&limits),
                identity: Arc::clone(&identity),
                threads: Arc::new(Semaphore::new(size)),
                size,
                failures: AtomicU32::new(0),
                slot: Mutex::new(Slot::Idle),
                closed: AtomicBool::new(false),
                idle,
            })
        };
        Self {
            calls: line("calls", limits.threads, None),
            uploads: line("uploads", limits.uploads, Some(limits.upload_idle)),
            created: CreatedCache::default(),
        }
    }

    /// Ends its connections; later calls fail.
    pub fn close(&self) {
        self.calls.close();
        self.uploads.close();
    }
}

impl Drop for Hypervisor {
    fn drop(&mut self) {
        self.close();
    }
}

// === impl Line ===

impl Line {
    /// Runs an operation. It may be run twice, hence it is one that may be; its calls stop when the caller goes or the
    /// grant ends.
    pub async fn call<T, J>(self: &Arc<Self>, call: &Call, job: J) -> std::result::Result<T, Failure>
    where
        T: Send + 'static,
        J: Fn(&Session<'_>) -> std::result::Result<T, Failure> + Send + Sync + 'static,
    {
        let deadline = Deadline::now() + call.time;
        let job = Arc::new(job);
        let mut again = true;
        loop {
            let late = |what: &str| {
                let address = self.dial.address();
                Error::deadline_exceeded(
                    "LibvirtUnavailable",
                    format!("{}: {address} {what} within {:?}", call.host, call.time),
                )
            };
            let link = timeout_at(deadline, self.link()).await.map_err(|_| late("was not connected"))??;
            let Ok(permit) = timeout_at(deadline, Arc::clone(&self.threads).acquire_owned()).await else {
                self.cut_if_used_up(&link);
                return Err(late("had no thread free for a call: others wait for it").into());
            };
            let Ok(permit) = permit else {
                return Err(Error::unavailable("LibvirtUnavailable", format!("{}: shutting down", call.host)).into());
            };
            let outcome = match timeout_at(deadline, self.run(&link, permit, call, Arc::clone(&job))).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(late("did not answer a call").into()),
            };
            let Err(failure) = outcome else { return outcome };
            if !failure.is_disconnect() && link.is_usable() {
                return Err(failure);
            }
            self.discard(&link, &failure.to_string());
            if !again || !failure.is_disconnect() || Deadline::now() >= deadline {
                return Err(failure);
            }
            again = false;
        }
    }

    /// Ends the connection; later calls fail.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.threads.close();
        if let Slot::Up(link) = std::mem::replace(&mut *self.slot(), Slot::Idle) {
            link.cut_on_drop.0.cut();
        }
    }

    /// Whether a connection is open.
    pub fn is_up(&self) -> bool {
        matches!(&*self.slot(), Slot::Up(link) if link.is_usable())
    }

    /// Runs a job on a thread of its own, which outlives its caller when it must.
    async fn run<T, J>(
        self: &Arc<Self>,
        link: &Arc<Link>,
        permit: OwnedSemaphorePermit,
        call: &Call,
        job: Arc<J>,
    ) -> std::result::Result<T, Failure>
    where
        T: Send + 'static,
        J: Fn(&Session<'_>) -> std::result::Result<T, Failure> + Send + Sync + 'static,
    {
        let fence = Fence { revoked: Arc::clone(&call.revoked), abandoned: Arc::default() };
        let ticket =
            Arc::new(Ticket { line: Arc::clone(self), link: Arc::clone(link), state: AtomicU8::new(RUNNING), fence });
        let waiting = Waiting(Arc::clone(&ticket));
        let (link, host) = (Arc::clone(link), Arc::clone(&call.host));
        let running = Running { ticket, _permit: permit };
        // The thread's lines are for the Proxy and the call that wait here.
        let span = tracing::Span::current();
        let thread = tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            let traced = Traced::new(&*link.seam, &host, &running.ticket.fence);
            let outcome = job(&Session { seam: &traced, facts: &link.facts });
            link.touch();
            outcome
        });
        let outcome = thread.await;
        drop(waiting);
        outcome.unwrap_or_else(|error| {
            Err(Error::internal(
                "LibvirtPanicked",
                format!("{}: a call of libvirt failed in this process: {error}", call.host),
            )
            .into())
        })
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open connection, or a new one; many who ask at once wait for the same dial.
    async fn link(self: &Arc<Self>) -> Result<Arc<Link>> {
        let dialling = {
            let mut slot = self.slot();
            if self.closed.load(Ordering::SeqCst) {
                return Err(Error::unavailable(
                    "LibvirtUnavailable",
                    format!("{}: shutting down", self.dial.address()),
                ));
            }
            match &*slot {
                Slot::Up(link) if link.is_usable() => return Ok(Arc::clone(link)),
                Slot::Dialling(dialling) => dialling.clone(),
                Slot::Down { error, until, digest } if Instant::now() < *until && *digest == self.dial.digest() => {
                    let mut error = error.clone();
                    error.retry_after = Some(until.saturating_duration_since(Instant::now()));
                    return Err(error);
                }
                Slot::Up(_) | Slot::Down { .. } | Slot::Idle => {
                    let line = Arc::clone(self);
                    // A task of its own: it ends well though those who asked have gone.
                    let task = tokio::spawn(async move { line.dial().await });
                    let dialling = async move {
                        task.await.unwrap_or_else(|error| {
                            Err(Error::internal("LibvirtPanicked", format!("a dial failed in this process: {error}")))
                        })
                    };
                    let dialling = dialling.boxed().shared();
                    let old = std::mem::replace(&mut *slot, Slot::Dialling(dialling.clone()));
                    drop(slot);
                    // Closes a connection that is dead: not while others wait for the slot.
                    drop(old);
                    dialling
                }
            }
        };
        dialling.await
    }

    async fn dial(self: Arc<Self>) -> Result<Arc<Link>> {
        let (address, line) = (self.dial.address(), self.name);
        let started = Instant::now();
        let cutter = Arc::new(Cutter::default());
        let thread = {
            let (dial, cutter) = (Arc::clone(&self.dial), Arc::clone(&cutter));
            tokio::task::spawn_blocking(move || dial.dial(&cutter))
        };
        let outcome = match timeout(self.limits.dial, thread).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                Err(Error::internal("LibvirtPanicked", format!("{address}: a dial failed in this process: {error}")))
            }
            Err(_) => {
                cutter.cut();
                let (reason, what) = match cutter.stage() {
                    Stage::Reaching => ("HostUnreachable", "did not answer"),
                    Stage::Ssh => ("HostUnreachable", "accepted the connection, but its sshd did not answer"),
                    Stage::Libvirt => ("LibvirtUnavailable", "let us in by SSH, but libvirt did not answer"),
                };
                Err(Error::unavailable(reason, format!("{address}: the host {what} within {:?}", self.limits.dial)))
            }
        };
        let outcome = outcome
            .and_then(|dialled| self.identity.check(&address, &dialled.facts.uuid, &dialled.pools).map(|()| dialled));
        let duration_ms = started.elapsed().as_secs_f64() * 1_000.0;
        match outcome {
            Ok(dialled) => {
                let link = Arc::new(Link::new(dialled, cutter));
                self.failures.store(0, Ordering::SeqCst);
                let mut slot = self.slot();
                if self.closed.load(Ordering::SeqCst) {
                    *slot = Slot::Idle;
                    drop(slot);
                    return Err(Error::unavailable("LibvirtUnavailable", format!("{address}: shutting down")));
                }
                *slot = Slot::Up(Arc::clone(&link));
                drop(slot);
                tracing::info!(target: "libvirt", address, line, uuid = link.facts.uuid, duration_ms, "connected");
                tokio::spawn(watch_over(Arc::downgrade(&self), Arc::downgrade(&link)));
                Ok(link)
            }
            Err(error) => {
                cutter.cut();
                let wait = self.peace();
                let error = Error { retry_after: Some(wait), ..error };
                tracing::warn!(
                    target: "libvirt", address, line, reason = error.reason, error = %error, duration_ms,
                    next_dial_ms = wait.as_millis() as u64, "dial failed"
                );
                *self.slot() =
                    Slot::Down { error: error.clone(), until: Instant::now() + wait, digest: self.dial.digest() };
                Err(error)
            }
        }
    }

    /// How long to leave the host in peace after one more failure: twice as long each time, half of it by chance.
    fn peace(&self) -> Duration {
        let failures = self.failures.fetch_add(1, Ordering::SeqCst).min(16);
        let whole = self.limits.backoff_first.saturating_mul(1 << failures).min(self.limits.backoff_most);
        whole.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// Ends a connection that is dead, and leaves one that has taken its place.
    fn discard(&self, link: &Arc<Link>, why: &str) {
        {
            let mut slot = self.slot();
            if !matches!(&*slot, Slot::Up(current) if Arc::ptr_eq(current, link)) {
                return;
            }
            *slot = Slot::Idle;
        }
        let why = link.ended.as_ref().and_then(|ended| ended.borrow().clone()).unwrap_or_else(|| why.to_owned());
        link.cut_on_drop.0.cut();
        tracing::warn!(target: "libvirt", address = self.dial.address(), line = self.name, why, "connection dropped");
    }

    /// Cuts the connection when every thread is held by a call that nobody waits for.
    fn cut_if_used_up(&self, link: &Arc<Link>) {
        if link.abandoned.load(Ordering::SeqCst) >= self.size {
            self.discard(link, "every thread waits for a call that does not return");
        }
    }
}

/// Looks after a connection while it is open: says when it ends, ends it when its Secret changes or nobody uses it.
async fn watch_over(line: Weak<Line>, link: Weak<Link>) {
    let (interval, mut ended) = match (line.upgrade(), link.upgrade()) {
        (Some(line), Some(link)) => (line.limits.secret_check, link.ended.clone()),
        _ => return,
    };
    let mut answered = Instant::now();
    loop {
        let end = async {
            match &mut ended {
                Some(ended) => drop(ended.wait_for(Option::is_some).await),
                None => std::future::pending().await,
            }
        };
        let over = timeout(interval, end).await.is_ok();
        let (Some(line), Some(link)) = (line.upgrade(), link.upgrade()) else { return };
        if over || !link.is_usable() {
            return line.discard(&link, "it ended");
        }
        let digest = {
            let dial = Arc::clone(&line.dial);
            tokio::task::spawn_blocking(move || dial.digest()).await
        };
        if digest.is_ok_and(|digest| digest != link.digest) {
            return line.discard(&link, "its Secret has changed");
        }
        if answered.elapsed() >= line.limits.keepalive_interval {
            if !answers(&line, &link).await {
                return line.discard(&link, "no answer to its keepalive");
            }
            answered = Instant::now();
        }
        if line.idle.is_some_and(|idle| link.unused_for() > idle && line.threads.available_permits() == line.size) {
            let mut slot = line.slot();
            if matches!(&*slot, Slot::Up(current) if Arc::ptr_eq(current, &link)) {
                *slot = Slot::Idle;
                tracing::debug!(target: "libvirt", address = line.dial.address(), line = line.name, "closed, as nobody uses it");
            }
            return;
        }
    }
}

/// Whether libvirtd still answers: a call that it serves before all others, with the time of the keepalive. What waits
/// on a connection that is cut returns as at an end of file.
async fn answers(line: &Line, link: &Arc<Link>) -> bool {
    let Limits { keepalive_interval, keepalive_count, .. } = *line.limits;
    let link = Arc::clone(link);
    let asked = tokio::task::spawn_blocking(move || drop(link.seam.libvirt_version()));
    // An error is an answer too; the end of the connection is seen elsewhere.
    timeout(keepalive_interval * keepalive_count, asked).await.is_ok()
}

// === impl Link ===

impl Link {
    fn new(dialled: Dialled, cutter: Arc<Cutter>) -> Self {
        let Dialled { seam, facts, pools: _, digest, ended } = dialled;
        let cut_on_drop = CutOnDrop(cutter);
        Self {
            cut_on_drop,
            seam,
            facts,
            digest,
            ended,
            last_used: Mutex::new(Instant::now()),
            abandoned: AtomicUsize::new(0),
        }
    }

    /// As far as this side knows.
    fn is_usable(&self) -> bool {
        !self.cut_on_drop.0.is_cut()
            && self.ended.as_ref().is_none_or(|ended| ended.borrow().is_none())
            && self.seam.is_alive()
    }

    fn touch(&self) {
        *self.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn unused_for(&self) -> Duration {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.cut();
    }
}

// === impl Waiting, Running ===

impl Drop for Waiting {
    fn drop(&mut self) {
        let Self(ticket) = self;
        if ticket.state.compare_exchange(RUNNING, ABANDONED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            ticket.fence.abandoned.store(true, Ordering::SeqCst);
            ticket.link.abandoned.fetch_add(1, Ordering::SeqCst);
            ticket.line.cut_if_used_up(&ticket.link);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ticket.state.swap(DONE, Ordering::SeqCst) == ABANDONED {
            self.ticket.link.abandoned.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

// === impl CreatedCache, HostIdentity ===

impl CreatedCache {
    /// Remembers when a domain was defined.
    pub fn put(&self, domain: Uuid, created_at: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Domains come and go; what is forgotten is merely not shown in a listing.
        if known.len() >= 2 * crate::limits::DOMAINS_MAX {
            known.clear();
        }
        known.insert(domain, created_at.to_owned());
    }

    /// When a domain was defined, if it was seen.
    pub fn get(&self, domain: &Uuid) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(domain).cloned()
    }
}

impl HostIdentity {
    /// Remembers the first machine; refuses another.
    fn check(&self, address: &str, uuid: &str, pools: &[Uuid]) -> Result<()> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Machine { uuid: first, pools: kept }) = &*known
            && first != uuid
            && !pools.iter().any(|pool| kept.contains(pool))
        {
            return Err(Error::invalid_config(
                "HostReplaced",
                format!(
                    "{address}: this is another machine (uuid {uuid}) than before ({first}), with other storage pools: what was made there cannot be seen here. When that is right, restart the operator"
                ),
            ));
        }
        *known = Some(Machine { uuid: uuid.to_owned(), pools: pools.to_vec() });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
