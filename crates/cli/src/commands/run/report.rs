//! The result of a run, independent of where it ran.

use std::io::{self, Write};
use std::process::ExitCode;

use sandling_engine::scan::Finding;
use sandling_tools::MissingModule;
use serde::Serialize;
use serde_json::Value;

use super::refused::{self, Refused};
use crate::client::Stream;
use crate::options::Run;
use crate::{outcome, show};

/// How much of stderr is searched for a missing module.
const STDERR_END: usize = 2048;

/// What `--json` prints.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    #[serde(serialize_with = "lossy")]
    stdout: Vec<u8>,
    #[serde(serialize_with = "lossy")]
    stderr: Vec<u8>,
    /// The end of what was printed to stderr.
    #[serde(skip)]
    stderr_end: Vec<u8>,
    exit_code: u8,
    /// `exited`, `signalled`, `timeout`, `out_of_memory`, `output_limit` or `guest_died`.
    reason: String,
    pub duration_ms: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Finding>,
    /// With `--network learn`: the allow-list that covers the observed connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned: Option<Vec<String>>,
    /// Connections that the network policy refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The sandbox as the API returned it after creation.
    pub sandbox: Value,
}

fn lossy<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

impl Report {
    /// Handles output of the code: collects it with `--json`, otherwise prints it.
    pub fn print(&mut self, stream: Stream, bytes: &[u8], options: &Run) -> io::Result<()> {
        if stream == Stream::Stderr {
            self.stderr_end.extend_from_slice(bytes);
            let surplus = self.stderr_end.len().saturating_sub(STDERR_END);
            self.stderr_end.drain(..surplus);
        }
        match (stream, options.json) {
            (Stream::Stderr, true) => self.stderr.extend_from_slice(bytes),
            (Stream::Stdout, true) => self.stdout.extend_from_slice(bytes),
            (stream, false) => print_output(stream, bytes)?,
        }
        Ok(())
    }

    pub fn ended(&mut self, code: i32, reason: &str) {
        self.exit_code = outcome::exit_code(code, reason);
        self.reason = reason.to_owned();
    }

    pub fn guest_died(&mut self, why: &str, options: &Run) {
        self.exit_code = outcome::GUEST_DIED;
        self.reason = "guest_died".to_owned();
        if !options.json {
            eprintln!("sandling: {why}");
        }
    }

    pub fn finish(&self, options: &Run) -> anyhow::Result<ExitCode> {
        if options.json {
            show::json(self)?;
            return Ok(ExitCode::from(self.exit_code));
        }
        if let Some(learned) = &self.learned {
            let words: String = learned.iter().map(|entry| format!(" --allow {entry}")).collect();
            let words = if words.is_empty() { " none needed" } else { &words };
            eprintln!("sandling: these options allow the observed connections:{words}");
        }
        refused::print(&self.refused);
        if self.exit_code != 0
            && let Some(module) = MissingModule::in_stderr(&String::from_utf8_lossy(&self.stderr_end))
        {
            eprintln!("sandling: hint: {}", module_hint(&module, self.sandbox["template"].as_str()));
        }
        print_limit(&self.reason, options.timeout, Some(options.output_limit));
        if options.verbose {
            eprintln!(
                "sandling: {:.0} ms in total, {} ms to start the sandbox, accelerator {}",
                self.duration_ms,
                self.sandbox["boot_ms"],
                self.sandbox["boundary"]["accelerator"].as_str().unwrap_or("unknown")
            );
        }
        Ok(ExitCode::from(self.exit_code))
    }
}

/// What to do about a module that a sandbox of this template lacks.
fn module_hint(module: &MissingModule<'_>, used: Option<&str>) -> String {
    let (name, package) = (module.name, module.package());
    match module.template.filter(|template| used != Some(template)) {
        Some(template) => format!("the template {template} has {name}; use --template {template}, or --pip {package}"),
        // A stranger may have published a package with the name of the user's own file.
        None => format!(
            "if {name} is a package of PyPI, --pip {package} installs it; if it is a file of yours, --files DIR copies it"
        ),
    }
}

/// Prints a command's output immediately.
pub fn print_output(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stderr => io::stderr().write_all(bytes),
        Stream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
    }
}

/// Prints which limit stopped a command, if any.
pub fn print_limit(reason: &str, timeout: u64, output_limit: Option<u64>) {
    match (reason, output_limit) {
        ("timeout", _) => eprintln!("sandling: timeout after {timeout} s"),
        ("out_of_memory", _) => eprintln!("sandling: out of memory"),
        ("cpu_limit", _) => eprintln!("sandling: the limit of CPU time is reached"),
        ("disk_limit", _) => eprintln!("sandling: the limit of disk space is reached"),
        ("output_limit", Some(limit)) => eprintln!("sandling: output limit of {limit} bytes reached"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_is_found_in_a_template_or_on_pypi() {
        let hint = |name: &str, used: &str| {
            let stderr = format!("ModuleNotFoundError: No module named '{name}'\n");
            module_hint(&MissingModule::in_stderr(&stderr).unwrap(), Some(used))
        };
        assert!(hint("pandas", "base").starts_with("the template code-interpreter has pandas"));
        assert!(hint("PIL", "code-interpreter").contains("--pip pillow"));
        assert!(hint("httpx", "code-interpreter").contains("--pip httpx"));
    }
}
