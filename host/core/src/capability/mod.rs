//! What the host can offer to a plugin, as traits: the runtime calls them on behalf of a component, the capabilities
//! crate implements them, and tests stand in for them.
//!
//! An implementation is made for one Provider: it knows that Provider's grants and identity, and holds every call
//! against them. No call trusts the guest.

pub mod images;
pub mod libvirt;

use std::sync::Arc;

/// What one Provider was granted. What is `None` was not: a call of it is denied, naming the missing grant.
#[derive(Clone, Default)]
pub struct Capabilities {
    /// libvirt on the granted hypervisors.
    pub libvirt: Option<Arc<dyn libvirt::Libvirt>>,
    /// Base images in the pools of the granted hypervisors.
    pub images: Option<Arc<dyn images::Images>>,
}
