//! What the tests are written with.

pub(crate) mod folder;
pub(crate) mod ground;
pub(crate) mod guest;
pub(crate) mod manifests;
pub(crate) mod operator;
pub(crate) mod relay;
pub(crate) mod rpc;

pub(crate) use folder::Folder;
pub(crate) use ground::{Ground, IMAGES, shaken, steady};
pub(crate) use operator::Operator;
