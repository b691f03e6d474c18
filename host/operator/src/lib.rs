//! Controllers, stores, probes and the command line of proxy-operator.

pub mod cli;
pub mod controller;
pub mod granting;
pub mod limits;
pub mod logging;
pub mod probe;
pub mod store;
