//! Tokens: how they are made, checked and revoked, and what their holders may do.

mod authenticate;
mod local_token;
mod rows;
mod scope;
mod secret;
mod token;

pub use authenticate::AuthError;
pub use local_token::{TOKEN_VARIABLE, local_token_path, read_local_token};
pub use scope::{Denied, Principal, Scope};
pub use secret::TokenSecret;
pub(crate) use secret::hash;
pub use token::{CreatedToken, NewToken, TokenError, TokenInfo};
