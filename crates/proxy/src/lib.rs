//! The HTTP proxy between this host and the internet. Parts of Sandling that do not know each other share it: registries,
//! gateways, model calls and webhooks.

mod proxy;

pub use proxy::{BadProxy, UpstreamProxy};
