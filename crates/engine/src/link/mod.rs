//! The host's end of a sandbox's control channel.
//!
//! One connection carries many streams. The peer is hostile: a frame that cannot be read, a stream that was never
//! opened, more bytes than the window allows or never reading ends the link, and with it that sandbox only. A link that has
//! streams open and hears nothing for a while asks for a sign of life, and ends when none comes.

mod connect;
mod outgoing;
mod stream;
mod table;

pub use connect::Link;
pub use stream::{Incoming, Stream, StreamSender};

use sandling_protocol::Failure;
use sandling_protocol::generation::GenerationError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    #[error("the guest's control channel did not answer in time")]
    NoAnswer,
    #[error("the guest's control channel is closed: {0}")]
    Closed(String),
    #[error("the guest could not do it")]
    Failed(#[from] Failure),
    #[error(transparent)]
    Generation(#[from] GenerationError),
    #[error("the guest gave an answer that does not fit the question")]
    Unexpected,
    #[error("the request is too large for one message")]
    TooLarge,
}
