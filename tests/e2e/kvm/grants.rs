//! A host that is taken out of its Provider's grants: a slip of the hand, or the end of a machine.

use serde_json::json;

use crate::support::guest::{bring_up, until_on};
use crate::support::manifests::{host, provider, proxy, with};
use crate::support::{Folder, Ground, Operator, steady};

#[test]
fn a_proxy_on_a_host_without_a_grant_is_unresolvable_and_is_let_go_when_deleted() {
    let (gone, kept) = (Ground::new(steady(), "gone"), Ground::new(steady(), "kept"));
    let services = gone.services();
    let folder = Folder::new();
    folder.usual_secret(gone.hypervisor);
    let granted = |hosts| with(provider("p", &gone), "/spec/grants/libvirt/hosts", hosts);
    folder.apply("provider", &granted(json!({"gone": host(&gone), "kept": host(&kept)})));
    for name in ["one", "two"] {
        folder.apply(name, &with(proxy(name, "p", &services), "/spec/placement", json!(["gone"])));
    }
    let operator = Operator::start(&folder);
    let _guest = bring_up(&folder, &gone, "p", "one");
    until_on(&folder, "two");
    let domains = ["one", "two"].map(|name| folder.domain("p", "default", name));
    let ids = domains.each_ref().map(|domain| gone.running_id(domain));

    folder.apply("provider", &granted(json!({"kept": host(&kept)})));
    folder.until("it is said", 60, || folder.is_provisioned_as("one", &["HostNotGranted"]));
    let said = folder.proxy_condition("one", "Provisioned").unwrap().message;
    assert!(said.contains("host gone") && said.contains("grants.libvirt.hosts") && said.contains("kept"), "{said}");
    assert_eq!(domains.each_ref().map(|domain| gone.running_id(domain)), ids, "its machine is left alone");
    assert_eq!(kept.volumes(), Vec::<String>::new(), "and none is made elsewhere");
    assert!(!folder.has_event("one", "InstanceVanished"), "a slip in the grant is no machine that vanished");

    folder.remove("one");
    folder.until("it is released", 60, || folder.proxy("one").is_none());
    let log = folder.log();
    let abandoned = log.lines().find(|line| line.contains("InstanceAbandoned")).expect("an event says what is left");
    assert!(abandoned.contains(&domains[0]) && abandoned.contains("host gone"), "{abandoned}");
    assert_eq!(gone.running_id(&domains[0]), ids[0]);

    // The slip is mended: the other is as it was.
    folder.apply("provider", &granted(json!({"gone": host(&gone), "kept": host(&kept)})));
    until_on(&folder, "two");
    assert_eq!(gone.running_id(&domains[1]), ids[1]);
    folder.remove("two");
    folder.until("the other is gone", 60, || folder.proxy("two").is_none());
    assert_eq!(gone.domains(domains[0].split_once('-').unwrap().0), [domains[0].clone()]);
    operator.stop();
    gone.hypervisor.virsh(&[&format!("destroy {0}; undefine {0}", domains[0])]).unwrap();
}
