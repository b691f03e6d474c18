//! What a Provider can be granted, each with its policy and its implementation: libvirt over SSH, base images.
//!
//! `secrets` reads credentials, `ssh` opens verified sessions and tunnels, `libvirt` implements the trait of core for
//! one Provider on connections that all Providers share, `images` brings base images into the pools there. No key
//! leaves this crate.

pub mod images;
pub mod libvirt;
pub mod limits;
pub mod secrets;
pub mod ssh;
