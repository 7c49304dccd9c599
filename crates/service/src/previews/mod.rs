//! Preview tokens: each opens one port of one sandbox to anybody who has it.

mod key;
mod ledger;
mod rows;
mod secret;

pub use key::PreviewToken;
pub(crate) use key::SigningKey;
pub use ledger::{PreviewError, Previews};
pub use secret::NodeKeyError;
