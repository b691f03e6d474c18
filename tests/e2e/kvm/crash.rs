//! A crash at any moment makes no second machine, and leaves nothing behind.
//!
//! The moments are not thought up: a run without a crash shows each call that changes the hypervisor, and then the
//! operator is killed on both sides of each, in a create and in a delete of its own.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::json;

use crate::support::guest::{stand_in, until_on};
use crate::support::manifests::{provider, proxy, with, without};
use crate::support::relay::{Point, Relay, Step, points};
use crate::support::{Folder, Ground, Operator, steady};

/// Runs at once: a create waits for its polls most of the time.
const AT_ONCE: usize = 8;

/// A folder with a Provider that reaches libvirtd through a relay, and one Proxy.
struct Run {
    folder: Folder,
    ground: Ground,
    relay: Relay,
    domain: String,
}

impl Run {
    fn new(pool: &str) -> Self {
        let ground = Ground::new(steady(), pool);
        let relay = Relay::new(&ground.hypervisor.libvirt_socket);
        let folder = Folder::new();
        let by_socket = with(provider("p", &ground), "/spec/grants/libvirt/hosts/hv/address", json!(relay.address()));
        folder.apply("provider", &without(by_socket, "/spec/grants/libvirt/hosts/hv/secret"));
        let domain = folder.domain("p", "default", "one");
        Self { folder, ground, relay, domain }
    }

    fn create(&self) {
        self.folder.apply("one", &proxy("one", "p", &self.ground.services()));
    }

    /// Exactly one machine, whole, and it serves.
    fn is_there(&self) {
        let folder = &self.folder;
        until_on(folder, "one");
        let _guest = stand_in(folder, &self.ground, "p", "one");
        folder.until("it is Ready", 90, || folder.is_ready("one"));
        assert_eq!(self.ground.domains(self.prefix()), std::slice::from_ref(&self.domain));
        let volumes = self.ground.volumes();
        let of_proxy = [format!("{}.disk.qcow2", self.domain), format!("{}.seed.img", self.domain)];
        assert_eq!(self.ground.volumes_of_proxies(), of_proxy, "{volumes:?}");
        assert_eq!(volumes.len(), 4, "beside them the base image and its marker: {volumes:?}");
    }

    /// No machine, and no volume of one.
    fn is_gone(&self) {
        self.folder.until("it is gone", 90, || self.folder.proxy("one").is_none());
        assert_eq!(self.ground.domains(self.prefix()), Vec::<String>::new());
        assert_eq!(self.ground.volumes_of_proxies(), Vec::<String>::new());
    }

    fn prefix(&self) -> &str {
        self.domain.split_once('-').unwrap().0
    }

    /// Kills the operator at a point, and starts another.
    fn crash(&self, mut operator: Operator, point: Point, act: impl FnOnce()) -> Operator {
        self.relay.arm(point, operator.killer());
        act();
        self.folder.until(&format!("the moment {point}"), 90, || !self.relay.is_armed());
        self.folder.until("the end of the operator", 10, || operator.has_ended().is_some());
        Operator::start(&self.folder)
    }
}

/// What changes the hypervisor in a whole life: the steps of the create, and those of the delete.
fn observe() -> (Vec<Step>, Vec<Step>) {
    let run = Run::new("crash-clean");
    run.create();
    let operator = Operator::start(&run.folder);
    run.is_there();
    let create = run.relay.steps();
    run.relay.reset();
    run.folder.remove("one");
    run.is_gone();
    let delete = run.relay.steps();
    operator.stop();
    (create, delete)
}

#[test]
fn a_kill_on_either_side_of_any_change_makes_no_second_machine_and_leaves_none() {
    let begun = Instant::now();
    let (create, delete) = observe();
    // Without these the observation itself would be at fault.
    for (steps, needed) in
        [(&create, ["StorageVolUpload", "DomainDefineXML"]), (&delete, ["DomainDestroy", "StorageVolDelete"])]
    {
        for name in needed {
            assert!(steps.iter().any(|step| matches!(step, Step::Call(found) if found.starts_with(name))), "{steps:?}");
        }
    }
    assert!(create.contains(&Step::Middle) && create.contains(&Step::End), "{create:?}");
    let (in_create, in_delete) = (points(&create), points(&delete));
    println!("{} moments in a create: {create:?}", in_create.len());
    println!("{} moments in a delete: {delete:?}", in_delete.len());

    // Each life is cut twice, in its create and in its delete.
    let lives = in_create.len().max(in_delete.len());
    let queue: VecDeque<(usize, Point, Point)> =
        (0..lives).map(|n| (n, in_create[n % in_create.len()], in_delete[n % in_delete.len()])).collect();
    let queue = Mutex::new(queue);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front();
                    let Some((n, create, delete)) = next else { return };
                    live(n, create, delete);
                }
            });
        }
    });
    println!("{lives} lives, {} kills in {:?}", 2 * lives, begun.elapsed());
}

fn live(n: usize, create: Point, delete: Point) {
    let begun = Instant::now();
    let run = Run::new(&format!("crash-{n}"));
    let operator = Operator::start(&run.folder);
    let operator = run.crash(operator, create, || run.create());
    run.is_there();
    let operator = run.crash(operator, delete, || run.folder.remove("one"));
    run.is_gone();
    operator.kill();
    println!("killed {create}, then {delete}: well ({:.1} s)", begun.elapsed().as_secs_f64());
}
