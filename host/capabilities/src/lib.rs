//! What a Provider can be granted: libvirt, ssh, http, images

pub mod images;
