//! Words in errors that PandaStack's clients interpret.
//!
//! They read a 5xx with "timeout" as a command's timeout, and some phrases make them retry. So only the error of a
//! command that timed out may have that word.

use crate::error::{ApiError, COMMAND_TIMEOUT};

const TRIGGERS: [(&str, &str); 5] = [
    ("i/o timeout", "no answer"),
    ("deadline exceeded", "too late"),
    ("timeout", "time limit"),
    ("connect: connection refused", "connection refused"),
    ("no route to host", "no route"),
];

/// Replaces words that the clients would misinterpret.
pub(super) fn remove_trigger_words(error: &mut ApiError) {
    if !error.status.is_server_error() || error.code == COMMAND_TIMEOUT {
        return;
    }
    for (trigger, instead) in TRIGGERS {
        while let Some(at) = error.message.to_ascii_lowercase().find(trigger) {
            error.message.replace_range(at..at + trigger.len(), instead);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn only_a_commands_deadline_speaks_of_a_timeout() {
        let filtered = |mut error: ApiError| {
            remove_trigger_words(&mut error);
            error.message
        };
        let other =
            ApiError::new(StatusCode::BAD_GATEWAY, "x", "QMP Timeout; i/o timeout; connect: connection refused");
        assert_eq!(filtered(other), "QMP time limit; no answer; connection refused");
        assert_eq!(filtered(ApiError::command_timeout(10.0)), "command timeout after 10s");
        assert_eq!(filtered(ApiError::command_timeout(1.5)), "command timeout after 1.5s");
    }
}
