//! Why a model gave no answer.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("{0} is not a URL of a model's API")]
    BadAddress(String),
    #[error("the key has characters that cannot be sent in a header")]
    BadKey,
    #[error("cannot load this system's certificates: {0}")]
    Certificates(String),
    #[error("cannot reach the model's server at {url}: {why}")]
    Unreachable { url: String, why: String },
    #[error("the connection to the model failed: {0}")]
    Broken(String),
    #[error("the model's server answered {status}: {message}")]
    Refused { status: u16, message: String, retry_after: Option<Duration> },
    #[error("cannot parse the model's answer: {0}")]
    Strange(String),
    #[error("the model's server failed {tries} times in a row; the last error: {last}")]
    GaveUp { tries: u32, last: String },
    #[error("the model's server wants a person to check what the model does: {0}")]
    NeedsPerson(String),
    #[error("there is no time left")]
    OutOfTime,
}

impl ModelError {
    /// Whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken(_) | Self::Strange(_) => true,
            // 529 is Anthropic's "overloaded".
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | 529),
            Self::BadAddress(_)
            | Self::BadKey
            | Self::Certificates(_)
            | Self::GaveUp { .. }
            | Self::NeedsPerson(_)
            | Self::OutOfTime => false,
        }
    }

    /// Whether the model may have read the request, so that it must be paid for.
    pub fn was_read(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Strange(_) | Self::NeedsPerson(_) | Self::OutOfTime => true,
            Self::BadAddress(_)
            | Self::BadKey
            | Self::Certificates(_)
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::GaveUp { .. } => false,
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
