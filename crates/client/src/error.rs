//! Errors of the client. Each message says what to do next.

use std::error::Error;

use hyper::StatusCode;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no server is running; start one with `sandling serve`, or set SANDLING_API to the address of another server"
    )]
    NoServer,
    #[error(
        "SANDLING_API is {0:?}, which is not a valid address; use one such as http://127.0.0.1:8080 or https://example.org"
    )]
    BadAddress(String),
    #[error(
        "the server at {address} needs a token; set SANDLING_TOKEN to one that its owner created with `sandling token create`"
    )]
    NoToken { address: String },
    #[error("the local server did not start; its log says: {log}")]
    NotStarted { log: String },
    #[error("SANDLING_TOKEN is not a valid token: it contains characters that tokens never have")]
    BadToken,
    #[error("cannot load this system's certificates")]
    Certificates(#[source] Box<dyn Error + Send + Sync>),
    #[error("cannot read {what}")]
    Home { what: &'static str, source: std::io::Error },
    #[error("cannot reach the server at {address} ({why}); check that it is running")]
    Unreachable { address: String, why: String },
    #[error("the connection to the server was lost")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    #[error("the server has not responded for {seconds} s; check that it is running and reachable")]
    Unresponsive { seconds: u64 },
    #[error("unexpected response from the server ({0}); check that it is a Sandling server of this version")]
    UnexpectedResponse(String),
    #[error("{message}{}", hint(.code, *.status, *.retry_after))]
    Refused {
        status: StatusCode,
        code: String,
        message: String,
        retry_after: Option<u64>,
        /// The complete response. It may contain the output until a timeout.
        body: Value,
    },
    #[error("sandbox {0:?} does not exist; `sandling ls` lists your sandboxes")]
    NoSandbox(String),
    #[error("snapshot {0:?} does not exist; `sandling snapshot ls` lists your snapshots")]
    NoSnapshot(String),
    #[error("the sandbox has no command {0:?}; `sandling execs` lists its commands")]
    NoExec(String),
    #[error("{count} {what} match {prefix:?}; use a longer prefix of the ID")]
    Ambiguous { what: &'static str, prefix: String, count: usize },
}

impl ClientError {
    /// Whether the request itself is at fault, so that a retry cannot succeed.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NoServer
            | Self::BadAddress(_)
            | Self::NoToken { .. }
            | Self::BadToken
            | Self::NoSandbox(_)
            | Self::NoSnapshot(_)
            | Self::NoExec(_)
            | Self::Ambiguous { .. } => true,
            Self::Refused { status, .. } => status.is_client_error(),
            Self::Certificates(_)
            | Self::NotStarted { .. }
            | Self::Home { .. }
            | Self::Unreachable { .. }
            | Self::Broken(_)
            | Self::Unresponsive { .. }
            | Self::UnexpectedResponse(_) => false,
        }
    }

    /// The server answered that the object does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// The sandbox exists, but the file or its directory does not.
    pub fn is_no_file(&self) -> bool {
        matches!(self, Self::Refused { code, message, .. }
            if code == "not_a_directory" || (code == "not_found" && message != "sandbox not found"))
    }

    /// The sandbox existed and has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "sandbox_ended")
    }

    /// The sandbox lacks what this needs, such as tar.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "unsupported")
    }

    /// The program of a command does not exist. A missing working directory has the same code, and another message.
    pub fn is_no_program(&self) -> bool {
        let missing = |message: &str| message.ends_with(": command not found");
        matches!(self, Self::Refused { code, message, .. } if code == "cannot_start" && missing(message))
    }

    pub fn is_guest_death(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == GUEST_DIED)
    }

    /// An error that the server reports after accepting the request: over a WebSocket or in an event.
    pub fn from_body(body: Value) -> Self {
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let status = body["status"].as_u64().and_then(|status| StatusCode::from_u16(status.try_into().ok()?).ok());
        let (code, message) = (text("code"), text("error"));
        Self::Refused { status: status.unwrap_or(StatusCode::BAD_GATEWAY), code, message, retry_after: None, body }
    }

    pub fn broken(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Broken(source.into())
    }
}

const GUEST_DIED: &str = "guest_died";

/// Suggests the command that helps, if there is one.
fn hint(code: &str, status: StatusCode, retry_after: Option<u64>) -> String {
    let hint = match code {
        "sandbox_paused" => "`sandling resume` resumes it",
        "template_not_built" | "template_damaged" => "`sandling template build` builds it",
        "template_unknown" => "`sandling template ls` lists the existing ones",
        "quota_exceeded" => "`sandling quota` shows the usage",
        _ if status == StatusCode::UNAUTHORIZED => "set SANDLING_TOKEN to a valid token",
        _ => "",
    };
    match (hint, retry_after) {
        ("", None) => String::new(),
        ("", Some(seconds)) => format!("; retry in {seconds} s"),
        (hint, None) => format!("; {hint}"),
        (hint, Some(seconds)) => format!("; {hint}, or retry in {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: StatusCode, code: &str, retry_after: Option<u64>) -> ClientError {
        ClientError::Refused { status, code: code.to_owned(), message: "no".to_owned(), retry_after, body: Value::Null }
    }

    #[test]
    fn refusals_suggest_what_to_do() {
        let paused = refused(StatusCode::CONFLICT, "sandbox_paused", None);
        assert_eq!(paused.to_string(), "no; `sandling resume` resumes it");
        let full = refused(StatusCode::SERVICE_UNAVAILABLE, "no_capacity", Some(5));
        assert_eq!(full.to_string(), "no; retry in 5 s");
        assert!(refused(StatusCode::UNAUTHORIZED, "token_revoked", None).to_string().contains("SANDLING_TOKEN"));
    }

    #[test]
    fn refusals_are_distinguished_from_failures() {
        assert!(refused(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", None).is_refusal());
        assert!(!refused(StatusCode::INTERNAL_SERVER_ERROR, "internal", None).is_refusal());
        assert!(ClientError::NoServer.is_refusal());
        assert!(!ClientError::Unresponsive { seconds: 1 }.is_refusal());
    }
}
