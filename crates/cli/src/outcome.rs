//! Exit codes and error messages.

use std::error::Error as StdError;
use std::io;
use std::process::ExitCode;

use anyhow::Error;
use sandling_engine::with_causes;

use crate::client::ClientError;
use crate::terminal::sanitize;

/// The request was valid but failed.
pub const FAILED: u8 = 1;
/// The request or this host's setup is invalid; nothing was run.
pub const REFUSED: u8 = 2;
/// The guest died while the code ran.
pub const GUEST_DIED: u8 = 70;
/// The code exceeded its output limit.
pub const OUTPUT_LIMIT: u8 = 125;
/// The code exceeded its timeout.
pub const TIMEOUT: u8 = 124;
/// The code exceeded its CPU time; what a shell reports for SIGXCPU.
pub const CPU_LIMIT: u8 = 152;
/// The code exceeded its disk space; what a shell reports for SIGXFSZ.
pub const DISK_LIMIT: u8 = 153;
/// The program to run does not exist; the code that a shell reports.
pub const NO_PROGRAM: u8 = 127;
/// Stopped by Ctrl-C; the code that a shell reports.
pub const INTERRUPTED: u8 = 130;
/// Stopped by SIGTERM; the code that a shell reports.
pub const TERMINATED: u8 = 143;
/// The reader of our stdout is gone; the code that a shell reports for SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;

/// Marks an error as a failure of a valid request.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    what: String,
    source: Box<dyn StdError + Send + Sync>,
}

impl Failure {
    pub fn new(what: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}

/// The reader of our stdout is gone, so there is no message to print.
#[derive(Debug, thiserror::Error)]
#[error("stdout is closed")]
pub struct OutputClosed;

/// Converts an error of writing to stdout.
pub fn stdout_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => OutputClosed.into(),
        _ => Failure::new("cannot write to stdout", error).into(),
    }
}

/// Prints an error with its causes on one line and returns the exit code for it.
pub fn report_error(error: &Error) -> ExitCode {
    if error.is::<OutputClosed>() {
        return ExitCode::from(BROKEN_PIPE);
    }
    // Parts of the text may come from an untrusted source: a guest or a model's server.
    eprintln!("sandling: {}", sanitize(&with_causes(error.as_ref())));
    ExitCode::from(code(error))
}

/// Converts a command's exit code and end reason to our exit code.
pub fn exit_code(code: i32, reason: &str) -> u8 {
    match reason {
        "timeout" => TIMEOUT,
        "output_limit" => OUTPUT_LIMIT,
        "cpu_limit" => CPU_LIMIT,
        "disk_limit" => DISK_LIMIT,
        _ => u8::try_from(code & 0xff).unwrap_or(FAILED),
    }
}

fn code(error: &Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Failure>() {
            return FAILED;
        }
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            if error.is_no_program() {
                return NO_PROGRAM;
            }
            return if error.is_refusal() { REFUSED } else { FAILED };
        }
    }
    REFUSED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_exit_with_2_and_failures_with_1() {
        assert_eq!(code(&anyhow::anyhow!("invalid option")), REFUSED);
        assert_eq!(code(&Error::from(ClientError::NoServer).context("ls")), REFUSED);
        assert_eq!(code(&Error::from(ClientError::Unresponsive { seconds: 1 }).context("ls")), FAILED);
        let missing =
            serde_json::json!({ "status": 400, "code": "cannot_start", "error": "nosuch: command not found" });
        assert_eq!(code(&Error::from(ClientError::from_body(missing))), NO_PROGRAM);
        assert_eq!(code(&Failure::new("x cannot be written", "no space").into()), FAILED);
    }
}
