//! What can go wrong between us and a server, each as a sentence that says what to do.

use std::error::Error;

use hyper::StatusCode;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no server is running here: start one with `sandling serve`, or set SANDLING_API to the address of another"
    )]
    NoServer,
    #[error(
        "SANDLING_API is {0:?}, but must be an address such as http://127.0.0.1:8080 or https://sandling.example.org"
    )]
    BadAddress(String),
    #[error(
        "the server at {address} needs a token: set SANDLING_TOKEN to one that its owner made with `sandling token create`"
    )]
    NoToken { address: String },
    #[error("a server was started here, and does not serve: {said}")]
    NotStarted { said: String },
    #[error("SANDLING_TOKEN is no token: it has characters that no token has")]
    BadToken,
    #[error("the certificates of this system cannot be used")]
    Certificates(#[source] Box<dyn Error + Send + Sync>),
    #[error("{what} cannot be read")]
    Home { what: &'static str, source: std::io::Error },
    #[error("the server at {address} cannot be reached ({why}); is it running?")]
    Unreachable { address: String, why: String },
    #[error("the connection to the server broke")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    #[error("the server has not been heard of for {seconds} s; it is gone, or the way to it is")]
    Silent { seconds: u64 },
    #[error("the server's answer cannot be understood; is it a Sandling server of this version? ({0})")]
    Strange(String),
    #[error("{message}{}", hint(.code, *.status, *.retry_after))]
    Refused {
        status: StatusCode,
        code: String,
        message: String,
        retry_after: Option<u64>,
        /// The whole answer: it may hold what was printed until a deadline.
        body: Value,
    },
    #[error("there is no sandbox {0:?}: `sandling ls` lists those there are")]
    NoSandbox(String),
    #[error("{count} sandboxes begin with {prefix:?}: write more of the id")]
    Ambiguous { prefix: String, count: usize },
}

impl ClientError {
    /// What was asked for cannot be had; asking again in the same way is of no use.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::NoServer
            | Self::BadAddress(_)
            | Self::NoToken { .. }
            | Self::BadToken
            | Self::NoSandbox(_)
            | Self::Ambiguous { .. } => true,
            Self::Refused { status, .. } => status.is_client_error(),
            Self::Certificates(_)
            | Self::NotStarted { .. }
            | Self::Home { .. }
            | Self::Unreachable { .. }
            | Self::Broken(_)
            | Self::Silent { .. }
            | Self::Strange(_) => false,
        }
    }

    /// The server says that there is no such thing.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// The sandbox is there, but not the file; or not even the directory that it would be in.
    pub fn is_no_file(&self) -> bool {
        matches!(self, Self::Refused { code, message, .. }
            if code == "not_a_directory" || (code == "not_found" && message != "sandbox not found"))
    }

    pub fn is_guest_death(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == GUEST_DIED)
    }

    /// Said by a server after it had taken the request: over a socket, or in an event.
    pub fn said(status: Option<u16>, code: String, message: String) -> Self {
        let status = status.and_then(|status| StatusCode::from_u16(status).ok()).unwrap_or(StatusCode::BAD_GATEWAY);
        Self::Refused { status, code, message, retry_after: None, body: Value::Null }
    }

    pub fn broken(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Broken(source.into())
    }
}

/// The code of an error whose guest died.
const GUEST_DIED: &str = "guest_died";

/// The command that helps, where there is one.
fn hint(code: &str, status: StatusCode, retry_after: Option<u64>) -> String {
    let hint = match code {
        "sandbox_paused" => "`sandling resume` does",
        "template_not_built" | "template_damaged" => "`sandling template build` builds it",
        "template_unknown" => "`sandling template ls` lists those there are",
        "quota_exceeded" => "`sandling quota` shows what is used",
        _ if status == StatusCode::UNAUTHORIZED => "set SANDLING_TOKEN to a token that works",
        _ => "",
    };
    match (hint, retry_after) {
        ("", None) => String::new(),
        ("", Some(seconds)) => format!("; try again in {seconds} s"),
        (hint, None) => format!("; {hint}"),
        (hint, Some(seconds)) => format!("; {hint}, or try again in {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: StatusCode, code: &str, retry_after: Option<u64>) -> ClientError {
        ClientError::Refused { status, code: code.to_owned(), message: "no".to_owned(), retry_after, body: Value::Null }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let paused = refused(StatusCode::CONFLICT, "sandbox_paused", None);
        assert_eq!(paused.to_string(), "no; `sandling resume` does");
        let full = refused(StatusCode::SERVICE_UNAVAILABLE, "no_capacity", Some(5));
        assert_eq!(full.to_string(), "no; try again in 5 s");
        assert!(refused(StatusCode::UNAUTHORIZED, "token_revoked", None).to_string().contains("SANDLING_TOKEN"));
    }

    #[test]
    fn refusals_and_failures_are_told_apart() {
        assert!(refused(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", None).is_refusal());
        assert!(!refused(StatusCode::INTERNAL_SERVER_ERROR, "internal", None).is_refusal());
        assert!(ClientError::NoServer.is_refusal());
        assert!(!ClientError::Silent { seconds: 1 }.is_refusal());
    }
}
