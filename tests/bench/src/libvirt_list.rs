//! `libvirt_list_100_rpcs`: how many RPCs a `list` of the kvm plugin makes on a hypervisor with 100 domains of ours and
//! their volumes; its baseline is the same with one domain. Real libvirtd, real SSH.

use std::time::Instant;

use anyhow::{Result, ensure};
use proxy_operator_core::capability::Capabilities;
use proxy_operator_core::capability::libvirt::{Disk, DomainSpec, Firmware, Libvirt, VolumeFormat, VolumeSpec};
use proxy_operator_core::provider::Provider as _;
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_runtime::{ContextParts, LoadedProvider};

use crate::hypervisor::Granted;
use crate::kvm::{self, HOST};
use crate::recorder;
use crate::report::Report;
use crate::sample::{median, millis, runtime};

/// Domains on the hypervisor.
const MANY: usize = 100;
/// Listings, for the time of one.
const LISTINGS: usize = 9;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let granted = Granted::new()?;
    runtime()?.block_on(async {
        let provider = provider(&granted).await?;
        define(&granted, 0..1).await?;
        let (one, one_ms) = listing(&provider, 1).await?;
        define(&granted, 1..MANY).await?;
        let (many, many_ms) = listing(&provider, MANY).await?;
        report.put("libvirt_list_100_rpcs", many);
        report.put("libvirt_list_1_rpcs", one);
        report.put("libvirt_list_100_p50_ms", many_ms);
        report.put("libvirt_list_1_p50_ms", one_ms);
        // With a domain that runs, leases are asked for as well: of the network, not of the domain.
        let name = name(&granted, 0);
        granted.libvirt.start_domain(HOST, &name).await?;
        let running = listing(&provider, MANY).await;
        granted.libvirt.destroy_domain(HOST, &name).await?;
        report.put("libvirt_list_100_running_rpcs", running?.0);
        Ok(())
    })
}

async fn provider(granted: &Granted) -> Result<LoadedProvider> {
    let parts = ContextParts {
        provider: granted.identity.provider.clone(),
        cluster_id: granted.identity.cluster_id.clone(),
        name_prefix: granted.identity.name_prefix.clone(),
        config: kvm::config(),
        call_timeout: None,
        concurrent_calls: None,
    };
    let capabilities = Capabilities { libvirt: Some(granted.libvirt.clone()), images: None };
    Ok(LoadedProvider::new(kvm::plugin().await?, parts, capabilities)?)
}

/// The RPCs of a listing that sees so many instances, and its time. The connection is open already.
async fn listing(provider: &LoadedProvider, instances: usize) -> Result<(f64, f64)> {
    let (mut rpcs, mut times) = (Vec::new(), Vec::new());
    for _ in 0..LISTINGS {
        recorder::take();
        let begun = Instant::now();
        let page = provider.list(None).await?;
        times.push(millis(begun.elapsed()));
        let seen = page.instances.len();
        ensure!(page.gaps.is_empty() && seen == instances, "{seen} instances, gaps: {:?}", page.gaps);
        rpcs.push(u32::try_from(recorder::take_rpcs().len())?);
    }
    Ok((median(rpcs)?.into(), median(times)?))
}

fn owner(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn name(granted: &Granted, number: usize) -> String {
    format!("{}{}", granted.identity.name_prefix, owner(number))
}

/// Defines domains with a disk and a seed each, as a `create` does.
async fn define(granted: &Granted, numbers: std::ops::Range<usize>) -> Result<()> {
    let (pool, network) = (&granted.hypervisor.pool, &granted.hypervisor.network);
    for number in numbers {
        let name = name(granted, number);
        let (disk, seed) = (format!("{name}.disk.qcow2"), format!("{name}.seed.img"));
        let volume = VolumeSpec { format: VolumeFormat::Qcow2, capacity: 16 << 20, backing: None };
        granted.libvirt.create_volume(HOST, pool, &disk, &volume).await?;
        granted.libvirt.write_volume(HOST, pool, &seed, Sensitive::new(vec![0; 64 << 10])).await?;
        let disk = |volume: String, format, read_only| Disk { pool: pool.clone(), volume, format, read_only };
        let spec = DomainSpec {
            name: name.clone(),
            title: format!("bench/{number}"),
            domain_type: Some("qemu".to_owned()),
            vcpus: 1,
            memory_mib: 64,
            firmware: Firmware::Bios,
            disks: vec![
                disk(format!("{name}.disk.qcow2"), VolumeFormat::Qcow2, false),
                disk(seed, VolumeFormat::Raw, true),
            ],
            networks: vec![network.clone()],
            autostart: false,
        };
        granted.libvirt.define_domain(HOST, &spec).await?;
    }
    Ok(())
}
