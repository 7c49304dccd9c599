//! What happens in a loop, for whoever watches it.

use std::time::Duration;

use sandling_client::Stream;
use sandling_tools::Observation;
use serde_json::Value;

use crate::usage::Usage;

/// Something that happened. What it holds comes from strangers.
#[derive(Debug)]
pub enum Event<'a> {
    /// There are not as many forks as were asked for.
    Forked { wanted: usize, made: usize },
    /// A request to the model begins.
    Step { number: u32 },
    /// A piece of what the model says.
    Said(&'a str),
    /// The model's answer is whole.
    Replied { usage: Usage },
    /// The model will be asked again.
    Retry { why: &'a str, after: Duration },
    /// A tool is called.
    Called { name: &'a str, arguments: &'a Value },
    /// A piece of what a run prints.
    Printed(Stream, &'a [u8]),
    /// What the model is told.
    Observed(&'a Observation),
}

pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Send + Sync);
