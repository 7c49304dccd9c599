//! TLS: reads the name in a client hello, and intercepts connections with the sandbox's own certificate authority.

mod authority;
mod hello;
mod interceptor;
mod roots;

pub use authority::{Authority, AuthorityError, is_certificate_of};
pub use hello::Hello;
pub(crate) use interceptor::Interceptor;
pub use roots::{RootsError, TrustRoots};
