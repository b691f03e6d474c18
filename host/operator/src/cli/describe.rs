//! `proxy-operator describe`: one object, its conditions, what happens next, its last events.

use jiff::Timestamp;
use proxy_operator_api::condition::Condition;
use proxy_operator_api::provider::CheckStatus;
use proxy_operator_api::{Provider, Proxy};

use super::folder::Folder;
use super::get::objects;
use super::render::{age, cell, duration, print, table};
use crate::store::standalone::database::{Database, RecordedEvent};
use crate::store::standalone::manifests::DEFAULT_NAMESPACE;
use crate::store::{Key, Kind};

/// Which object.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Its kind.
    #[arg(value_enum)]
    kind: What,
    /// Its name.
    name: String,
    /// Its namespace.
    #[arg(short, long, default_value = DEFAULT_NAMESPACE)]
    namespace: String,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    #[value(alias = "proxies", alias = "px")]
    Proxy,
    #[value(alias = "providers", alias = "pxp")]
    Provider,
}

/// Prints the object.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let database = arguments.folder.database()?;
    let now = Timestamp::now();
    let (key, mut text) = match arguments.kind {
        What::Proxy => {
            let key = Key::proxy(&arguments.namespace, &arguments.name);
            let proxies: Vec<Proxy> = objects(&database, Kind::Proxy)?;
            let proxy = proxies.iter().find(|proxy| Key::of_proxy(proxy) == key);
            let text = proxy.map(|proxy| describe_proxy(proxy, now));
            (key, text)
        }
        What::Provider => {
            let key = Key::provider(&arguments.name);
            let providers: Vec<Provider> = objects(&database, Kind::Provider)?;
            let provider = providers.iter().find(|provider| Key::of_provider(provider) == key);
            (key, provider.map(|provider| describe_provider(provider, now)))
        }
    };
    let faults: Vec<String> = database
        .faults()?
        .into_iter()
        .filter(|fault| fault.key.as_ref() == Some(&key))
        .map(|fault| format!("  {}: {}\n", fault.place, fault.message))
        .collect();
    if !faults.is_empty() {
        text.get_or_insert_default().push_str(&format!("\nManifest refused\n{}", faults.concat()));
    }
    let Some(mut text) = text else { anyhow::bail!("there is no {key}") };
    text.push_str(&next(&database, &key, now)?);
    text.push_str(&events(&database.events(&key)?, now));
    print(&text)
}

fn describe_proxy(proxy: &Proxy, now: Timestamp) -> String {
    let status = proxy.status.clone().unwrap_or_default();
    let field = |name: &str, value: Option<&str>| format!("{name:<13} {}\n", cell(value));
    let mut text = String::new();
    text.push_str(&field("Name", proxy.metadata.name.as_deref()));
    text.push_str(&field("Namespace", proxy.metadata.namespace.as_deref()));
    text.push_str(&field("Provider", Some(&proxy.spec.provider)));
    text.push_str(&field("Machine type", proxy.spec.machine_type.as_deref()));
    text.push_str(&field("Image", proxy.spec.image.as_deref()));
    text.push_str(&field("Phase", Some(status.phase.as_str())));
    text.push_str(&field("Instance", status.provider_id.as_deref()));
    text.push_str(&field("Endpoint", status.endpoint.as_deref()));
    text.push_str(&field("Egress", status.egress_ip.as_deref()));
    if let Some(deletion) = &proxy.metadata.deletion_timestamp {
        text.push_str(&field("Deleted", Some(&format!("{} ago", age(Some(deletion.0), now)))));
    }
    text.push_str(&conditions(&status.conditions, now));
    text
}

fn describe_provider(provider: &Provider, now: Timestamp) -> String {
    let status = provider.status.clone().unwrap_or_default();
    let mut text = format!("{:<13} {}\n", "Name", cell(provider.metadata.name.as_deref()));
    if let Some(plugin) = &status.plugin {
        text.push_str(&format!(
            "{:<13} {} {} ({}), provider API {}\n",
            "Plugin", plugin.name, plugin.version, plugin.digest, plugin.wit
        ));
    }
    text.push_str(&conditions(&status.conditions, now));
    if !status.checks.is_empty() {
        let rows: Vec<Vec<String>> = status
            .checks
            .iter()
            .map(|CheckStatus { subject, healthy, reason, message }| {
                vec![format!("  {subject}"), healthy.to_string(), reason.clone(), message.clone()]
            })
            .collect();
        text.push_str(&format!("\nChecks\n{}", table(&["  PART", "HEALTHY", "REASON", "MESSAGE"], &rows)));
    }
    text
}

fn conditions(conditions: &[Condition], now: Timestamp) -> String {
    let rows: Vec<Vec<String>> = conditions
        .iter()
        .map(|condition| {
            vec![
                format!("  {}", condition.type_),
                condition.status.as_str().to_owned(),
                condition.reason.clone(),
                age(condition.last_transition_time.parse().ok(), now),
                condition.message.clone(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\nConditions\n{}", table(&["  TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], &rows))
}

fn next(database: &Database, key: &Key, now: Timestamp) -> anyhow::Result<String> {
    let Some(next) = database.next(key)? else { return Ok(String::new()) };
    let when = next.until.map(|until| {
        let seconds = until.as_second().saturating_sub(now.as_second());
        if seconds > 0 { format!("in {}: ", duration(seconds.unsigned_abs())) } else { "now: ".to_owned() }
    });
    let probe = next.probe.map(|probe| format!("Last probe    {probe}\n")).unwrap_or_default();
    Ok(format!("\nNext          {}{}\n{probe}", when.unwrap_or_default(), next.message))
}

fn events(events: &[RecordedEvent], now: Timestamp) -> String {
    let rows: Vec<Vec<String>> = events
        .iter()
        .map(|RecordedEvent { event, count, first: _, last }| {
            let kind = if event.warning { "Warning" } else { "Normal" };
            let times = if *count > 1 {
                format!("{} (x{count})", age(last.parse().ok(), now))
            } else {
                age(last.parse().ok(), now)
            };
            vec![format!("  {kind}"), event.reason.clone(), times, event.message.clone()]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\nEvents\n{}", table(&["  TYPE", "REASON", "AGE", "MESSAGE"], &rows))
}
