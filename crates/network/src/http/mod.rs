//! HTTP/1.1 between the guest and a server, request by request: each one's host is judged, and in opened TLS its
//! placeholders are exchanged for secrets. hyper reads and writes the messages; what it does not understand ends here.

mod host;
mod place;
mod proxy;
mod scrub;
mod search;
mod sent;
mod socket;
mod spelling;

pub(crate) use proxy::{relay_opened, relay_plain};
pub use scrub::Scrubber;
pub use search::Search;
pub use sent::Sent;
pub use socket::Frames;
pub use spelling::Spelling;
