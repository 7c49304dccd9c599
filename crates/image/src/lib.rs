//! A template's file system, kernel and initrd: from packages of Debian and npm, stored by content, checked when
//! loaded.
//!
//! A [`Recipe`] says what a template is made of; an [`ImageStore`] builds it ([`ImageStore::ensure`]) or finds it
//! ([`ImageStore::load`]) as an [`Image`]. Everything here blocks. Booting an image and baking a warm snapshot of it
//! is not this crate's job; it only has a place for the result ([`Image::baked_dir`]).

mod apt;
mod builtin;
mod debian;
mod digest;
mod error;
mod guest;
mod initrd;
mod kernel;
mod manifest;
mod modules;
mod name;
mod preflight;
mod progress;
mod publish;
mod recipe;
mod root;
mod space;
mod store;
mod supply;
mod tool;

pub use builtin::builtin_recipes;
pub use digest::FileDigest;
pub use error::{BuildError, LoadError};
pub use guest::GUEST;
pub use kernel::{KernelOrigin, OwnKernel};
pub use manifest::{Manifest, Part};
pub use name::{BadContentId, ContentId, TemplateName};
pub use preflight::{Missing, preflight};
pub use progress::{Progress, Report, Step};
pub use publish::{Published, publish_dir};
pub use recipe::{Recipe, RecipeError, Resolved, Warm, resolve};
pub use store::{BuildOptions, Image, ImageStore, Listed};
pub use tool::ToolError;
