//! The providers that serve, by the name of their Provider object.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use proxy_operator_core::capability::Capabilities;
use proxy_operator_core::error::{Error, Result};
use proxy_operator_core::provider::Fault;

use crate::bounds;
use crate::engine::Engine;
use crate::limits;
use crate::plugin::Plugin;
use crate::provider::{ContextParts, LoadedProvider};

/// Providers by name. A swap exchanges an `Arc`: calls in flight end on the build they began with, and whatever fails
/// on the way to a new one leaves the old one serving.
#[derive(Default)]
pub struct Registry(RwLock<HashMap<String, Arc<LoadedProvider>>>);

// === impl Registry ===

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The provider that serves now.
    pub fn get(&self, provider: &str) -> Option<Arc<LoadedProvider>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(provider).cloned()
    }

    /// Loads a build for a Provider and puts it in the place of the one that serves: schema, then the plugin's own
    /// `validate`, then the swap. On failure nothing has changed.
    pub async fn load(
        &self,
        engine: &Engine,
        plugin: &str,
        bytes: impl Into<Vec<u8>>,
        parts: ContextParts,
        capabilities: Capabilities,
    ) -> Result<Arc<LoadedProvider>> {
        let plugin = Plugin::load(engine, plugin, bytes).await?;
        self.configure(plugin, parts, capabilities).await
    }

    /// The same with a build that is loaded already: another config, or other grants.
    pub async fn configure(
        &self,
        plugin: Arc<Plugin>,
        parts: ContextParts,
        capabilities: Capabilities,
    ) -> Result<Arc<LoadedProvider>> {
        plugin.check_config(&parts.config).map_err(|faults| invalid(&plugin, &faults))?;
        let provider = Arc::new(LoadedProvider::new(plugin, parts, capabilities)?);
        if let Err(faults) = provider.validate().await? {
            return Err(invalid(provider.plugin(), &faults));
        }
        self.swap(Arc::clone(&provider));
        Ok(provider)
    }

    /// Puts a provider in the place of the one of its name, which is returned. Calls in flight on the old one go on,
    /// with the grants of the new one.
    pub fn swap(&self, provider: Arc<LoadedProvider>) -> Option<Arc<LoadedProvider>> {
        let grants = provider.grants().get();
        let mut providers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let old = providers.insert(provider.name().to_owned(), provider);
        drop(providers);
        if let Some(old) = &old {
            old.set_capabilities(grants);
        }
        old
    }

    /// Takes a provider out. Calls in flight on it go on, without any grant.
    pub fn remove(&self, provider: &str) -> Option<Arc<LoadedProvider>> {
        let old = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(provider);
        if let Some(old) = &old {
            old.set_capabilities(Capabilities::default());
        }
        old
    }

    /// The names of all that serve, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        names.sort();
        names
    }
}

/// The error that tells what is wrong with a config.
fn invalid(plugin: &Plugin, faults: &[Fault]) -> Error {
    let told: Vec<String> = faults.iter().map(|Fault { path, message }| format!("{path}: {message}")).collect();
    let message = format!("spec.config does not suit plugin {}: {}", plugin.identity(), told.join("; "));
    Error::invalid_config("ConfigInvalid", bounds::cut(&message, limits::MESSAGE))
}
