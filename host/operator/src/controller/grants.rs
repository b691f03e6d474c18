//! Makes what a Provider was granted.

use proxy_operator_api::Grants;
use proxy_operator_core::capability::Capabilities;

/// For whom capabilities are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The installation.
    pub cluster_id: String,
    /// The Provider's name.
    pub provider: String,
    /// What its instances' names begin with.
    pub name_prefix: String,
}

/// Turns a Provider's grants into capabilities.
pub trait Granting: Send + Sync {
    /// Makes the capabilities of a Provider. Those made for it before are withdrawn: a call that still holds them is
    /// denied from now on.
    fn grant(&self, identity: &Identity, grants: &Grants) -> Capabilities;

    /// Withdraws all that a Provider was granted.
    fn withdraw(&self, provider: &str);
}
