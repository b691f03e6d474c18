//! Dials, threads and callers, on libvirt's driver for tests.

use super::*;
use crate::libvirt::dial::UriDial;
use crate::ssh::cutter::Cutter;
use std::sync::mpsc;

/// Opens libvirt's driver for tests, or fails, and counts.
#[derive(Default)]
struct Counting {
    dials: AtomicUsize,
    fails: AtomicBool,
}

impl Dial for Counting {
    fn address(&self) -> String {
        "test".to_owned()
    }

    fn digest(&self) -> Option<ContentDigest> {
        None
    }

    fn dial(&self, cutter: &Arc<Cutter>) -> Result<Dialled> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::unavailable("HostUnreachable", "test: cannot be reached"));
        }
        UriDial { uri: "test:///default".to_owned() }.dial(cutter)
    }
}

fn hypervisor(limits: Limits) -> (Arc<Counting>, Hypervisor) {
    let dial = Arc::new(Counting::default());
    (Arc::clone(&dial), Hypervisor::new(dial, Arc::new(limits)))
}

fn call(time: Duration) -> Call {
    Call { host: Arc::from("hv1"), time, revoked: Arc::default() }
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn many_share_one_dial_and_one_refusal() {
    let limits = Limits { backoff_first: Duration::from_millis(200), ..Limits::default() };
    let (dial, hypervisor) = hypervisor(limits);
    dial.fails.store(true, Ordering::SeqCst);
    let all = async |line: &Arc<Line>| {
        let call = call(LONG);
        let calls = (0..100).map(|_| line.call(&call, |session| session.seam.cpus()));
        futures::future::join_all(calls).await
    };
    let refused = all(&hypervisor.calls).await;
    for outcome in refused.into_iter().chain(all(&hypervisor.calls).await) {
        let error = outcome.unwrap_err().into_error("hv1");
        assert_eq!(error.reason, "HostUnreachable");
        assert!(error.retry_after.is_some_and(|wait| wait <= Duration::from_millis(200)), "{error:?}");
    }
    assert_eq!(dial.dials.load(Ordering::SeqCst), 1);
    dial.fails.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(210)).await;
    assert!(all(&hypervisor.calls).await.iter().all(std::result::Result::is_ok));
    assert_eq!(dial.dials.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn calls_that_nobody_waits_for_make_no_more_calls_and_do_not_hold_the_threads() {
    let (dial, hypervisor) = hypervisor(Limits { threads: 2, ..Limits::default() });
    let line = &hypervisor.calls;
    line.call(&call(LONG), |session| session.seam.cpus()).await.unwrap();
    let (started, running) = mpsc::channel();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (outcome, seen) = mpsc::channel();
    let stuck = || {
        let (started, blocked, outcome) = (started.clone(), Arc::clone(&blocked), outcome.clone());
        async {
            line.call(&call(Duration::from_millis(100)), move |session| {
                started.send(()).unwrap();
                blocked.lock().unwrap().recv().unwrap();
                outcome.send(session.seam.cpus().map_err(|failure| failure.into_error("hv1").reason)).unwrap();
                Ok(())
            })
            .await
            .unwrap_err()
            .into_error("hv1")
        }
    };
    let first = stuck().await;
    assert_eq!(first.code, proxy_operator_core::error::ErrorCode::DeadlineExceeded, "{first}");
    assert!(line.is_up(), "one of two threads is left");
    stuck().await;
    running.try_recv().unwrap();
    running.try_recv().unwrap();
    assert!(!line.is_up(), "the connection is cut when none is left");
    let late = line.call(&call(Duration::from_millis(50)), |session| session.seam.cpus()).await;
    assert!(late.unwrap_err().into_error("hv1").message.contains("no thread free"));
    release.send(()).unwrap();
    release.send(()).unwrap();
    for _ in 0..2 {
        assert_eq!(seen.recv_timeout(LONG).unwrap(), Err("CallAbandoned".to_owned()));
    }
    line.call(&call(LONG), |session| session.seam.cpus()).await.unwrap();
    assert_eq!(dial.dials.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_call_alone() {
    let (_, hypervisor) = hypervisor(Limits { threads: 1, ..Limits::default() });
    for _ in 0..2 {
        let terms = call(LONG);
        let job = |_: &Session<'_>| -> std::result::Result<(), Failure> { panic!("as virt does on drop") };
        assert_eq!(hypervisor.calls.call(&terms, job).await.unwrap_err().into_error("hv1").reason, "LibvirtPanicked");
        hypervisor.calls.call(&call(LONG), |session| session.seam.cpus()).await.unwrap();
    }
}

#[tokio::test]
async fn a_caller_that_goes_stops_its_call() {
    let (_, hypervisor) = hypervisor(Limits::default());
    let (started, running) = tokio::sync::oneshot::channel();
    let started = Mutex::new(Some(started));
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let (outcome, seen) = mpsc::channel();
    let (line, terms) = (Arc::clone(&hypervisor.calls), call(LONG));
    let caller = tokio::spawn(async move {
        let job = move |session: &Session<'_>| {
            started.lock().unwrap().take().unwrap().send(()).unwrap();
            blocked.lock().unwrap().recv().unwrap();
            outcome.send(session.seam.cpus().map_err(|failure| failure.into_error("hv1").reason)).unwrap();
            Ok(())
        };
        line.call(&terms, job).await
    });
    running.await.unwrap();
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    release.send(()).unwrap();
    assert_eq!(seen.recv_timeout(LONG).unwrap(), Err("CallAbandoned".to_owned()));
}

#[test]
fn a_machine_is_another_when_uuid_and_pools_are() {
    let identity = HostIdentity::default();
    let [a, b] = [1, 2].map(Uuid::from_u128);
    assert!(identity.check("ssh://u@h", "u-1", &[a]).is_ok());
    assert!(identity.check("ssh://u@h", "u-1", &[]).is_ok(), "a pool may go");
    assert!(identity.check("ssh://u@h", "u-1", &[a]).is_ok());
    assert!(identity.check("ssh://u@h", "u-2", &[a, b]).is_ok(), "a uuid that libvirtd made up at its start");
    let error = identity.check("ssh://u@h", "u-3", &[Uuid::nil()]).unwrap_err();
    assert_eq!(error.reason, "HostReplaced");
    assert!(identity.check("ssh://u@h", "u-2", &[b]).is_ok(), "the right one is taken again");
}
