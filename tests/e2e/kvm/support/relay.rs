//! Stands between the operator and libvirtd, sees each call that changes something, and strikes at one of them.
//!
//! ```text
//!  operator ──▶ relay.sock ──▶ libvirtd        Before: the message has come from the operator, libvirtd never sees it
//!           ◀──            ◀──                 After: libvirtd has answered, the operator never hears it
//! ```

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::rpc::{Effect, Kind, Message, UPLOAD};

/// Something that changes the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// A call and its answer.
    Call(&'static str),
    /// The second piece of an upload: some of it is there.
    Middle,
    /// The end of an upload, and libvirtd's word that all has arrived.
    End,
}

/// On which side of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

/// A moment at which to strike: a side of the nth step of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) step: Step,
    pub(crate) nth: usize,
    pub(crate) side: Side,
}

/// The relay. Its connections end with it.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    folder: tempfile::TempDir,
}

struct Shared {
    upstream: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: Vec<Step>,
    counts: HashMap<Step, usize>,
    unknown: Vec<(u32, u32)>,
    trap: Option<Trap>,
    open: Vec<UnixStream>,
    closed: bool,
}

struct Trap {
    point: Point,
    strike: Box<dyn FnOnce() + Send>,
}

/// What has to be looked at again when its answer comes, by serial.
type Awaited = Arc<Mutex<HashMap<u32, Vec<(Step, usize)>>>>;

/// Both ends are dead: nothing goes on.
struct Struck;

impl Relay {
    pub(crate) fn new(upstream: &Path) -> Self {
        let folder = tempfile::Builder::new().prefix("e2e-kvm-relay-").tempdir().unwrap();
        let shared = Arc::new(Shared { upstream: upstream.to_owned(), state: Mutex::default() });
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if accepting.lock().closed {
                    return;
                }
                accepting.serve(client);
            }
        });
        Self { shared, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    /// As a Provider's grant has it.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Counts anew, and strikes at the point once.
    pub(crate) fn arm(&self, point: Point, strike: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        state.counts.clear();
        state.trap = Some(Trap { point, strike: Box::new(strike) });
    }

    /// Forgets the steps so far, and those that it was to strike at.
    pub(crate) fn reset(&self) {
        let mut state = self.shared.lock();
        state.counts.clear();
        state.steps.clear();
        state.trap = None;
    }

    /// Whether the point has not come yet.
    pub(crate) fn is_armed(&self) -> bool {
        self.shared.lock().trap.is_some()
    }

    /// The steps since the last reset, in their order.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let state = self.shared.lock();
        assert!(state.unknown.is_empty(), "calls (program, procedure) that rpc.rs does not know: {:?}", state.unknown);
        state.steps.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.closed = true;
            state.open.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
        // Wakes the thread that accepts.
        let _ = UnixStream::connect(self.socket());
    }
}

/// Both sides of each step, each a point.
pub(crate) fn points(steps: &[Step]) -> Vec<Point> {
    let mut counts: HashMap<Step, usize> = HashMap::new();
    let mut points = vec![];
    for step in steps {
        let nth = counts.entry(*step).or_default();
        points.push(Point { step: *step, nth: *nth, side: Side::Before });
        if *step != Step::Middle {
            points.push(Point { step: *step, nth: *nth, side: Side::After });
        }
        *nth += 1;
    }
    points
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: &Arc<Self>, client: UnixStream) {
        let Ok(server) = UnixStream::connect(&self.upstream) else { return };
        let clones = [client.try_clone(), server.try_clone()].map(Result::unwrap);
        self.lock().open.extend(clones);
        let awaited = Awaited::default();
        for is_up in [true, false] {
            let (client, server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (shared, awaited) = (Arc::clone(self), Arc::clone(&awaited));
            std::thread::spawn(move || {
                let (from, to) = if is_up { (&client, &server) } else { (&server, &client) };
                let _ = shared.pump(from, to, is_up, &awaited);
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    }

    fn pump(&self, from: &UnixStream, mut to: &UnixStream, is_up: bool, awaited: &Awaited) -> io::Result<()> {
        let mut from = BufReader::new(from);
        // Pieces of each upload that have come.
        let mut pieces: HashMap<u32, usize> = HashMap::new();
        while let Some(message) = Message::read(&mut from)? {
            let struck = if is_up { self.goes(&message, &mut pieces, awaited) } else { self.comes(&message, awaited) };
            if struck.is_err() {
                return Ok(());
            }
            to.write_all(&message.bytes)?;
        }
        Ok(())
    }

    /// A message on its way to libvirtd.
    fn goes(&self, message: &Message, pieces: &mut HashMap<u32, usize>, awaited: &Awaited) -> Result<(), Struck> {
        let step = match (message.kind, message.effect()) {
            (_, Effect::Unknown(program, procedure)) => {
                self.lock().unknown.push((program, procedure));
                return Ok(());
            }
            (Kind::Call, Effect::Changes(name)) => Step::Call(name),
            (Kind::Stream, _) if message.procedure == UPLOAD && message.continues => {
                let pieces = pieces.entry(message.serial).or_default();
                *pieces += 1;
                if *pieces != 2 {
                    return Ok(());
                }
                Step::Middle
            }
            (Kind::Stream, _) if message.procedure == UPLOAD && message.is_empty() => Step::End,
            _ => return Ok(()),
        };
        let nth = {
            let mut state = self.lock();
            state.steps.push(step);
            let count = state.counts.entry(step).or_default();
            *count += 1;
            *count - 1
        };
        self.strike(Point { step, nth, side: Side::Before })?;
        if step != Step::Middle {
            let mut awaited = awaited.lock().unwrap_or_else(PoisonError::into_inner);
            awaited.entry(message.serial).or_default().push((step, nth));
        }
        Ok(())
    }

    /// A message on its way from libvirtd.
    fn comes(&self, message: &Message, awaited: &Awaited) -> Result<(), Struck> {
        let is_answer = match message.kind {
            Kind::Reply => true,
            Kind::Stream => message.procedure == UPLOAD && !message.continues,
            Kind::Call | Kind::Other => false,
        };
        if !is_answer {
            return Ok(());
        }
        let steps = {
            let mut awaited = awaited.lock().unwrap_or_else(PoisonError::into_inner);
            awaited.remove(&message.serial).unwrap_or_default()
        };
        steps.into_iter().try_for_each(|(step, nth)| self.strike(Point { step, nth, side: Side::After }))
    }

    fn strike(&self, point: Point) -> Result<(), Struck> {
        let trap = {
            let mut state = self.lock();
            state.trap.take_if(|trap| trap.point == point)
        };
        let Some(trap) = trap else { return Ok(()) };
        (trap.strike)();
        Err(Struck)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.side == Side::Before { "before" } else { "after" };
        match self.step {
            Step::Call(name) => write!(f, "{side} {name} {}", self.nth + 1),
            Step::Middle => write!(f, "in the middle of upload {}", self.nth + 1),
            Step::End => write!(f, "{side} the end of upload {}", self.nth + 1),
        }
    }
}
