//! The provider interface: each version of the WIT package is a module, which translates between its types and the
//! plain ones of `core`. A published version is frozen; a new one is a folder beside it, and one more [`Linked`].

mod v0_1;

use futures::future::BoxFuture;
use proxy_operator_core::error::Result;
use proxy_operator_core::provider::{
    Check, Context, Deletion, Description, Fault, Instance, InstanceRef, InstanceSpec, Page,
};
use wasmtime::Store;
use wasmtime::component::{Component, Linker};

use crate::store::State;
use crate::version::ApiVersion;

/// What a call of a guest gives: the outer error is a trap, the inner one the provider's answer or one over a bound.
pub(crate) type Called<'a, T> = BoxFuture<'a, wasmtime::Result<Result<T>>>;

/// A guest, whatever version of the interface it was built for.
///
/// Arguments were held against their bounds by the caller; results are held against theirs here.
pub(crate) trait Guest: Send + Sync {
    /// `provider.describe`.
    fn describe<'a>(&'a self, store: &'a mut Store<State>) -> Called<'a, Description>;
    /// `provider.validate`.
    fn validate<'a>(&'a self, store: &'a mut Store<State>, context: &'a Context) -> Called<'a, Vec<Fault>>;
    /// `provider.place`.
    fn place<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        spec: &'a InstanceSpec,
        avoid: &'a [String],
    ) -> Called<'a, String>;
    /// `provider.create`.
    fn create<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        instance: &'a InstanceRef,
        spec: &'a InstanceSpec,
    ) -> Called<'a, Instance>;
    /// `provider.get`.
    fn get<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        instance: &'a InstanceRef,
    ) -> Called<'a, Instance>;
    /// `provider.list`, one page.
    fn list<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        owner: Option<&'a str>,
        cursor: Option<&'a str>,
    ) -> Called<'a, Page>;
    /// `provider.delete`.
    fn delete<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        instance: &'a InstanceRef,
    ) -> Called<'a, Deletion>;
    /// `provider.health`.
    fn health<'a>(&'a self, store: &'a mut Store<State>, context: &'a Context) -> Called<'a, Vec<Check>>;
}

/// The linkers of all versions that this host serves.
pub(crate) struct Linkers {
    v0_1: Linker<State>,
}

/// A component that is linked and ready to be instantiated.
pub(crate) enum Linked {
    /// Built for 0.1.
    V0_1(v0_1::bindings::PluginPre<State>),
}

/// The versions that this host serves, the oldest first.
pub(crate) const SUPPORTED: [ApiVersion; 1] = [ApiVersion { major: 0, minor: 1 }];

/// The interfaces that this host links beside WASI's inert ones, without their version.
pub(crate) const OFFERED: [&str; 4] = [
    "proxy-operator:provider/types",
    "proxy-operator:provider/log",
    "proxy-operator:provider/libvirt",
    "proxy-operator:provider/images",
];

// === impl Linkers ===

impl Linkers {
    pub(crate) fn new(engine: &wasmtime::Engine) -> wasmtime::Result<Self> {
        Ok(Self { v0_1: v0_1::linker(engine)? })
    }

    /// Links a component; `version` is one of [`SUPPORTED`].
    pub(crate) fn link(&self, component: &Component, _version: ApiVersion) -> wasmtime::Result<Linked> {
        let linked = self.v0_1.instantiate_pre(component)?;
        Ok(Linked::V0_1(v0_1::bindings::PluginPre::new(linked)?))
    }
}

// === impl Linked ===

impl Linked {
    /// Makes a fresh guest.
    pub(crate) async fn instantiate(&self, store: &mut Store<State>) -> wasmtime::Result<Box<dyn Guest>> {
        match self {
            Self::V0_1(linked) => Ok(Box::new(linked.instantiate_async(store).await?)),
        }
    }
}
