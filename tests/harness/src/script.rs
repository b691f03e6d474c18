//! Runs the scripts and reads the `KEY=value` lines they print.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// A script by its path under `tests/`.
pub(crate) fn script(path: &str) -> Command {
    let tests: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).components().collect();
    let mut command = Command::new(tests.parent().unwrap_or(Path::new("/")).join(path));
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end: its output, or an error with what it said.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !out.status.success() {
        bail!(
            "{command:?}: {}\n{}{}",
            out.status,
            String::from_utf8_lossy(&out.stderr),
            String::from_utf8_lossy(&out.stdout)
        );
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// `KEY=value` lines.
pub(crate) struct Vars(BTreeMap<String, String>);

impl Vars {
    pub(crate) fn parse(text: &str) -> Self {
        Self(
            text.lines()
                .filter_map(|line| line.split_once('='))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    pub(crate) fn get<T>(&self, key: &str) -> Result<T>
    where
        T: FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let value = self.0.get(key).with_context(|| format!("the script gave no {key}"))?;
        value.parse().with_context(|| format!("{key}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_and_names_what_is_missing() {
        let vars = Vars::parse("PORT=22\nURI=qemu:///system?socket=/x\n\nnothing\n");
        assert_eq!(vars.get::<u16>("PORT").unwrap(), 22);
        assert_eq!(vars.get::<String>("URI").unwrap(), "qemu:///system?socket=/x");
        assert!(vars.get::<u16>("URI").unwrap_err().to_string().starts_with("URI=qemu"));
        assert!(vars.get::<u16>("OTHER").unwrap_err().to_string().contains("OTHER"));
    }

    #[test]
    fn a_failed_script_says_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }
}
