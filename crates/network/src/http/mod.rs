//! HTTP/1.1 between the guest and a server. The gateway judges the host of each request. In intercepted TLS it also
//! replaces placeholders by secrets. hyper parses and writes the messages, and the gateway ends a connection that hyper
//! cannot parse.

mod escape;
mod guest_frames;
mod host;
mod pattern;
mod pattern_set;
mod placeholders;
mod proxy;
mod scrub;
mod search;
mod server_frames;

pub use guest_frames::GuestFrames;
pub use pattern::Pattern;
pub(crate) use proxy::{relay, relay_plain};
pub use scrub::Scrubber;
pub use search::Search;
pub use server_frames::ServerFrames;
