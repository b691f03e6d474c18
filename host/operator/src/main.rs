//! The program: see [`proxy_operator::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    proxy_operator::cli::main()
}
