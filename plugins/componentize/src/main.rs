//! Makes a component of a core module: `componentize MODULE COMPONENT`. Prints what the component imports.
//!
//! The module carries its world in a custom section that wit-bindgen wrote. Of that world's imports the component
//! has those that the module uses, and no others.

use std::{env, fs};

use anyhow::{Context, bail};
use wit_component::ComponentEncoder;

#[allow(clippy::print_stdout)]
fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, component] = arguments.as_slice() else {
        bail!("usage: componentize MODULE COMPONENT");
    };
    let bytes = fs::read(module).with_context(|| format!("reading {module}"))?;
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true).module(&bytes).with_context(|| format!("reading the world of {module}"))?;
    let encoded = encoder.encode().with_context(|| format!("making a component of {module}"))?;
    println!("{component}: {} bytes, imports {}", encoded.len(), imports(&encoded)?);
    // Written beside and moved: who watches the folder never sees a part of it.
    let partial = format!("{component}.partial");
    fs::write(&partial, encoded).with_context(|| format!("writing {partial}"))?;
    fs::rename(&partial, component).with_context(|| format!("writing {component}"))
}

/// The names of a component's imports.
fn imports(component: &[u8]) -> anyhow::Result<String> {
    let decoded = wit_component::decode(component).context("reading the component back")?;
    let resolve = decoded.resolve();
    let world = resolve.worlds.iter().next().context("the component has no world")?.1;
    let names: Vec<String> = world.imports.keys().map(|key| resolve.name_world_key(key)).collect();
    Ok(names.join(", "))
}
