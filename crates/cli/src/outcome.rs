//! Exit codes, and how an error is told.

use std::error::Error as StdError;
use std::io;
use std::process::ExitCode;

use anyhow::Error;

use crate::client::ClientError;
use crate::show;

/// What was asked for was right, and did not work.
pub const FAILED: u8 = 1;
/// Something was wrong with what was asked, or with this host; nothing was run.
pub const REFUSED: u8 = 2;
/// The guest died under the code.
pub const GUEST_DIED: u8 = 70;
/// The code printed more than it may.
pub const OUTPUT_LIMIT: u8 = 125;
/// The code's time was up.
pub const TIMEOUT: u8 = 124;
/// Ended by Ctrl-C, as a shell would say it.
pub const INTERRUPTED: u8 = 130;
/// Ended by SIGTERM, as a shell would say it.
pub const TERMINATED: u8 = 143;
/// Whoever read our output went away, as a shell would say it.
pub const BROKEN_PIPE: u8 = 141;

/// Marks an error as a failure: nothing was wrong with what was asked.
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

/// Whoever read our output has stopped. There is nobody to tell.
#[derive(Debug, thiserror::Error)]
#[error("stdout is closed")]
pub struct OutputClosed;

/// Why something could not be printed.
pub fn unprintable(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => OutputClosed.into(),
        _ => Failure::new("the output cannot be written", error).into(),
    }
}

/// Tells an error in one sentence, causes included, and gives the exit code for it.
pub fn failed(error: &Error) -> ExitCode {
    if error.is::<OutputClosed>() {
        return ExitCode::from(BROKEN_PIPE);
    }
    // Somebody else may have said part of it: a guest, a model's server.
    eprintln!("sandling: {}", show::harmless(&sentence(error)));
    ExitCode::from(code(error))
}

/// A command's exit code as ours, whatever ended it.
pub fn exit_code(code: i32, reason: &str) -> u8 {
    match reason {
        "timeout" => TIMEOUT,
        "output_limit" => OUTPUT_LIMIT,
        _ => u8::try_from(code & 0xff).unwrap_or(FAILED),
    }
}

fn code(error: &Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Failure>() {
            return FAILED;
        }
        if let Some(error) = cause.downcast_ref::<ClientError>() {
            return if error.is_refusal() { REFUSED } else { FAILED };
        }
    }
    REFUSED
}

/// An error and its causes, each said once.
pub fn sentence(error: &Error) -> String {
    chain(error.as_ref())
}

/// The same for an error that is somebody else's.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source()) {
        let text = cause.to_string();
        if parts.last().is_none_or(|last| !last.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_only_repeats_is_left_out() {
        let error = anyhow::anyhow!("no such file").context("cannot read `x`: no such file").context("start");
        assert_eq!(sentence(&error), "start: cannot read `x`: no such file");
    }

    #[test]
    fn refusals_are_two_and_failures_are_one() {
        assert_eq!(code(&anyhow::anyhow!("a wrong word")), REFUSED);
        assert_eq!(code(&Error::from(ClientError::NoServer).context("ls")), REFUSED);
        assert_eq!(code(&Error::from(ClientError::Silent { seconds: 1 }).context("ls")), FAILED);
        assert_eq!(code(&Failure::new("x cannot be written", "no space").into()), FAILED);
    }
}
