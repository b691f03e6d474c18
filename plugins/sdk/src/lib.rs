//! What the author of a provider plugin for proxy-operator needs.
//!
//! A plugin is a type that implements [`Provider`], and one line that exports it. It is called with its config
//! already parsed into its own type; the JSON Schema that the operator shows and checks is derived from that type, so
//! the two cannot differ. The rules that a provider has to keep stand at [`Provider`] and, in full, in
//! `wit/provider.wit`.
//!
//! ```
//! use proxy_operator_sdk::{
//!     Check, Context, Deletion, Error, Fault, Instance, InstanceRef, InstanceSpec, NoParameters, Page, Phase, Provider,
//!     Result, fail, id, instance,
//! };
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! /// What stands in `Provider.spec.config`. These comments are what a user reads.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(rename_all = "camelCase", deny_unknown_fields)]
//! struct Config {
//!     /// The rooms in which proxies may stand.
//!     rooms: Vec<String>,
//! }
//!
//! struct Shelf;
//!
//! impl Provider for Shelf {
//!     const NAME: &'static str = "shelf";
//!     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
//!     type Config = Config;
//!     type Parameters = NoParameters;
//!
//!     fn validate(_: &Context, config: &Config) -> Vec<Fault> {
//!         if config.rooms.is_empty() { vec![Fault::new("/rooms", "is empty: name one room at least")] } else { vec![] }
//!     }
//!
//!     fn place(_: &Context, config: &Config, spec: &InstanceSpec, avoid: &[String]) -> Result<String> {
//!         let ids = config.rooms.iter().map(|room| id::format(&[("rooms", room), ("proxies", &spec.name)]));
//!         let free = ids.into_iter().find(|id| !avoid.contains(id));
//!         free.ok_or_else(|| Error::exhausted("NoRoom", "every room was full"))
//!     }
//!
//!     fn create(_: &Context, _: &Config, at: &InstanceRef, _: &InstanceSpec) -> Result<Instance> {
//!         let Some([room, name]) = id::parse(&at.id, ["rooms", "proxies"]) else {
//!             fail!(Unresolvable, "IdInvalid", "\"{}\" is no id of this provider", at.id);
//!         };
//!         // Look for it, then do what is missing …
//!         Ok(Instance { message: format!("{name} is carried to {room}"), ..instance(&at.id, &at.owner, Phase::Provisioning) })
//!     }
//!
//!     fn get(_: &Context, _: &Config, at: &InstanceRef) -> Result<Instance> {
//!         Err(Error::not_found("InstanceMissing", format!("{} is not there", at.id)))
//!     }
//!
//!     fn list(_: &Context, _: &Config, _: Option<&str>, _: Option<&str>) -> Result<Page> {
//!         Ok(Page { instances: vec![], next: None, gaps: vec![] })
//!     }
//!
//!     fn delete(_: &Context, _: &Config, _: &InstanceRef) -> Result<Deletion> {
//!         Ok(Deletion::Done)
//!     }
//!
//!     fn health(_: &Context, _: &Config) -> Vec<Check> {
//!         vec![Check { subject: "rooms/1".into(), detail: "dry and warm".into(), error: None }]
//!     }
//! }
//!
//! # #[cfg(target_family = "wasm")]
//! proxy_operator_sdk::export!(Shelf);
//! ```
//!
//! Capabilities are plain functions: [`libvirt`], [`images`]. A component imports those that it calls, and no others.
//! Away from WebAssembly they do not exist (they panic); a plugin that puts a trait of its own before them is tested
//! with `cargo test`, as `plugins/kvm` is.

pub mod clock;
mod config;
mod error;
pub mod id;
pub mod log;
mod provider;

/// The bindings as they were generated, for what this crate does not wrap.
#[allow(missing_docs, unsafe_code, unreachable_pub, clippy::all)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "plugin",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_guest",
        default_bindings_module: "proxy_operator_sdk::bindings",
        additional_derives: [PartialEq],
    });
}

pub use bindings::exports::proxy_operator::provider::provider::{
    Access, Author, Check, CloudInit, Context, Credential, Deletion, Description, Endpoint, Fault, Gap, Guest,
    Instance, InstanceRef, InstanceSpec, Page, Phase, Software,
};
pub use bindings::proxy_operator::provider::types::{Address, AddressSource, BackendError, Error, ErrorCode};
pub use bindings::proxy_operator::provider::{images, libvirt};
pub use config::{NoParameters, from_json, parameters};
pub use provider::{Exported, Provider, instance};

/// What a capability or a provider answers.
pub type Result<T> = std::result::Result<T, Error>;
