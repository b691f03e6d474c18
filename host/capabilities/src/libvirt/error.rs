//! From libvirt's errors to the one vocabulary.

use std::fmt;

use proxy_operator_core::error::{Error, ErrorCode};
use virt_sys as sys;

/// Why an operation failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// libvirt said so.
    Libvirt(VirError),
    /// Policy, or what was found on the hypervisor, forbids it; or it has its error already.
    Core(Box<Error>),
}

/// An error of libvirt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirError {
    /// The function that returned it.
    pub rpc: &'static str,
    /// Its number.
    pub number: i32,
    /// The part of libvirt that it comes from, by number.
    pub domain: i32,
    /// libvirt's own words.
    pub message: String,
}

macro_rules! numbers {
    ($($name:ident)*) => {
        /// The name of an error's number.
        fn name_of(number: i32) -> &'static str {
            match u32::try_from(number) {
                $(Ok(sys::$name) => stringify!($name),)*
                _ => "VIR_ERR_UNKNOWN",
            }
        }
    };
}

numbers! {
    VIR_ERR_OK VIR_ERR_INTERNAL_ERROR VIR_ERR_NO_MEMORY VIR_ERR_NO_SUPPORT VIR_ERR_UNKNOWN_HOST VIR_ERR_NO_CONNECT
    VIR_ERR_INVALID_CONN VIR_ERR_INVALID_DOMAIN VIR_ERR_INVALID_ARG VIR_ERR_OPERATION_FAILED VIR_ERR_OPEN_FAILED
    VIR_ERR_READ_FAILED VIR_ERR_OPERATION_DENIED VIR_ERR_XML_ERROR VIR_ERR_DOM_EXIST VIR_ERR_OS_TYPE
    VIR_ERR_NO_KERNEL VIR_ERR_NO_ROOT VIR_ERR_NO_SOURCE VIR_ERR_NO_TARGET VIR_ERR_NO_NAME VIR_ERR_NO_OS
    VIR_ERR_NO_DEVICE VIR_ERR_CALL_FAILED VIR_ERR_PARSE_FAILED VIR_ERR_CONF_SYNTAX VIR_ERR_WRITE_FAILED
    VIR_ERR_XML_DETAIL VIR_ERR_INVALID_NETWORK VIR_ERR_NETWORK_EXIST VIR_ERR_SYSTEM_ERROR VIR_ERR_RPC
    VIR_ERR_GNUTLS_ERROR VIR_WAR_NO_NETWORK VIR_ERR_NO_DOMAIN VIR_ERR_NO_NETWORK VIR_ERR_INVALID_MAC
    VIR_ERR_AUTH_FAILED VIR_ERR_INVALID_STORAGE_POOL VIR_ERR_INVALID_STORAGE_VOL VIR_WAR_NO_STORAGE
    VIR_ERR_NO_STORAGE_POOL VIR_ERR_NO_STORAGE_VOL VIR_WAR_NO_NODE VIR_ERR_INVALID_NODE_DEVICE
    VIR_ERR_NO_NODE_DEVICE VIR_ERR_NO_SECURITY_MODEL VIR_ERR_OPERATION_INVALID VIR_WAR_NO_INTERFACE
    VIR_ERR_NO_INTERFACE VIR_ERR_INVALID_INTERFACE VIR_ERR_MULTIPLE_INTERFACES VIR_WAR_NO_NWFILTER
    VIR_ERR_INVALID_NWFILTER VIR_ERR_NO_NWFILTER VIR_ERR_BUILD_FIREWALL VIR_WAR_NO_SECRET VIR_ERR_INVALID_SECRET
    VIR_ERR_NO_SECRET VIR_ERR_CONFIG_UNSUPPORTED VIR_ERR_OPERATION_TIMEOUT VIR_ERR_MIGRATE_PERSIST_FAILED
    VIR_ERR_HOOK_SCRIPT_FAILED VIR_ERR_INVALID_DOMAIN_SNAPSHOT VIR_ERR_NO_DOMAIN_SNAPSHOT VIR_ERR_INVALID_STREAM
    VIR_ERR_ARGUMENT_UNSUPPORTED VIR_ERR_STORAGE_PROBE_FAILED VIR_ERR_STORAGE_POOL_BUILT
    VIR_ERR_SNAPSHOT_REVERT_RISKY VIR_ERR_OPERATION_ABORTED VIR_ERR_AUTH_CANCELLED VIR_ERR_NO_DOMAIN_METADATA
    VIR_ERR_MIGRATE_UNSAFE VIR_ERR_OVERFLOW VIR_ERR_BLOCK_COPY_ACTIVE VIR_ERR_OPERATION_UNSUPPORTED VIR_ERR_SSH
    VIR_ERR_AGENT_UNRESPONSIVE VIR_ERR_RESOURCE_BUSY VIR_ERR_ACCESS_DENIED VIR_ERR_DBUS_SERVICE
    VIR_ERR_STORAGE_VOL_EXIST VIR_ERR_CPU_INCOMPATIBLE VIR_ERR_XML_INVALID_SCHEMA VIR_ERR_AUTH_UNAVAILABLE
    VIR_ERR_NO_SERVER VIR_ERR_NO_CLIENT VIR_ERR_AGENT_UNSYNCED VIR_ERR_LIBSSH VIR_ERR_DEVICE_MISSING
    VIR_ERR_NO_NETWORK_PORT VIR_ERR_NO_HOSTNAME VIR_ERR_MULTIPLE_DOMAINS
}

// === impl Failure ===

impl Failure {
    /// Whether libvirt gave this number.
    pub fn is(&self, number: u32) -> bool {
        matches!(self, Self::Libvirt(error) if error.is(number))
    }

    /// Whether the connection is gone: the same call on another one may succeed.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Libvirt(error) if error.is_disconnect())
    }

    /// The error of a call on this host.
    pub fn into_error(self, host: &str) -> Error {
        match self {
            Self::Core(error) => *error,
            Self::Libvirt(error) => error.into_error(host),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Core(Box::new(error))
    }
}

// === impl VirError ===

impl VirError {
    /// Whether it has this number.
    pub fn is(&self, number: u32) -> bool {
        u32::try_from(self.number) == Ok(number)
    }

    /// The name of its number: `VIR_ERR_NO_DOMAIN`.
    pub fn name(&self) -> &'static str {
        name_of(self.number)
    }

    /// Whether it is of this side's connection, and not of what was asked. The other side's errors come with the
    /// number of the driver that they arose in; `VIR_FROM_RPC` is the transport's own ("client socket is closed",
    /// "End of file while reading data").
    pub fn is_disconnect(&self) -> bool {
        self.is(sys::VIR_ERR_INVALID_CONN)
            || self.is(sys::VIR_ERR_RPC)
            || (u32::try_from(self.domain) == Ok(sys::VIR_FROM_RPC)
                && (self.is(sys::VIR_ERR_SYSTEM_ERROR) || self.is(sys::VIR_ERR_INTERNAL_ERROR)))
    }

    fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|words| self.message.contains(words))
    }

    /// The code and the reason. Numbers decide where there is one that says enough; the text is looked at for what
    /// libvirt has no number for, and what it says in another language is merely transient.
    fn classify(&self) -> (ErrorCode, &'static str) {
        use ErrorCode::{Conflict, Exhausted, InvalidConfig, PermissionDenied, Unavailable};
        if self.is_disconnect() {
            return (Unavailable, "LibvirtUnavailable");
        }
        if self.says(&["No space left on device", "Disk quota exceeded", "not enough free space"]) {
            return (Exhausted, "PoolFull");
        }
        if self.says(&["Cannot allocate memory", "cannot set up guest memory"]) {
            return (Exhausted, "MemoryExhausted");
        }
        if self.says(&["asynchronous jobs running"]) {
            return (Unavailable, "PoolBusy");
        }
        if self.says(&["find any firmware to satisfy", "find any matching firmware", "firmware auto selection"]) {
            return (InvalidConfig, "FirmwareMissing");
        }
        match u32::try_from(self.number).unwrap_or_default() {
            sys::VIR_ERR_NO_DOMAIN => (Unavailable, "DomainMissing"),
            sys::VIR_ERR_NO_NETWORK => (InvalidConfig, "NetworkMissing"),
            sys::VIR_ERR_NO_STORAGE_POOL => (InvalidConfig, "PoolMissing"),
            sys::VIR_ERR_NO_STORAGE_VOL => (Unavailable, "VolumeMissing"),
            sys::VIR_ERR_OPERATION_INVALID if self.says(&["network"]) && self.says(&["not active"]) => {
                (InvalidConfig, "NetworkMissing")
            }
            sys::VIR_ERR_OPERATION_INVALID if self.says(&["storage pool"]) && self.says(&["not active"]) => {
                (InvalidConfig, "PoolMissing")
            }
            sys::VIR_ERR_AUTH_FAILED
            | sys::VIR_ERR_AUTH_CANCELLED
            | sys::VIR_ERR_AUTH_UNAVAILABLE
            | sys::VIR_ERR_ACCESS_DENIED
            | sys::VIR_ERR_OPERATION_DENIED => (PermissionDenied, "PermissionDenied"),
            sys::VIR_ERR_DOM_EXIST => (Conflict, "NameTaken"),
            sys::VIR_ERR_OPERATION_FAILED if self.says(&["already exists with uuid", "already defined with uuid"]) => {
                (Conflict, "NameTaken")
            }
            sys::VIR_ERR_NO_MEMORY => (Exhausted, "MemoryExhausted"),
            sys::VIR_ERR_RESOURCE_BUSY => (Unavailable, "ResourceBusy"),
            sys::VIR_ERR_OPERATION_TIMEOUT => (Unavailable, "LibvirtBusy"),
            sys::VIR_ERR_AGENT_UNRESPONSIVE => (Unavailable, "AgentUnresponsive"),
            sys::VIR_ERR_CONFIG_UNSUPPORTED | sys::VIR_ERR_XML_ERROR | sys::VIR_ERR_XML_INVALID_SCHEMA => {
                (InvalidConfig, "LibvirtRefused")
            }
            _ => (Unavailable, "LibvirtFailed"),
        }
    }

    fn into_error(self, host: &str) -> Error {
        let (code, reason) = self.classify();
        Error::new(code, reason, format!("{host}: {}: {}", self.rpc, self.message))
            .with_backend(self.name(), Some(self.number))
    }
}

impl fmt::Display for VirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({}, {})", self.rpc, self.message, self.name(), self.number)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Libvirt(error) => error.fmt(f),
            Self::Core(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(number: u32, domain: u32, message: &str) -> Error {
        let error = VirError {
            rpc: "virDomainCreate",
            number: number as i32,
            domain: domain as i32,
            message: message.to_owned(),
        };
        Failure::Libvirt(error).into_error("hv1")
    }

    #[test]
    fn reasons_are_those_of_the_design() {
        use ErrorCode::{Exhausted, InvalidConfig, PermissionDenied, Unavailable};
        for (number, domain, message, code, reason) in [
            (
                sys::VIR_ERR_INTERNAL_ERROR,
                sys::VIR_FROM_RPC,
                "client socket is closed",
                Unavailable,
                "LibvirtUnavailable",
            ),
            (
                sys::VIR_ERR_SYSTEM_ERROR,
                sys::VIR_FROM_RPC,
                "End of file while reading data: Input/output error",
                Unavailable,
                "LibvirtUnavailable",
            ),
            (
                sys::VIR_ERR_INTERNAL_ERROR,
                sys::VIR_FROM_STORAGE,
                "pool 'default' has asynchronous jobs running.",
                Unavailable,
                "PoolBusy",
            ),
            (
                sys::VIR_ERR_SYSTEM_ERROR,
                sys::VIR_FROM_STORAGE,
                "cannot fill file '/x': No space left on device",
                Exhausted,
                "PoolFull",
            ),
            (sys::VIR_ERR_NO_NETWORK, sys::VIR_FROM_NETWORK, "Network not found", InvalidConfig, "NetworkMissing"),
            (sys::VIR_ERR_NO_STORAGE_POOL, sys::VIR_FROM_STORAGE, "not found", InvalidConfig, "PoolMissing"),
            (sys::VIR_ERR_ACCESS_DENIED, sys::VIR_FROM_ACCESS, "access denied", PermissionDenied, "PermissionDenied"),
        ] {
            let error = error(number, domain, message);
            assert_eq!((error.code, error.reason.as_str()), (code, reason), "{message}");
        }
    }

    #[test]
    fn the_backends_own_name_and_number_are_kept() {
        let backend = error(sys::VIR_ERR_NO_DOMAIN, sys::VIR_FROM_QEMU, "Domain not found").backend.unwrap();
        assert_eq!((backend.code.as_str(), backend.number), ("VIR_ERR_NO_DOMAIN", Some(42)));
    }
}
