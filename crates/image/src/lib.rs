//! A template's file system, kernel and initrd, built from packages of Debian, npm and PyPI, stored by content, and
//! verified when loaded.
//!
//! A [`Recipe`] says what a template is made of. An [`ImageStore`] builds it ([`ImageStore::ensure`]) or finds it
//! ([`ImageStore::load`]) as an [`Image`]. All calls block. The engine, not this crate, boots an image and bakes a warm
//! snapshot of it; this crate only names the directory for the result ([`Image::baked_dir`]).

mod apt;
mod builtin;
mod debian;
mod desktop;
mod digest;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod initrd;
mod inputs;
pub mod jail;
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
mod trust;
mod user_namespace;
mod workspace;

pub use builtin::{Resolved, builtin_recipes, resolve};
pub use desktop::Desktop;
pub use digest::FileDigest;
pub use error::{BuildError, LoadError};
pub use guest::{BUILDER, GUEST};
pub use kernel::{KernelOrigin, OwnKernel};
pub use manifest::{Manifest, Part};
pub use name::{BadContentId, BadTemplateName, ContentId, TemplateName};
pub use preflight::{Missing, preflight};
pub use progress::{Progress, Report, Step};
pub use publish::{Published, publish_dir};
pub use recipe::{NodeRelease, OciImage, PinnedArchive, Recipe, RecipeError, Warm, is_debian_package, is_npm_package};
pub use store::{
    ArchiveError, ArchiveHeader, BuildOptions, Existing, ExportOptions, ExportedArchive, Image, ImageStore,
    ImportRules, ImportedImage, RootMaker, TemplateEntry,
};
pub use tool::ToolError;
pub use trust::{Untrusted, check_trusted, check_trusted_files};
