//! One call of a plugin: a fresh guest, a limit on its time, and an error that says what happened.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use proxy_operator_core::error::{Error, Result};
use tracing::Instrument;
use wasmtime::Store;

use crate::engine::Engine;
use crate::guest_log;
use crate::store::{Reach, State, store};
use crate::trap::{self, Identity};
use crate::watch::Watch;
use crate::wit::{Guest, Linked};

/// A call to be made.
pub(crate) struct Call<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) linked: &'a Linked,
    pub(crate) identity: &'a Identity,
    /// The Provider's name; empty when the plugin is called for nobody.
    pub(crate) provider: &'a str,
    /// The function: `get`.
    pub(crate) method: &'static str,
    /// The Proxy, where the call is for one: its name for people, or its uid.
    pub(crate) proxy: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) reach: Reach,
    pub(crate) watch: std::sync::Arc<Watch>,
}

impl Call<'_> {
    /// Makes the call. The limit on its time holds around all of it, host functions and the making of the guest too.
    pub(crate) async fn run<T, W, F>(self, work: W) -> Result<T>
    where
        W: FnOnce(Store<State>, Box<dyn Guest>) -> F + Send,
        F: Future<Output = wasmtime::Result<Result<T>>> + Send,
    {
        let (provider, proxy) = (Some(self.provider), Some(self.proxy));
        // Of the highest severity, so that no filter takes the fields from the lines of the guest.
        let span = tracing::error_span!(
            "call",
            provider = provider.filter(|p| !p.is_empty()),
            plugin = self.identity.0,
            call = self.method,
            proxy = proxy.filter(|p| !p.is_empty()),
        );
        self.run_in_span(work).instrument(span).await
    }

    async fn run_in_span<T, W, F>(self, work: W) -> Result<T>
    where
        W: FnOnce(Store<State>, Box<dyn Guest>) -> F + Send,
        F: Future<Output = wasmtime::Result<Result<T>>> + Send,
    {
        let Self { engine, linked, identity, provider: _, method, proxy: _, timeout, reach, watch } = self;
        let deadline = tokio::time::Instant::now() + timeout;
        let guests = tokio::time::timeout_at(deadline, engine.room()).await;
        let Ok(_room) = guests else {
            let message =
                format!("{method} of plugin {} waited {} s for room for its guest", identity.0, timeout.as_secs());
            return Err(Error::unavailable("HostOverloaded", message));
        };
        let call = async {
            let mut store = store(engine.wasmtime(), method, reach, &watch);
            let guest = linked.instantiate(&mut store).await?;
            work(store, guest).await
        };
        // Held here, so that what the guest waits for is still known when its time is up. It is dropped with its store:
        // one that hit a limit is never used again. A panic of a host function ends this call and no other.
        let mut call = std::pin::pin!(AssertUnwindSafe(call).catch_unwind());
        let outcome = tokio::time::timeout_at(deadline, &mut call).await;
        guest_log::say_dropped(&watch);
        match outcome {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(error))) => Err(trap::trapped(identity, method, &error, &watch)),
            Ok(Err(_panic)) => {
                let message =
                    format!("a function of the host panicked in {method} of plugin {}: see the log", identity.0);
                Err(Error::internal("HostFault", message))
            }
            Err(_elapsed) => Err(trap::timed_out(identity, method, timeout, &watch)),
        }
    }
}
