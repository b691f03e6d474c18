//! One build of a plugin, loaded: compiled, linked, and asked what it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxy_operator_core::error::{Error, Result};
use proxy_operator_core::provider::{Description, Fault};
use sha2::{Digest, Sha256};
use tokio::task::JoinError;
use wasmtime::component::Component;

use crate::bounds;
use crate::call::Call;
use crate::engine::Engine;
use crate::guest_log::LogRate;
use crate::limits;
use crate::redact::Redactor;
use crate::schema::Schema;
use crate::store::Reach;
use crate::trap::Identity;
use crate::version::{self, ApiVersion};
use crate::watch::Watch;
use crate::wit::Linked;

/// A plugin that is loaded.
pub struct Plugin {
    engine: Engine,
    linked: Linked,
    identity: Identity,
    digest: String,
    version: ApiVersion,
    imports: Vec<String>,
    description: Description,
    config_schema: Schema,
    parameters_schema: Schema,
}

/// What compiling gives.
struct Compiled {
    linked: Linked,
    digest: String,
    version: ApiVersion,
    imports: Vec<String>,
}

// === impl Plugin ===

impl Plugin {
    /// Loads a component: reads its version, compiles it or takes its code from the cache, links it and asks it to
    /// describe itself. `name` is what it is called in messages until it has told its own name.
    pub async fn load(engine: &Engine, name: &str, bytes: impl Into<Vec<u8>>) -> Result<Arc<Self>> {
        let (compiler, called, bytes) = (engine.clone(), name.to_owned(), bytes.into());
        let compiled = blocking(move || Compiled::new(&compiler, &called, &bytes)).await;
        let Compiled { linked, digest, version, imports } = compiled.map_err(|error| ended_early(name, &error))??;
        let short = format!("({})", short(&digest));
        let describe = Call {
            engine,
            linked: &linked,
            identity: &Identity(format!("{name} {short}")),
            provider: "",
            method: "describe",
            proxy: "",
            timeout: limits::BARE_CALL_TIMEOUT,
            reach: Reach::Nothing,
            watch: Watch::new(Redactor::default(), Arc::new(LogRate::new())),
        };
        let description = describe.run(|mut store, guest| async move { guest.describe(&mut store).await }).await?;
        check(name, &description)?;
        let incompatible = |which: &str| {
            let plugin = format!("plugin {} {} {short}", description.name, description.version);
            let which = which.to_owned();
            move |why: String| {
                Error::invalid_config("PluginIncompatible", format!("{plugin}: its {which} schema {why}"))
            }
        };
        let texts = (description.config_schema.clone(), description.parameters_schema.clone());
        let schemas = blocking(move || (Schema::new(&texts.0), Schema::new(&texts.1))).await;
        let (config_schema, parameters_schema) = schemas.map_err(|error| ended_early(name, &error))?;
        let config_schema = config_schema.map_err(incompatible("config"))?;
        let parameters_schema = parameters_schema.map_err(incompatible("parameters"))?;
        let identity = Identity(format!("{} {} {short}", description.name, description.version));
        tracing::info!(plugin = identity.0, api = %version, imports = imports.join(" "), "plugin loaded");
        Ok(Arc::new(Self {
            engine: engine.clone(),
            linked,
            identity,
            digest,
            version,
            imports,
            description,
            config_schema,
            parameters_schema,
        }))
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// `sha256:` and the digest of its bytes.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The version of the provider interface that it was built for.
    pub fn wit_version(&self) -> ApiVersion {
        self.version
    }

    /// The interfaces that it imports, by what its own type says, hence all that it can ever call.
    pub fn imports(&self) -> Vec<String> {
        self.imports.clone()
    }

    /// Name, version and short digest, for people.
    pub fn identity(&self) -> &str {
        &self.identity.0
    }

    /// Holds a Provider's config against the plugin's schema.
    pub fn check_config(&self, config: &serde_json::Value) -> std::result::Result<(), Vec<Fault>> {
        self.config_schema.check(config)
    }

    /// Holds a Proxy's parameters against the plugin's schema.
    pub fn check_parameters(&self, parameters: &serde_json::Value) -> std::result::Result<(), Vec<Fault>> {
        self.parameters_schema.check(parameters)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn linked(&self) -> &Linked {
        &self.linked
    }

    pub(crate) fn identity_of_call(&self) -> &Identity {
        &self.identity
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plugin({})", self.identity.0)
    }
}

/// Runs what computes for long on a thread of its own, with the log and the span of the caller.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::result::Result<T, JoinError> {
    let (log, span) = (tracing::dispatcher::get_default(Clone::clone), tracing::Span::current());
    let work = move || tracing::dispatcher::with_default(&log, || span.in_scope(work));
    tokio::task::spawn_blocking(work).await
}

fn ended_early(plugin: &str, error: &JoinError) -> Error {
    Error::internal("HostFault", format!("loading plugin {plugin} ended early, see the log: {error}"))
}

/// A digest for people: `sha256:` and 12 digits.
fn short(digest: &str) -> &str {
    digest.get(..digest.len().min("sha256:".len() + 12)).unwrap_or(digest)
}

/// Name and version become parts of messages, labels and status.
fn check(plugin: &str, description: &Description) -> Result<()> {
    let Description { name, version, config_schema: _, parameters_schema: _ } = description;
    let what = if !proxy_operator_core::names::is_identifier(name) {
        format!("the name {name:?}, which is not [a-z0-9]([-a-z0-9]*[a-z0-9])? of at most 40 bytes")
    } else if semver::Version::parse(version).is_err() || version.len() > 64 {
        format!("the version {version:?}, which is no semantic version")
    } else {
        return Ok(());
    };
    let message = format!("plugin {plugin} gives itself {what}");
    Err(Error::invalid_config("PluginIncompatible", bounds::cut(&message, limits::MESSAGE)))
}

// === impl Compiled ===

impl Compiled {
    fn new(engine: &Engine, name: &str, bytes: &[u8]) -> Result<Self> {
        let incompatible =
            |why: String| Error::invalid_config("PluginIncompatible", bounds::cut(&why, limits::MESSAGE));
        if bytes.len() > limits::PLUGIN_SIZE {
            let (size, most) = (bytes.len() >> 20, limits::PLUGIN_SIZE >> 20);
            return Err(incompatible(format!("plugin {name} has {size} MiB, at most {most} are allowed")));
        }
        let version = version::of(name, bytes)?;
        let digest = hex::encode(Sha256::digest(bytes));
        let component = match engine.cache().load(engine.wasmtime(), &digest) {
            Some(component) => component,
            None => {
                let component = Component::new(engine.wasmtime(), bytes)
                    .map_err(|error| incompatible(format!("plugin {name} does not compile: {error:#}")))?;
                engine.cache().store(&digest, &component);
                component
            }
        };
        let imports: BTreeSet<String> =
            component.component_type().imports(engine.wasmtime()).map(|(import, _)| import.to_owned()).collect();
        let linked = engine.linkers().link(&component, version).map_err(|error| {
            incompatible(format!(
                "plugin {name} was built for provider API {version} and does not fit this host: {error:#}"
            ))
        })?;
        Ok(Self { linked, digest: format!("sha256:{digest}"), version, imports: imports.into_iter().collect() })
    }
}
