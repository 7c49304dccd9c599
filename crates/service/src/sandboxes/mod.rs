//! Creating and forking sandboxes within a workspace's quota.

mod create;
mod fork;
mod release_volume;
mod reserve;
mod template;
mod usage;

pub use create::{CreateError, Sandboxes};
pub use fork::ForkError;
pub use release_volume::ReleaseVolumeError;
pub use template::{TemplateSize, UnknownTemplate, find_template, has_template, template_size};
