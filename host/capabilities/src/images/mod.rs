//! Base images: downloaded, verified, and brought into the pools of hypervisors, once each.
//!
//! ```text
//! GrantedImages ── one Provider: which URLs, hosts and pools it may name; revocable
//!   ImageService ── one a process: one transfer of an image to a pool, however many ask
//!     Downloads ─▶ Cache ─▶ format ─▶ Upload ─▶ ImagePool
//!     one a URL    by       refuses   claim,    libvirt's pools
//!     and digest   digest   qcow2     marker    or a test's
//!                           that names
//!                           other files
//! ```
//!
//! A base image is the volume `base-<key>-<12 digits of its digest>.<format>`. libvirt has no rename; what tells a
//! whole image from a part of one is a second, small volume, the marker: it holds name, digest, length and virtual
//! size, is written last and deleted before anything else is touched.
//!
//! | volume | marker | claim of another | it is |
//! | --- | --- | --- | --- |
//! | as its marker says | there | none | whole |
//! | any | none, torn, or of something else | none | partial: made anew when nobody stands on it, else a conflict |
//! | any | any | there | being uploaded: waited for, or taken over when it was abandoned |
//! | none | any | none | absent |
//!
//! With a digest in its source an image is known before it is fetched, and redirects to public addresses are followed.
//! Without one, the SHA-256 of what arrives is its digest; while a whole image of that key and URL is in a pool it
//! serves, and nothing is fetched: another build is had by another URL or key, by giving a digest, or after a prune.
//!
//! Not told by a marker: what a hypervisor's disk loses after it said that it was written (a power cut within seconds
//! of an upload).

pub mod address;
pub mod cache;
pub mod digest;
pub mod download;
pub mod downloads;
pub mod format;
pub mod granted;
pub mod http;
pub mod libvirt;
pub mod limits;
pub mod marker;
pub mod name;
pub mod pool;
pub mod prefix;
pub mod progress;
pub mod qcow2;
pub mod service;
pub mod source;
pub mod stock;
pub mod stored;
pub mod transfer;
pub mod upload;

pub use granted::GrantedImages;
pub use libvirt::LibvirtPools;
pub use limits::ImageLimits;
pub use pool::{ImagePool, Pools};
pub use service::ImageService;
pub use stored::{Condition, StoredImage};

#[cfg(test)]
mod tests;
