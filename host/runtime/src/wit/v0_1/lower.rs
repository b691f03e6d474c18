//! From plain types to those of the interface: what a guest is given.

use proxy_operator_core::capability::libvirt as core;
use proxy_operator_core::error;
use proxy_operator_core::provider;

use super::exports;
use super::imports::{libvirt, types};
use crate::bounds::cut;
use crate::limits;

/// An error of a capability.
pub(super) fn error(error: error::Error) -> types::Error {
    let error::Error { code, reason, message, backend, retry_after } = error;
    types::Error {
        code: error_code(code),
        reason: cut(&reason, limits::REASON),
        message: cut(&message, limits::MESSAGE),
        backend: backend.map(|error::BackendError { code, number }| types::BackendError {
            code: cut(&code, limits::BACKEND_CODE),
            number,
        }),
        retry_after_seconds: retry_after.map(|after| u32::try_from(after.as_secs()).unwrap_or(u32::MAX)),
    }
}

fn error_code(code: error::ErrorCode) -> types::ErrorCode {
    match code {
        error::ErrorCode::NotFound => types::ErrorCode::NotFound,
        error::ErrorCode::Conflict => types::ErrorCode::Conflict,
        error::ErrorCode::InvalidProxy => types::ErrorCode::InvalidProxy,
        error::ErrorCode::Unresolvable => types::ErrorCode::Unresolvable,
        error::ErrorCode::InvalidConfig => types::ErrorCode::InvalidConfig,
        error::ErrorCode::Unauthenticated => types::ErrorCode::Unauthenticated,
        error::ErrorCode::PermissionDenied => types::ErrorCode::PermissionDenied,
        error::ErrorCode::Exhausted => types::ErrorCode::Exhausted,
        error::ErrorCode::Unavailable => types::ErrorCode::Unavailable,
        error::ErrorCode::DeadlineExceeded => types::ErrorCode::DeadlineExceeded,
        error::ErrorCode::Internal => types::ErrorCode::Internal,
    }
}

/// For whom a call is made.
pub(super) fn context(context: &provider::Context) -> exports::Context {
    let provider::Context { provider, cluster_id, name_prefix, config, timeout } = context;
    exports::Context {
        provider: provider.clone(),
        cluster_id: cluster_id.clone(),
        name_prefix: name_prefix.clone(),
        config: config.clone(),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    }
}

/// An instance that is asked for.
pub(super) fn instance_ref(instance: &provider::InstanceRef) -> exports::InstanceRef {
    let provider::InstanceRef { id, owner, private_state } = instance;
    exports::InstanceRef { id: id.clone(), owner: owner.clone(), private_state: private_state.clone() }
}

/// An instance to be made.
pub(super) fn instance_spec(spec: &provider::InstanceSpec) -> exports::InstanceSpec {
    let provider::InstanceSpec {
        owner,
        name,
        display_name,
        machine_type,
        image,
        placement,
        software,
        cloud_init,
        parameters,
    } = spec;
    exports::InstanceSpec {
        owner: owner.clone(),
        name: name.clone(),
        display_name: display_name.clone(),
        machine_type: machine_type.clone(),
        image: image.clone(),
        placement: placement.clone(),
        software: self::software(software),
        cloud_init: self::cloud_init(cloud_init),
        parameters: parameters.clone(),
    }
}

fn software(software: &provider::Software) -> exports::Software {
    let provider::Software { name, port, access } = software;
    let provider::Access { credentials, allow_from, open, private_destinations } = access;
    let credential = |credential: &provider::Credential| exports::Credential {
        username: credential.username.clone(),
        password_hash: credential.password_hash.expose().clone(),
    };
    exports::Software {
        name: name.clone(),
        port: *port,
        access: exports::Access {
            credentials: credentials.iter().map(credential).collect(),
            allow_from: allow_from.clone(),
            open: *open,
            private_destinations: private_destinations.clone(),
        },
    }
}

fn cloud_init(cloud_init: &provider::CloudInit) -> exports::CloudInit {
    let provider::CloudInit { user_data, author, vendor_data } = cloud_init;
    exports::CloudInit {
        user_data: user_data.expose().clone(),
        author: match author {
            provider::Author::User => exports::Author::User,
            provider::Author::Operator => exports::Author::Operator,
        },
        vendor_data: vendor_data.as_ref().map(|data| data.expose().clone()),
    }
}

/// An address that a capability learned.
pub(super) fn address(address: provider::Address) -> types::Address {
    let provider::Address { host, source } = address;
    types::Address {
        host,
        source: match source {
            provider::AddressSource::Api => types::AddressSource::Api,
            provider::AddressSource::Agent => types::AddressSource::Agent,
            provider::AddressSource::Lease => types::AddressSource::Lease,
            provider::AddressSource::Arp => types::AddressSource::Arp,
        },
    }
}

/// What a grant says of a host.
pub(super) fn host_grant(grant: core::HostGrant) -> libvirt::HostGrant {
    let core::HostGrant { name, pools, networks, max_vcpus, max_memory_mib, max_volume_size } = grant;
    libvirt::HostGrant { name, pools, networks, max_vcpus, max_memory_mib, max_volume_size }
}

/// What a hypervisor is.
pub(super) fn host_info(info: core::HostInfo) -> libvirt::HostInfo {
    let core::HostInfo { version, arch, domain_types, firmwares, uuid, pools, missing_networks, cpus, free_memory_mib } =
        info;
    let firmware = |firmware| match firmware {
        core::Firmware::Bios => libvirt::Firmware::Bios,
        core::Firmware::Uefi => libvirt::Firmware::Uefi,
    };
    let pool = |core::PoolInfo { name, active, available }| libvirt::PoolInfo { name, active, available };
    libvirt::HostInfo {
        version,
        arch,
        domain_types,
        firmwares: firmwares.into_iter().map(firmware).collect(),
        uuid,
        pools: pools.into_iter().map(pool).collect(),
        missing_networks,
        cpus,
        free_memory_mib,
    }
}

/// A domain.
pub(super) fn domain(domain: core::Domain) -> libvirt::Domain {
    let core::Domain { name, owner, state, addresses, created_at } = domain;
    let state = match state {
        core::DomainState::Running => libvirt::DomainState::Running,
        core::DomainState::Blocked => libvirt::DomainState::Blocked,
        core::DomainState::Paused => libvirt::DomainState::Paused,
        core::DomainState::ShuttingDown => libvirt::DomainState::ShuttingDown,
        core::DomainState::ShutOff => libvirt::DomainState::ShutOff,
        core::DomainState::Crashed => libvirt::DomainState::Crashed,
        core::DomainState::Suspended => libvirt::DomainState::Suspended,
        core::DomainState::Unknown => libvirt::DomainState::Unknown,
    };
    libvirt::Domain { name, owner, state, addresses: addresses.into_iter().map(address).collect(), created_at }
}

/// A volume.
pub(super) fn volume(volume: core::Volume) -> libvirt::Volume {
    let core::Volume { pool, name, domain, owner } = volume;
    libvirt::Volume { pool, name, domain, owner }
}

/// The format of a volume.
pub(super) fn volume_format(format: core::VolumeFormat) -> libvirt::VolumeFormat {
    match format {
        core::VolumeFormat::Raw => libvirt::VolumeFormat::Raw,
        core::VolumeFormat::Qcow2 => libvirt::VolumeFormat::Qcow2,
    }
}
