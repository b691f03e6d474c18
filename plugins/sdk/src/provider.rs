//! The trait that a plugin implements, and what turns it into the exports of a component.

use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    Check, Context, Deletion, Description, Fault, Guest, Instance, InstanceRef, InstanceSpec, Page, Phase, Result,
    config::from_json, log,
};

/// Turns Proxies into instances on one kind of infrastructure.
///
/// - A fresh guest serves every call: nothing is kept but what the backend holds, and `Instance::private_state`.
/// - No call waits for infrastructure. What takes long is [`Phase::Provisioning`] with a reason, and is asked for again.
/// - Every call can be cut at any point, and is then made again.
/// - Calls for one Proxy are never made at the same time; calls for several are.
pub trait Provider {
    /// Its name, `[a-z0-9]([-a-z0-9]*[a-z0-9])?`.
    const NAME: &'static str;
    /// Its own version: `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str;
    /// `Provider.spec.config`. Deny unknown fields; document each field: its schema is derived from it.
    type Config: DeserializeOwned + JsonSchema;
    /// `Proxy.spec.parameters`, parsed with [`parameters`](crate::parameters).
    type Parameters: DeserializeOwned + JsonSchema;

    /// What is wrong in a config that has the right form: a default that names nothing. Asks no capability.
    fn validate(_ctx: &Context, _config: &Self::Config) -> Vec<Fault> {
        Vec::new()
    }

    /// Chooses where the instance will be, makes nothing, returns the id. `avoid`: ids that turned out to be full.
    fn place(ctx: &Context, config: &Self::Config, spec: &InstanceSpec, avoid: &[String]) -> Result<String>;

    /// Makes the instance with this id, or goes on making it, or starts it.
    fn create(ctx: &Context, config: &Self::Config, at: &InstanceRef, spec: &InstanceSpec) -> Result<Instance>;

    /// Looks at one instance. `not-found` means: make it again.
    fn get(ctx: &Context, config: &Self::Config, at: &InstanceRef) -> Result<Instance>;

    /// Lists all instances, or those of one owner. What cannot be asked is a gap.
    fn list(ctx: &Context, config: &Self::Config, owner: Option<&str>, cursor: Option<&str>) -> Result<Page>;

    /// Deletes an instance and all that belongs to it. Done is what is seen to be absent.
    fn delete(ctx: &Context, config: &Self::Config, at: &InstanceRef) -> Result<Deletion>;

    /// One check for each part of the infrastructure.
    fn health(ctx: &Context, config: &Self::Config) -> Vec<Check>;
}

/// A [`Provider`] as the bindings want it. [`export!`](crate::export) makes one.
pub struct Exported<P>(PhantomData<P>);

/// An instance of which only identity and phase are known; the rest is filled in with `..instance(…)`.
pub fn instance(id: &str, owner: &str, phase: Phase) -> Instance {
    Instance {
        id: id.to_owned(),
        owner: owner.to_owned(),
        phase,
        reason: String::new(),
        message: String::new(),
        error: None,
        percent: None,
        endpoint: None,
        egress_address: None,
        addresses: Vec::new(),
        created_at: None,
        private_state: None,
    }
}

/// Makes a type that implements [`Provider`] the component's export. Once a plugin.
#[macro_export]
macro_rules! export {
    ($provider:ty) => {
        #[doc(hidden)]
        #[allow(missing_docs, unsafe_code)]
        mod exported_provider {
            use super::*;
            type Exported = $crate::Exported<$provider>;
            $crate::bindings::export_guest!(Exported with_types_in $crate::bindings);
        }
    };
}

// === impl Exported ===

impl<P: Provider> Guest for Exported<P> {
    fn describe() -> Description {
        log::install_panic_hook();
        Description {
            name: P::NAME.to_owned(),
            version: P::VERSION.to_owned(),
            config_schema: schema::<P::Config>(),
            parameters_schema: schema::<P::Parameters>(),
        }
    }

    fn validate(ctx: Context) -> std::result::Result<(), Vec<Fault>> {
        log::install_panic_hook();
        let config = from_json(&ctx.config).map_err(|fault| vec![fault])?;
        let faults = P::validate(&ctx, &config);
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn place(ctx: Context, spec: InstanceSpec, avoid: Vec<String>) -> Result<String> {
        P::place(&ctx, &config::<P>(&ctx)?, &spec, &avoid)
    }

    fn create(ctx: Context, at: InstanceRef, spec: InstanceSpec) -> Result<Instance> {
        P::create(&ctx, &config::<P>(&ctx)?, &at, &spec)
    }

    fn get(ctx: Context, at: InstanceRef) -> Result<Instance> {
        P::get(&ctx, &config::<P>(&ctx)?, &at)
    }

    fn list(ctx: Context, owner: Option<String>, cursor: Option<String>) -> Result<Page> {
        P::list(&ctx, &config::<P>(&ctx)?, owner.as_deref(), cursor.as_deref())
    }

    fn delete(ctx: Context, at: InstanceRef) -> Result<Deletion> {
        P::delete(&ctx, &config::<P>(&ctx)?, &at)
    }

    fn health(ctx: Context) -> Vec<Check> {
        match config::<P>(&ctx) {
            Ok(config) => P::health(&ctx, &config),
            Err(error) => vec![Check { subject: "config".to_owned(), detail: String::new(), error: Some(error) }],
        }
    }
}

/// What every call begins with.
fn config<P: Provider>(ctx: &Context) -> Result<P::Config> {
    log::install_panic_hook();
    Ok(from_json(&ctx.config)?)
}

fn schema<T: JsonSchema>() -> String {
    schemars::schema_for!(T).as_value().to_string()
}
