//! The one place that trusts bytes to be machine code.

use wasmtime::component::Component;

/// Makes a component of code that this engine compiled earlier.
///
/// The caller vouches for the bytes: they were written by this program, and nobody else could have changed them.
#[allow(unsafe_code)]
pub(super) fn trust(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` runs what it is given. `Cache` gives it only what `Cache::store` wrote: files in a folder
    // that belongs to this user or to root and that nobody else can write, read through a descriptor whose owner and
    // mode were checked, with a digest over the whole content that was found right. wasmtime itself refuses code of
    // another version or with other settings.
    unsafe { Component::deserialize(engine, code) }
}
