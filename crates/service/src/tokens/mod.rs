//! Tokens: how they are made, checked and revoked, and what their holders may do.

mod authenticate;
mod local_token;
mod rows;
mod scope;
mod secret;
mod token;

pub use authenticate::AuthError;
pub(crate) use authenticate::Origin;
pub use local_token::LocalTokenError;
pub(crate) use rows::TokenRow;
pub use scope::{Denied, Principal, Scope};
pub use secret::TokenSecret;
#[cfg(test)]
pub(crate) use secret::hash;
pub use token::{CreatedToken, NewToken, TokenError, TokenInfo, Tokens};
