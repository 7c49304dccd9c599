//! A model behind one of three APIs: requests and answers.

mod anthropic;
mod ask;
mod backoff;
mod chat;
mod endpoint;
mod error;
mod http;
mod reply;
mod responses;

pub use ask::Model;
pub use backoff::Backoff;
pub use endpoint::{Api, Endpoint, EndpointError, Key};
pub use error::ModelError;
pub use reply::{COMPUTER, Call, Question, Reply, Turn};
