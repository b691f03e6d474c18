//! `proxy-operator get`: objects as a table, as YAML or as JSON.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use proxy_operator_api::condition::{self, Condition};
use proxy_operator_api::{Provider, Proxy};
use serde_json::{Value, json};

use super::folder::Folder;
use super::render::{age, cell, print, table};
use crate::store::Kind;
use crate::store::standalone::database::{Database, Fault};

/// Between two looks of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// What to show, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Which objects.
    #[arg(default_value = "all", value_enum)]
    what: What,
    /// One of them.
    name: Option<String>,
    #[command(flatten)]
    folder: Folder,
    /// Only this namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    /// As what.
    #[arg(short, long, default_value = "table", value_enum)]
    output: Output,
    /// Go on, and print what changes.
    #[arg(short, long)]
    watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    All,
    #[value(alias = "proxy", alias = "px")]
    Proxies,
    #[value(alias = "provider", alias = "pxp")]
    Providers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Yaml,
    Json,
}

/// Prints what is asked for.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let database = arguments.folder.database()?;
    let mut last = String::new();
    loop {
        let shown = show(&database, arguments)?;
        if shown != last {
            print(&shown)?;
            last = shown;
        }
        if !arguments.watch {
            return Ok(());
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

fn show(database: &Database, arguments: &Arguments) -> anyhow::Result<String> {
    let name = arguments.name.as_deref();
    let mut providers: Vec<Provider> = objects(database, Kind::Provider)?;
    let mut proxies: Vec<Proxy> = objects(database, Kind::Proxy)?;
    providers.retain(|provider| name.is_none_or(|name| provider.metadata.name.as_deref() == Some(name)));
    proxies.retain(|proxy| {
        let namespace = arguments.namespace.as_deref();
        name.is_none_or(|name| proxy.metadata.name.as_deref() == Some(name))
            && namespace.is_none_or(|namespace| proxy.metadata.namespace.as_deref() == Some(namespace))
    });
    match arguments.what {
        What::All => {}
        What::Proxies => providers.clear(),
        What::Providers => proxies.clear(),
    }
    if let Some(name) = name
        && providers.is_empty()
        && proxies.is_empty()
        && !arguments.watch
    {
        anyhow::bail!("there is no object {name}");
    }
    if arguments.output == Output::Table {
        let faults = database.faults()?;
        return Ok(tables(arguments, &providers, &proxies, &faults));
    }
    let mut items = vec![];
    for provider in &providers {
        items.push(serde_json::to_value(provider)?);
    }
    for proxy in &proxies {
        items.push(serde_json::to_value(proxy)?);
    }
    let shown = match (name, items.len()) {
        (Some(_), 1) => items.pop().unwrap_or_default(),
        _ => json!({"apiVersion": "v1", "kind": "List", "items": items}),
    };
    serialize(&shown, arguments.output)
}

fn serialize(value: &Value, output: Output) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
        Output::Yaml | Output::Table => serde_saphyr::to_string(value)?,
    })
}

fn tables(arguments: &Arguments, providers: &[Provider], proxies: &[Proxy], faults: &[Fault]) -> String {
    let now = Timestamp::now();
    let mut parts = vec![];
    if arguments.what != What::Proxies && !providers.is_empty() {
        let rows: Vec<Vec<String>> = providers.iter().map(|provider| provider_row(provider, now)).collect();
        parts.push(table(&["PROVIDER", "PLUGIN", "LOADED", "HEALTHY", "REASON", "AGE"], &rows));
    }
    if arguments.what != What::Providers && !proxies.is_empty() {
        let header = ["NAMESPACE", "NAME", "PHASE", "PROVIDER", "ENDPOINT", "HEALTHY", "AGE", "STATUS"];
        let rows: Vec<Vec<String>> = proxies.iter().map(|proxy| proxy_row(proxy, now)).collect();
        parts.push(table(&header, &rows));
    }
    if !faults.is_empty() {
        let rows: Vec<Vec<String>> = faults
            .iter()
            .map(|Fault { place, key, message }| {
                vec![place.clone(), cell(key.as_ref().map(ToString::to_string).as_deref()), message.clone()]
            })
            .collect();
        parts.push(table(&["MANIFEST", "OBJECT", "FAULT"], &rows));
    }
    if parts.is_empty() {
        return format!("no objects in {}\n", arguments.folder.manifests().display());
    }
    parts.join("\n")
}

fn provider_row(provider: &Provider, now: Timestamp) -> Vec<String> {
    let status = provider.status.clone().unwrap_or_default();
    let holds =
        |type_: &str| cell(condition::find(&status.conditions, type_).map(|condition| condition.status.as_str()));
    // The first that does not hold says what is wrong.
    let cause = status.conditions.iter().find(|condition| condition.status != condition::ConditionStatus::True);
    vec![
        cell(provider.metadata.name.as_deref()),
        cell(Some(&provider.spec.plugin.name)),
        holds("Loaded"),
        holds("Healthy"),
        cell(cause.map(|condition| format!("{}: {}", condition.reason, condition.message)).as_deref()),
        age(provider.metadata.creation_timestamp.as_ref().map(|time| time.0), now),
    ]
}

fn proxy_row(proxy: &Proxy, now: Timestamp) -> Vec<String> {
    let status = proxy.status.clone().unwrap_or_default();
    let healthy = condition::find(&status.conditions, "Healthy");
    vec![
        cell(proxy.metadata.namespace.as_deref()),
        cell(proxy.metadata.name.as_deref()),
        status.phase.as_str().to_owned(),
        cell(Some(&proxy.spec.provider)),
        cell(status.endpoint.as_deref()),
        cell(healthy.map(|condition| condition.status.as_str())),
        age(proxy.metadata.creation_timestamp.as_ref().map(|time| time.0), now),
        cell(condition::find(&status.conditions, "Ready").and_then(said).as_deref()),
    ]
}

/// Why it is not ready, in words.
fn said(ready: &Condition) -> Option<String> {
    (ready.status != condition::ConditionStatus::True).then(|| format!("{}: {}", ready.reason, ready.message))
}

/// All objects of a kind.
pub(super) fn objects<T: serde::de::DeserializeOwned>(database: &Database, kind: Kind) -> anyhow::Result<Vec<T>> {
    let bodies = database.objects(kind)?;
    bodies
        .iter()
        .map(|body| serde_json::from_str(body).with_context(|| format!("a {} in the state folder", kind.as_str())))
        .collect()
}
