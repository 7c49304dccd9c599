//! TLS: the name a greeting shows; and for hosts with secrets, the connection opened with an authority of the sandbox's own.

mod authority;
mod hello;
mod intercept;
mod roots;

pub use authority::{Authority, AuthorityError};
pub use hello::Hello;
pub(crate) use intercept::{Interceptor, intercept};
pub use roots::{RootsError, TrustRoots};
