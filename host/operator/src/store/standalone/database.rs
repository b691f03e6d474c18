//! The state of a standalone operator, in SQLite.
//!
//! One process writes; `get` and `describe` of others read beside it (write-ahead log). A write is durable when it
//! returns (`synchronous=FULL`): the id of an instance must be on the disk before the instance is made.

use std::path::Path;
use std::time::Duration;

use proxy_operator_core::proxy::Event;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use crate::store::{Key, Kind, Next};

/// The name of the file in the state folder.
pub const FILE_NAME: &str = "state.db";

/// How long a reader or writer waits for another one: they hold the lock for microseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How many events are kept for one object, the newest.
const EVENTS_PER_OBJECT: u32 = 50;

/// The version of the tables, `PRAGMA user_version`.
const SCHEMA_VERSION: u32 = 1;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS object (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    resource_version INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) STRICT;
CREATE TABLE IF NOT EXISTS fault (
    place TEXT NOT NULL PRIMARY KEY,
    kind TEXT, namespace TEXT, name TEXT,
    message TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS event (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    reason TEXT NOT NULL, message TEXT NOT NULL, warning INTEGER NOT NULL,
    count INTEGER NOT NULL, first TEXT NOT NULL, last TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name, reason, message)
) STRICT;
CREATE TABLE IF NOT EXISTS next (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    message TEXT NOT NULL, until TEXT, probe TEXT,
    PRIMARY KEY (kind, namespace, name)
) STRICT;
";

/// An event as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The event.
    pub event: Event,
    /// How often it came.
    pub count: u32,
    /// When it came first, RFC 3339.
    pub first: String,
    /// When it came last, RFC 3339.
    pub last: String,
}

/// A manifest that says nothing usable of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// File and line.
    pub place: String,
    /// The object, where that could be read.
    pub key: Option<Key>,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// The open database.
pub struct Database {
    connection: Connection,
}

/// The result of the database.
pub type Result<T> = rusqlite::Result<T>;

// === impl Database ===

impl Database {
    /// Opens the database of a state folder for writing, and makes it when it is not there.
    ///
    /// # Errors
    /// When the file cannot be opened, or was written by a newer version.
    pub fn open(folder: &Path) -> Result<Self> {
        let connection = Connection::open(folder.join(FILE_NAME))?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let version = version(&connection)?;
        if version > SCHEMA_VERSION {
            return Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_SCHEMA),
                Some(format!("{FILE_NAME} has version {version}; this program writes {SCHEMA_VERSION}")),
            ));
        }
        connection.execute_batch(SCHEMA)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        Ok(Self { connection })
    }

    /// Opens the database of a state folder for reading, beside a process that writes.
    ///
    /// `None`: nothing was written yet.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open_read_only(folder: &Path) -> Result<Option<Self>> {
        let file = folder.join(FILE_NAME);
        if !file.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Set last, when all tables are there.
        Ok((version(&connection)? > 0).then_some(Self { connection }))
    }

    /// All objects of a kind, as JSON, in the order of namespace and name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn objects(&self, kind: Kind) -> Result<Vec<String>> {
        let mut statement =
            self.connection.prepare_cached("SELECT body FROM object WHERE kind = ?1 ORDER BY namespace, name")?;
        statement.query_map([kind.as_str()], |row| row.get(0))?.collect()
    }

    /// Writes an object.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn put_object(&self, key: &Key, resource_version: u64, body: &str) -> Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO object (kind, namespace, name, resource_version, body) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET resource_version = ?4, body = ?5",
            )?
            .execute(params![key.kind.as_str(), key.namespace, key.name, resource_version.cast_signed(), body])?;
        Ok(())
    }

    /// Forgets an object and what is kept beside it; its events stay for a while.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn delete_object(&self, key: &Key) -> Result<()> {
        for table in ["object", "next"] {
            let sql = format!("DELETE FROM {table} WHERE kind = ?1 AND namespace = ?2 AND name = ?3");
            self.connection.prepare_cached(&sql)?.execute(params![key.kind.as_str(), key.namespace, key.name])?;
        }
        Ok(())
    }

    /// The newest resource version that was ever written.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn newest_resource_version(&self) -> Result<u64> {
        let newest: Option<i64> =
            self.connection.query_row("SELECT max(resource_version) FROM object", [], |row| row.get(0))?;
        Ok(newest.unwrap_or_default().cast_unsigned())
    }

    /// Replaces all faults of manifests.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn put_faults(&mut self, faults: &[Fault]) -> Result<()> {
        let transaction = self.connection.transaction()?;
        transaction.execute("DELETE FROM fault", [])?;
        for Fault { place, key, message } in faults {
            transaction.execute(
                "INSERT OR REPLACE INTO fault (place, kind, namespace, name, message) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    place,
                    key.as_ref().map(|key| key.kind.as_str()),
                    key.as_ref().map(|key| &key.namespace),
                    key.as_ref().map(|key| &key.name),
                    message
                ],
            )?;
        }
        transaction.commit()
    }

    /// All faults of manifests, in the order of their places.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn faults(&self) -> Result<Vec<Fault>> {
        let mut statement =
            self.connection.prepare_cached("SELECT place, kind, namespace, name, message FROM fault ORDER BY place")?;
        statement
            .query_map([], |row| Ok(Fault { place: row.get(0)?, key: optional_key(row, 1)?, message: row.get(4)? }))?
            .collect()
    }

    /// Adds an event, or counts it when it came before, and drops the oldest of the object.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn add_event(&self, key: &Key, event: &Event, now: &str) -> Result<()> {
        let (kind, namespace, name) = (key.kind.as_str(), &key.namespace, &key.name);
        self.connection
            .prepare_cached(
                "INSERT INTO event (kind, namespace, name, reason, message, warning, count, first, last)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?7)
                 ON CONFLICT DO UPDATE SET count = count + 1, last = ?7",
            )?
            .execute(params![kind, namespace, name, event.reason, event.message, event.warning, now])?;
        self.connection
            .prepare_cached(
                "DELETE FROM event WHERE rowid IN (
                     SELECT rowid FROM event WHERE kind = ?1 AND namespace = ?2 AND name = ?3
                     ORDER BY last DESC, rowid DESC LIMIT -1 OFFSET ?4)",
            )?
            .execute(params![kind, namespace, name, EVENTS_PER_OBJECT])?;
        Ok(())
    }

    /// The events of an object, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn events(&self, key: &Key) -> Result<Vec<RecordedEvent>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT reason, message, warning, count, first, last FROM event
             WHERE kind = ?1 AND namespace = ?2 AND name = ?3 ORDER BY last, rowid",
        )?;
        statement
            .query_map(params![key.kind.as_str(), key.namespace, key.name], |row| {
                Ok(RecordedEvent {
                    event: Event { reason: row.get(0)?, message: row.get(1)?, warning: row.get(2)? },
                    count: row.get(3)?,
                    first: row.get(4)?,
                    last: row.get(5)?,
                })
            })?
            .collect()
    }

    /// Notes what an object does next.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub fn put_next(&self, key: &Key, next: &Next) -> Result<()> {
        let Next { message, until, probe } = next;
        self.connection
            .prepare_cached(
                "INSERT INTO next (kind, namespace, name, message, until, probe) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT DO UPDATE SET message = ?4, until = ?5, probe = ?6",
            )?
            .execute(params![
                key.kind.as_str(),
                key.namespace,
                key.name,
                message,
                until.map(|until| until.to_string()),
                probe
            ])?;
        Ok(())
    }

    /// What an object does next.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn next(&self, key: &Key) -> Result<Option<Next>> {
        self.connection
            .prepare_cached("SELECT message, until, probe FROM next WHERE kind = ?1 AND namespace = ?2 AND name = ?3")?
            .query_row(params![key.kind.as_str(), key.namespace, key.name], |row| {
                let until: Option<String> = row.get(1)?;
                Ok(Next { message: row.get(0)?, until: until.and_then(|until| until.parse().ok()), probe: row.get(2)? })
            })
            .optional()
    }
}

fn version(connection: &Connection) -> Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn optional_key(row: &Row<'_>, first: usize) -> Result<Option<Key>> {
    let kind: Option<String> = row.get(first)?;
    let (namespace, name): (Option<String>, Option<String>) = (row.get(first + 1)?, row.get(first + 2)?);
    let kind = match kind.as_deref() {
        Some("Provider") => Kind::Provider,
        Some("Proxy") => Kind::Proxy,
        _ => return Ok(None),
    };
    Ok(name.map(|name| Key { kind, namespace: namespace.unwrap_or_default(), name }))
}
