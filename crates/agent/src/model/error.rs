//! Why a model gave no answer.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("{0} is no address of a model's API")]
    BadAddress(String),
    #[error("the key cannot be sent: it has characters that no key has")]
    BadKey,
    #[error("the certificates of this system cannot be used: {0}")]
    Certificates(String),
    #[error("the model's server at {url} cannot be reached: {why}")]
    Unreachable { url: String, why: String },
    #[error("the connection to the model broke: {0}")]
    Broken(String),
    #[error("the model's server answered {status}: {message}")]
    Refused { status: u16, message: String, retry_after: Option<Duration> },
    #[error("the model's answer cannot be understood: {0}")]
    Strange(String),
    #[error("the model's server was busy or broken {tries} times in a row; the last time: {last}")]
    GaveUp { tries: u32, last: String },
    #[error("there is no time left")]
    OutOfTime,
}

impl ModelError {
    /// Whether the same request may work a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken(_) | Self::Strange(_) => true,
            // 529 is Anthropic's "overloaded".
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | 529),
            Self::BadAddress(_) | Self::BadKey | Self::Certificates(_) | Self::GaveUp { .. } | Self::OutOfTime => false,
        }
    }

    /// Whether the model may have read the question all the same, and whoever asked pays for it.
    pub fn was_read(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Strange(_) | Self::OutOfTime => true,
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
