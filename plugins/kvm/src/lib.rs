//! The provider for hypervisors that libvirt manages: a Proxy is a domain that boots a cloud image.
//!
//! ```text
//!            place            create: look, then what is missing
//! Proxy ──▶ hosts/<host>/     base image in a pool ─▶ <name>.disk.qcow2 ─▶ <name>.seed.img ─▶ define ─▶ start
//!           domains/<name>    (the host's transfer)   overlay              NoCloud           └ from here on the
//!                                                                                              seed stays as it is
//! ```
//!
//! Each arrow is one call of the host that may be repeated, so a create that was cut goes on where it stopped. What
//! is decided here asks the infrastructure only through [`host::Host`], which tests answer from memory.

// Built for the machine at hand, only the tests use what the component exports.
#![cfg_attr(not(any(target_family = "wasm", test)), allow(dead_code))]

mod config;
mod create;
mod delete;
mod health;
mod host;
mod id;
mod observe;
mod place;
mod seed;
mod vendor;
mod wanted;

#[cfg(test)]
mod tests;

use proxy_operator_sdk::{
    Check, Context, Deletion, Fault, Instance, InstanceRef, InstanceSpec, NoParameters, Page, Provider, Result,
};

use config::Config;
use host::Granted;

/// The provider.
pub(crate) struct Kvm;

impl Provider for Kvm {
    const NAME: &'static str = "kvm";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Config = Config;
    type Parameters = NoParameters;

    fn validate(_: &Context, config: &Config) -> Vec<Fault> {
        config.faults()
    }

    fn place(ctx: &Context, config: &Config, spec: &InstanceSpec, avoid: &[String]) -> Result<String> {
        place::place(&Granted, ctx, config, spec, avoid)
    }

    fn create(ctx: &Context, config: &Config, at: &InstanceRef, spec: &InstanceSpec) -> Result<Instance> {
        create::create(&Granted, ctx, config, at, spec)
    }

    fn get(ctx: &Context, _: &Config, at: &InstanceRef) -> Result<Instance> {
        observe::get(&Granted, ctx, at)
    }

    fn list(_: &Context, _: &Config, owner: Option<&str>, cursor: Option<&str>) -> Result<Page> {
        observe::list(&Granted, owner, cursor)
    }

    fn delete(ctx: &Context, _: &Config, at: &InstanceRef) -> Result<Deletion> {
        delete::delete(&Granted, ctx, at)
    }

    fn health(ctx: &Context, config: &Config) -> Vec<Check> {
        health::health(&Granted, ctx, config)
    }
}

#[cfg(target_family = "wasm")]
proxy_operator_sdk::export!(Kvm);
