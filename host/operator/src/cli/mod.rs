//! The command line.

mod describe;
mod folder;
mod get;
mod images;
mod render;
mod standalone;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::logging;

/// Forward proxies on any infrastructure, from Kubernetes objects or a folder of manifests.
#[derive(Debug, Parser)]
#[command(name = "proxy-operator", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run over a folder of manifests, without a cluster.
    Standalone(standalone::Arguments),
    /// Show the objects of a folder.
    Get(get::Arguments),
    /// Show one object with its conditions, what happens next, and its last events.
    Describe(describe::Arguments),
    /// Base images in the pools of the granted hypervisors.
    #[command(subcommand)]
    Images(images::Command),
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Runs the program.
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Standalone(arguments) => standalone::run(arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Describe(arguments) => describe::run(&arguments),
        Command::Images(command) => images::run(command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "proxy-operator", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            render::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// How a command logs.
#[derive(Clone, Debug, clap::Args)]
struct Logging {
    /// How log lines are written, to standard error.
    #[arg(long, env = "PROXY_OPERATOR_LOG_FORMAT", default_value = "auto", value_enum)]
    log_format: logging::Format,
    /// Which log lines are written: a level, or `info,libvirt=debug` for libvirt's calls too. Default: `info`, and
    /// `warn` for commands that end by themselves.
    #[arg(long, env = "PROXY_OPERATOR_LOG")]
    log: Option<String>,
}

// === impl Logging ===

impl Logging {
    fn start(&self, default: &str) -> anyhow::Result<()> {
        logging::start(self.log_format, self.log.as_deref().unwrap_or(default))
    }
}
