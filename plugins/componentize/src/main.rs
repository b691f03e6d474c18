//! Makes a component of a core module: `componentize MODULE COMPONENT`.
//!
//! The module carries its world in a custom section that wit-bindgen wrote. Of that world's imports the component
//! has those that the module uses, and no others.

use std::{env, fs};

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, component] = arguments.as_slice() else {
        bail!("usage: componentize MODULE COMPONENT");
    };
    let bytes = fs::read(module).with_context(|| format!("reading {module}"))?;
    let mut encoder = wit_component::ComponentEncoder::default();
    encoder.validate(true).module(&bytes).with_context(|| format!("reading the world of {module}"))?;
    let encoded = encoder.encode().with_context(|| format!("making a component of {module}"))?;
    fs::write(component, encoded).with_context(|| format!("writing {component}"))
}
