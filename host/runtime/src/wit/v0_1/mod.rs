//! Version 0.1 of the provider interface.

mod images;
mod libvirt;
mod lift;
mod log;
mod lower;
mod provider;

use wasmtime::component::{HasSelf, Linker};

use crate::store::State;

/// What the generator makes of `wit/`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::indexing_slicing)]
pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        imports: {
            "proxy-operator:provider/log.enabled": trappable,
            "proxy-operator:provider/log.log": trappable,
            "proxy-operator:provider/log.fatal": trappable,
            "proxy-operator:provider/libvirt.hosts": trappable,
            default: async | trappable,
        },
        exports: { default: async },
        trappable_error_type: { "proxy-operator:provider/types.error" => crate::store::Denied },
        with: {
            "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
            "wasi:io": wasmtime_wasi::p2::bindings::io,
            "wasi:random": wasmtime_wasi::p2::bindings::random,
        },
        require_store_data_send: true,
    });
}

/// The interface that a guest exports.
use bindings::exports::proxy_operator::provider::provider as exports;
/// The interfaces of this version as the bindings name them.
use bindings::proxy_operator::provider as imports;

/// Links everything that a component of this version may import.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    imports::types::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut State| state)?;
    imports::log::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut State| state)?;
    imports::libvirt::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut State| state)?;
    imports::images::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut State| state)?;
    Ok(linker)
}
