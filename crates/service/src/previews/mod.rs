//! Preview tokens, which open one port of one sandbox.

mod issued;
mod rows;

pub use issued::PreviewError;
