//! What `virt` lacks or gets wrong, on `virt-sys`. The only unsafe code of this crate.
//!
//! - `last_error`: `virt::error::Error` hides the number of an error, and what it names is a translation of it.
//! - `domain_states`: `Connect::get_all_domain_stats` hands out raw records and frees neither them nor their domains.
//! - `leases`: `virNetworkGetDHCPLeases` is not in `virt`.
//! - `addresses`: `Domain::interface_addresses` leaks every record (no `virDomainInterfaceFree`), and dereferences a
//!   MAC address that the neighbour table and the agent may leave out.
//! - `agent_timeout`, `available_memory`: not in `virt`.
//!
//! Each function takes safe objects of `virt`, which keep libvirt's own alive for its length, and returns values that
//! Rust owns.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use virt::connect::Connect;
use virt::domain::Domain;
use virt::network::Network;
use virt_sys as sys;

use super::seam::{CardAddresses, Lease};

/// An error as libvirt keeps it for the calling thread: number, the part of libvirt it comes from, text.
pub(super) struct LastError {
    pub(super) number: i32,
    pub(super) domain: i32,
    pub(super) message: String,
}

/// The error of the last call of this thread. To be asked before any other call, a free included.
pub(super) fn last_error() -> Option<LastError> {
    // SAFETY: the pointer is null or valid until this thread's next call of libvirt; what it holds is copied here.
    unsafe {
        let error = sys::virGetLastError().as_ref()?;
        Some(LastError { number: error.code as i32, domain: error.domain as i32, message: text(error.message)? })
    }
}

/// Every domain with its state as a number, where libvirt says one.
pub(super) fn domain_states(connect: &Connect) -> Option<Vec<(Domain, Option<i32>)>> {
    let mut records: *mut sys::virDomainStatsRecordPtr = ptr::null_mut();
    // SAFETY: the connection is valid while it is borrowed; libvirt fills `records` with a list of its own that ends
    // in null, which is freed below whatever it holds. A domain outlives its record by the reference that is taken.
    unsafe {
        let count =
            sys::virConnectGetAllDomainStats(connect.as_ptr(), sys::VIR_DOMAIN_STATS_STATE as c_uint, &mut records, 0);
        let count = usize::try_from(count).ok()?;
        let mut states = Vec::with_capacity(count);
        for index in 0..count {
            let Some(record) = (*records.add(index)).as_ref() else { continue };
            if sys::virDomainRef(record.dom) == -1 {
                continue;
            }
            let domain = Domain::from_ptr(record.dom);
            let mut state: c_int = 0;
            let found = sys::virTypedParamsGetInt(
                record.params,
                record.nparams,
                sys::VIR_DOMAIN_STATS_STATE_STATE.as_ptr(),
                &mut state,
            );
            states.push((domain, (found == 1).then_some(state)));
        }
        sys::virDomainStatsRecordListFree(records);
        Some(states)
    }
}

/// The leases of a network that have not expired.
pub(super) fn leases(network: &Network) -> Option<Vec<Lease>> {
    let mut list: *mut sys::virNetworkDHCPLeasePtr = ptr::null_mut();
    // SAFETY: the network is valid while it is borrowed; libvirt fills `list` with so many leases of its own, each of
    // which is freed here, and the list after them.
    unsafe {
        let count = sys::virNetworkGetDHCPLeases(network.as_ptr(), ptr::null(), &mut list, 0);
        let count = usize::try_from(count).ok()?;
        let mut leases = Vec::with_capacity(count);
        for index in 0..count {
            let pointer = *list.add(index);
            if let Some(lease) = pointer.as_ref()
                && let (Some(mac), Some(address)) = (text(lease.mac), text(lease.ipaddr))
            {
                let expires = if lease.expirytime == 0 { i64::MAX } else { lease.expirytime };
                leases.push(Lease { mac, address, expires });
            }
            sys::virNetworkDHCPLeaseFree(pointer);
        }
        libc::free(list.cast());
        Some(leases)
    }
}

/// The addresses of a domain's network cards by one source.
pub(super) fn addresses(domain: &Domain, source: sys::virDomainInterfaceAddressesSource) -> Option<Vec<CardAddresses>> {
    let mut list: *mut sys::virDomainInterfacePtr = ptr::null_mut();
    // SAFETY: the domain is valid while it is borrowed; libvirt fills `list` with so many interfaces of its own, each
    // with `naddrs` addresses; each interface is freed here, with its addresses, and the list after them.
    unsafe {
        let count = sys::virDomainInterfaceAddresses(domain.as_ptr(), &mut list, source as c_uint, 0);
        let count = usize::try_from(count).ok()?;
        let mut cards = Vec::with_capacity(count);
        for index in 0..count {
            let pointer = *list.add(index);
            if let Some(card) = pointer.as_ref() {
                let found = if card.addrs.is_null() { 0 } else { card.naddrs as usize };
                let addresses = (0..found).filter_map(|index| text((*card.addrs.add(index)).addr)).collect();
                cards.push(CardAddresses { mac: text(card.hwaddr), addresses });
            }
            sys::virDomainInterfaceFree(pointer);
        }
        libc::free(list.cast());
        Some(cards)
    }
}

/// Sets how long libvirt waits for a domain's agent, in seconds.
pub(super) fn agent_timeout(domain: &Domain, seconds: u32) -> Option<()> {
    let seconds = c_int::try_from(seconds).unwrap_or(c_int::MAX);
    // SAFETY: the domain is valid while it is borrowed.
    let result = unsafe { sys::virDomainAgentSetResponseTimeout(domain.as_ptr(), seconds, 0) };
    (result != -1).then_some(())
}

/// Memory that a new process can have, in bytes: free, and held by caches. `virNodeGetFreeMemory` counts the first
/// alone, which is next to nothing on a machine that has been up for a while.
pub(super) fn available_memory(connect: &Connect) -> Option<u64> {
    const ALL_CELLS: c_int = -1;
    // SAFETY: with no array libvirt tells the number of values; then it fills an array of that many. Each value's name
    // is terminated within its 80 bytes.
    unsafe {
        let mut count: c_int = 0;
        if sys::virNodeGetMemoryStats(connect.as_ptr(), ALL_CELLS, ptr::null_mut(), &mut count, 0) == -1 {
            return None;
        }
        let mut values = vec![sys::_virNodeMemoryStats { field: [0; 80], value: 0 }; usize::try_from(count).ok()?];
        if sys::virNodeGetMemoryStats(connect.as_ptr(), ALL_CELLS, values.as_mut_ptr(), &mut count, 0) == -1 {
            return None;
        }
        let named = |name: &[u8]| {
            let found = values.iter().find(|value| CStr::from_ptr(value.field.as_ptr()).to_bytes() == name);
            found.map_or(0, |value| value.value)
        };
        Some((named(b"free") + named(b"buffers") + named(b"cached")).saturating_mul(1024))
    }
}

/// A copy of a C string, byte for byte where it is UTF-8; `None` for null.
///
/// # Safety
/// The pointer is null or names a terminated string.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: by this function's own contract.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}
