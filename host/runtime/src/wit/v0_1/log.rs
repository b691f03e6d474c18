//! `log`, and how a denial becomes an error.

use tracing::Level;

use super::imports::{log, types};
use super::lower::error;
use crate::guest_log;
use crate::store::{Denied, State};

impl types::Host for State {
    fn convert_error(&mut self, denied: Denied) -> wasmtime::Result<types::Error> {
        match denied {
            Denied::Answer(answer) => Ok(error(answer)),
            Denied::End(ended) => Err(ended.into()),
        }
    }
}

impl log::Host for State {
    fn enabled(&mut self, at: log::Level) -> wasmtime::Result<bool> {
        Ok(guest_log::enabled(level(at)))
    }

    fn log(&mut self, at: log::Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        guest_log::write(&self.watch, level(at), &message, &fields);
        Ok(())
    }

    fn fatal(&mut self, message: String) -> wasmtime::Result<()> {
        self.watch.fatal(&message);
        Ok(())
    }
}

fn level(level: log::Level) -> Level {
    match level {
        log::Level::Trace => Level::TRACE,
        log::Level::Debug => Level::DEBUG,
        log::Level::Info => Level::INFO,
        log::Level::Warn => Level::WARN,
        log::Level::Error => Level::ERROR,
    }
}
