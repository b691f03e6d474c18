//! From the types of the interface to plain ones: what a guest gave, held against its bounds.
//!
//! Identities (ids, owners, cursors) are never cut: one over its bound fails the call. Texts for people are cut.

use std::time::Duration;

use proxy_operator_core::capability::libvirt as core;
use proxy_operator_core::error::{self, Result};
use proxy_operator_core::provider;

use super::exports;
use super::imports::{libvirt, types};
use crate::bounds::{self, result};
use crate::limits;
use crate::watch::Watch;

/// Lifts what one call returned.
pub(super) struct Lift<'a>(pub(super) &'a Watch);

impl Lift<'_> {
    /// Why a call failed.
    pub(super) fn error(&self, error: types::Error) -> error::Error {
        let types::Error { code, reason, message, backend, retry_after_seconds } = error;
        let message = self.0.text(&message, limits::MESSAGE);
        error::Error {
            code: error_code(code),
            reason: bounds::reason(reason),
            message: if message.is_empty() {
                format!("{}, without a message of the plugin", error_code(code))
            } else {
                message
            },
            backend: backend.map(|types::BackendError { code, number }| error::BackendError {
                code: self.0.text(&code, limits::BACKEND_CODE),
                number,
            }),
            retry_after: retry_after_seconds.map(|s| Duration::from_secs(s.into()).min(limits::RETRY_AFTER)),
        }
    }

    /// What a plugin says of itself.
    pub(super) fn description(&self, description: exports::Description) -> Result<provider::Description> {
        let exports::Description { name, version, config_schema, parameters_schema } = description;
        result("description.config-schema", config_schema.len(), limits::SCHEMA)?;
        result("description.parameters-schema", parameters_schema.len(), limits::SCHEMA)?;
        let (name, version) = (self.name("description.name", name)?, self.name("description.version", version)?);
        Ok(provider::Description { name, version, config_schema, parameters_schema })
    }

    /// What is wrong in a config. More than can be shown is left out.
    pub(super) fn faults(&self, faults: Vec<exports::Fault>) -> Vec<provider::Fault> {
        let fault = |exports::Fault { path, message }| provider::Fault {
            path: self.0.text(&path, limits::FAULT_PATH),
            message: self.0.text(&message, limits::MESSAGE),
        };
        faults.into_iter().take(limits::FAULTS).map(fault).collect()
    }

    /// The id of a place.
    pub(super) fn place(&self, id: String) -> Result<String> {
        self.id("the id", id)
    }

    /// What is known of an instance.
    pub(super) fn instance(&self, instance: exports::Instance) -> Result<provider::Instance> {
        let exports::Instance {
            id,
            owner,
            phase,
            reason,
            message,
            error,
            percent,
            endpoint,
            egress_address,
            addresses,
            created_at,
            private_state,
        } = instance;
        result("instance.addresses", addresses.len(), limits::ADDRESSES)?;
        result("instance.private-state", private_state.as_ref().map_or(0, String::len), limits::PRIVATE_STATE)?;
        let message = self.0.text(&message, limits::MESSAGE);
        let phase = self::phase(phase);
        let endpoint = match endpoint {
            Some(exports::Endpoint { host, port }) => {
                Some(provider::Endpoint { host: self.name("instance.endpoint.host", host)?, port })
            }
            None => None,
        };
        let error = match (phase, error) {
            (provider::Phase::Failed, Some(error)) => Some(self.error(error)),
            (provider::Phase::Failed, None) => Some(error::Error::internal("Other", message.clone())),
            // "With failed, and only then".
            (_, _) => None,
        };
        Ok(provider::Instance {
            id: self.id("instance.id", id)?,
            owner: self.name("instance.owner", owner)?,
            phase,
            reason: if reason.is_empty() { reason } else { bounds::reason(reason) },
            message,
            error,
            percent: percent.map(|percent| percent.min(100)),
            endpoint,
            egress_address: self.optional_name("instance.egress-address", egress_address)?,
            addresses: addresses.into_iter().map(|a| self.address(a)).collect::<Result<_>>()?,
            created_at: self.optional_name("instance.created-at", created_at)?,
            private_state,
        })
    }

    /// A part of a listing.
    pub(super) fn page(&self, page: exports::Page) -> Result<provider::Page> {
        let exports::Page { instances, next, gaps } = page;
        result("page.instances", instances.len(), limits::PAGE)?;
        result("page.gaps", gaps.len(), limits::GAPS)?;
        result("page.next", next.as_ref().map_or(0, String::len), limits::CURSOR)?;
        let gap = |exports::Gap { id_prefix, error }| {
            result("gap.id-prefix", id_prefix.len(), limits::ID)?;
            Ok(provider::Gap { id_prefix, error: self.error(error) })
        };
        Ok(provider::Page {
            instances: instances.into_iter().map(|i| self.instance(i)).collect::<Result<_>>()?,
            next,
            gaps: gaps.into_iter().map(gap).collect::<Result<_>>()?,
        })
    }

    /// How far a deletion is.
    pub(super) fn deletion(&self, deletion: exports::Deletion) -> Result<provider::Deletion> {
        Ok(match deletion {
            exports::Deletion::Done => provider::Deletion::Done,
            exports::Deletion::Pending(instance) => provider::Deletion::Pending(Box::new(self.instance(instance)?)),
            exports::Deletion::Abandoned(what) => provider::Deletion::Abandoned(self.0.text(&what, limits::MESSAGE)),
        })
    }

    /// The health of all parts.
    pub(super) fn checks(&self, checks: Vec<exports::Check>) -> Result<Vec<provider::Check>> {
        result("the checks", checks.len(), limits::CHECKS)?;
        let check = |exports::Check { subject, detail, error }| {
            Ok(provider::Check {
                subject: self.name("check.subject", subject)?,
                detail: self.0.text(&detail, limits::MESSAGE),
                error: error.map(|error| self.error(error)),
            })
        };
        checks.into_iter().map(check).collect()
    }

    fn address(&self, address: types::Address) -> Result<provider::Address> {
        let types::Address { host, source } = address;
        Ok(provider::Address {
            host: self.name("instance.addresses.host", host)?,
            source: match source {
                types::AddressSource::Api => provider::AddressSource::Api,
                types::AddressSource::Agent => provider::AddressSource::Agent,
                types::AddressSource::Lease => provider::AddressSource::Lease,
                types::AddressSource::Arp => provider::AddressSource::Arp,
            },
        })
    }

    /// An id: recorded, compared, shown. Never empty, one line.
    fn id(&self, item: &str, id: String) -> Result<String> {
        result(item, id.len(), limits::ID)?;
        if id.is_empty() || bounds::escape(&id) != id {
            let message = format!(
                "the plugin returned {item} that is empty or has control characters: {:?}",
                bounds::cut(&id, 64)
            );
            return Err(error::Error::internal("ResultInvalid", message));
        }
        Ok(id)
    }

    /// A name: compared and shown.
    fn name(&self, item: &str, name: String) -> Result<String> {
        result(item, name.len(), limits::NAME)?;
        Ok(bounds::escape(&name))
    }

    fn optional_name(&self, item: &str, name: Option<String>) -> Result<Option<String>> {
        name.map(|name| self.name(item, name)).transpose()
    }
}

fn phase(phase: exports::Phase) -> provider::Phase {
    match phase {
        exports::Phase::Provisioning => provider::Phase::Provisioning,
        exports::Phase::Running => provider::Phase::Running,
        exports::Phase::Stopped => provider::Phase::Stopped,
        exports::Phase::Failed => provider::Phase::Failed,
        exports::Phase::Deleting => provider::Phase::Deleting,
        exports::Phase::Unknown => provider::Phase::Unknown,
    }
}

fn error_code(code: types::ErrorCode) -> error::ErrorCode {
    match code {
        types::ErrorCode::NotFound => error::ErrorCode::NotFound,
        types::ErrorCode::Conflict => error::ErrorCode::Conflict,
        types::ErrorCode::InvalidProxy => error::ErrorCode::InvalidProxy,
        types::ErrorCode::Unresolvable => error::ErrorCode::Unresolvable,
        types::ErrorCode::InvalidConfig => error::ErrorCode::InvalidConfig,
        types::ErrorCode::Unauthenticated => error::ErrorCode::Unauthenticated,
        types::ErrorCode::PermissionDenied => error::ErrorCode::PermissionDenied,
        types::ErrorCode::Exhausted => error::ErrorCode::Exhausted,
        types::ErrorCode::Unavailable => error::ErrorCode::Unavailable,
        types::ErrorCode::DeadlineExceeded => error::ErrorCode::DeadlineExceeded,
        types::ErrorCode::Internal => error::ErrorCode::Internal,
    }
}

/// A domain to be defined.
pub(super) fn domain_spec(spec: libvirt::DomainSpec) -> core::DomainSpec {
    let libvirt::DomainSpec { name, title, domain_type, vcpus, memory_mib, firmware, disks, networks, autostart } =
        spec;
    let disk = |libvirt::Disk { pool, volume, format, read_only }| core::Disk {
        pool,
        volume,
        format: volume_format(format),
        read_only,
    };
    core::DomainSpec {
        name,
        title,
        domain_type,
        vcpus,
        memory_mib,
        firmware: match firmware {
            libvirt::Firmware::Bios => core::Firmware::Bios,
            libvirt::Firmware::Uefi => core::Firmware::Uefi,
        },
        disks: disks.into_iter().map(disk).collect(),
        networks,
        autostart,
    }
}

/// The format of a volume.
pub(super) fn volume_format(format: libvirt::VolumeFormat) -> core::VolumeFormat {
    match format {
        libvirt::VolumeFormat::Raw => core::VolumeFormat::Raw,
        libvirt::VolumeFormat::Qcow2 => core::VolumeFormat::Qcow2,
    }
}
