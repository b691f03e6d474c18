//! What a Proxy asks for, looked up in the config.

use proxy_operator_sdk::images::Source;
use proxy_operator_sdk::libvirt::Firmware;
use proxy_operator_sdk::{Error, InstanceSpec, Result};

use crate::config::{Config, MachineType, check_url, known};

/// Machine type and image of a Proxy.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    /// The key of the machine type.
    pub machine_key: &'a str,
    /// The machine type.
    pub machine: &'a MachineType,
    /// The image.
    pub source: Source,
    /// How the image boots.
    pub firmware: Firmware,
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    /// Looks both up; what is not there is `invalid-proxy` and names what is.
    pub(crate) fn new(config: &'a Config, spec: &'a InstanceSpec) -> Result<Self> {
        let machine_key = spec.machine_type.as_deref().or(config.default_machine_type.as_deref()).ok_or_else(|| {
            missing("MachineTypeMissing", "machineType", "defaultMachineType", &known(&config.machine_types))
        })?;
        let machine = config.machine_types.get(machine_key).ok_or_else(|| {
            let known = known(&config.machine_types);
            Error::invalid_proxy(
                "MachineTypeUnknown",
                format!("spec.machineType: \"{machine_key}\" is not a machine type of the Provider ({known})"),
            )
        })?;
        let image = spec
            .image
            .as_deref()
            .or(config.default_image.as_deref())
            .ok_or_else(|| missing("ImageMissing", "image", "defaultImage", &known(&config.images)))?;
        let (source, firmware) = match config.images.get(image) {
            Some(found) => {
                let source =
                    Source { key: Some(image.to_owned()), url: found.url.clone(), digest: found.digest.clone() };
                (source, found.firmware.into())
            }
            None if image.contains("://") => {
                check_url(image)
                    .map_err(|message| Error::invalid_proxy("ImageInvalid", format!("spec.image: {message}")))?;
                (Source { key: None, url: image.to_owned(), digest: None }, Firmware::Uefi)
            }
            None => {
                let known = known(&config.images);
                return Err(Error::invalid_proxy(
                    "ImageUnknown",
                    format!("spec.image: \"{image}\" is neither a URL nor an image of the Provider ({known})"),
                ));
            }
        };
        Ok(Self { machine_key, machine, source, firmware })
    }
}

fn missing(reason: &str, field: &str, default: &str, known: &str) -> Error {
    Error::invalid_proxy(reason, format!("spec.{field} is not set, and the Provider has no {default} ({known})"))
}
