//! Exit codes, and how an error is told.

use std::process::ExitCode;

use anyhow::Error;

/// Something was wrong with what was asked, or with this host; nothing was run.
pub const REFUSED: u8 = 2;
/// The guest died under the code.
pub const GUEST_DIED: u8 = 70;
/// The code printed more than it may.
pub const OUTPUT_LIMIT: u8 = 125;
/// The code's time was up.
pub const TIMEOUT: u8 = 124;

/// Tells an error in one sentence, causes included, and gives the exit code for it.
pub fn failed(error: &Error) -> ExitCode {
    eprintln!("sandling: {}", sentence(error));
    ExitCode::from(REFUSED)
}

/// An error and its causes, each said once.
pub fn sentence(error: &Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
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
}
