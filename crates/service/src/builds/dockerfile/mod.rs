//! Reads a Dockerfile as the steps of a build, one plan for each stage.
//!
//! An instruction that cannot be carried out is refused, and the error names its line.
//!
//! The parser is our own. Of those on crates.io, `parse-dockerfile` is maintained, but it reads a here-document only at the
//! start of a `RUN`, and only one; `dockerfile-parser` knows none. Neither expands variables, which is most of the work.

mod flags;
mod health;
mod ignore;
mod instruction;
mod mounts;
mod reader;
mod stages;
#[cfg(test)]
mod tests;
mod words;

pub use ignore::DockerIgnore;
#[cfg(test)]
use stages::Planned;
pub use stages::{BaseInfo, DockerfileOptions, StageBaseName, parse};
