//! The contract of a store, as one suite that every store passes.

use std::sync::Arc;

use proxy_operator_api::proxy::Phase;
use proxy_operator_api::{Proxy, ProxyStatus};
use proxy_operator_core::sensitive::Sensitive;

use super::{Connection, Key, Store, StoreError};

/// What a suite needs beside the store: whoever writes objects as users do.
pub(crate) struct Ground {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// Makes a Proxy of this name in the namespace `default`.
    pub(crate) apply: Box<dyn AsyncCall>,
    /// Asks for the deletion of a Proxy, and returns once it can be read.
    pub(crate) delete: Box<dyn AsyncCall>,
}

/// Something done to a Proxy by name.
#[async_trait::async_trait]
pub(crate) trait AsyncCall: Send + Sync {
    async fn call(&self, name: &str);
}

/// Runs the suite.
pub(crate) async fn holds(ground: &Ground) {
    a_write_on_a_stale_read_is_a_conflict(ground).await;
    a_write_that_changes_nothing_writes_nothing(ground).await;
    an_object_that_is_deleted_stays_until_its_finalizer_falls(ground).await;
    a_released_object_can_be_released_again(ground).await;
    every_change_is_announced_once_it_can_be_read(ground).await;
    a_connection_goes_with_its_proxy(ground).await;
}

async fn applied(ground: &Ground, name: &str) -> Arc<Proxy> {
    ground.apply.call(name).await;
    read(ground, name).expect("can be read")
}

fn read(ground: &Ground, name: &str) -> Option<Arc<Proxy>> {
    ground.store.proxy(&Key::proxy("default", name))
}

fn status(id: &str) -> ProxyStatus {
    ProxyStatus { phase: Phase::Provisioning, provider_id: Some(id.to_owned()), ..ProxyStatus::default() }
}

async fn a_write_on_a_stale_read_is_a_conflict(ground: &Ground) {
    let old = applied(ground, "stale").await;
    let new = ground.store.update_proxy_status(&old, status("one")).await.expect("writes");
    let conflict = ground.store.update_proxy_status(&old, status("two")).await;
    assert!(matches!(conflict, Err(StoreError::Conflict(_))), "{conflict:?}");
    let conflict = ground.store.add_finalizer(&old).await;
    assert!(matches!(conflict, Err(StoreError::Conflict(_))), "{conflict:?}");
    assert_eq!(read(ground, "stale"), Some(new));
}

async fn a_write_that_changes_nothing_writes_nothing(ground: &Ground) {
    let proxy = applied(ground, "same").await;
    let once = ground.store.update_proxy_status(&proxy, status("one")).await.expect("writes");
    let twice = ground.store.update_proxy_status(&once, status("one")).await.expect("writes");
    assert_eq!(once.metadata.resource_version, twice.metadata.resource_version);
}

async fn an_object_that_is_deleted_stays_until_its_finalizer_falls(ground: &Ground) {
    let proxy = applied(ground, "held").await;
    ground.store.add_finalizer(&proxy).await.expect("adds");
    ground.delete.call("held").await;
    let going = read(ground, "held").expect("is still there");
    assert!(going.metadata.deletion_timestamp.is_some());
    ground.store.remove_finalizer(&going).await.expect("removes");
    assert_eq!(read(ground, "held"), None);
}

async fn a_released_object_can_be_released_again(ground: &Ground) {
    let proxy = applied(ground, "released").await;
    let held = ground.store.add_finalizer(&proxy).await.expect("adds");
    ground.delete.call("released").await;
    let going = read(ground, "released").expect("is still there");
    ground.store.remove_finalizer(&going).await.expect("removes");
    ground.store.remove_finalizer(&held).await.expect("is gone already");
}

async fn every_change_is_announced_once_it_can_be_read(ground: &Ground) {
    let mut changes = ground.store.changes();
    let proxy = applied(ground, "announced").await;
    ground.store.update_proxy_status(&proxy, status("seen")).await.expect("writes");
    let key = Key::proxy("default", "announced");
    loop {
        let announced = changes.recv().await.expect("is announced");
        let is_seen = read(ground, "announced").and_then(|proxy| proxy.status.clone()).is_some();
        if announced == key && is_seen {
            return;
        }
    }
}

async fn a_connection_goes_with_its_proxy(ground: &Ground) {
    let key = Key::proxy("default", "connected");
    let proxy = applied(ground, "connected").await;
    ground.store.add_finalizer(&proxy).await.expect("adds");
    assert_eq!(ground.store.connection(&key).await.expect("reads"), None);
    let connection = Connection {
        username: Some("u".into()),
        password: Some(Sensitive::new("p".into())),
        endpoint: Some("192.0.2.7:3128".into()),
    };
    ground.store.put_connection(&key, &connection).await.expect("writes");
    assert_eq!(ground.store.connection(&key).await.expect("reads"), Some(connection));
    ground.delete.call("connected").await;
    let going = read(ground, "connected").expect("is still there");
    ground.store.remove_finalizer(&going).await.expect("removes");
    assert_eq!(ground.store.connection(&key).await.expect("reads"), None);
}
