//! Events of a running task.

use std::time::Duration;

use sandling_client::Stream;
use sandling_tools::Observation;
use serde_json::Value;

use crate::usage::Usage;

/// An event of a running task. Its content comes from the model or the sandbox and is not trusted.
#[derive(Debug)]
pub enum Event<'a> {
    /// Fewer forks were made than requested.
    Forked { wanted: usize, made: usize },
    /// A request to the model starts.
    Step { number: u32 },
    /// A piece of the model's text.
    Said(&'a str),
    /// The model's answer is complete.
    Replied { usage: Usage },
    /// The request to the model is retried.
    Retry { why: &'a str, after: Duration },
    /// A tool is called.
    Called { name: &'a str, arguments: &'a Value },
    /// A piece of a command's output.
    Printed(Stream, &'a [u8]),
    /// The result of a call, as the model sees it.
    Observed(&'a Observation),
}

pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Send + Sync);
