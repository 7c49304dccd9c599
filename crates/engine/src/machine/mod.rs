//! Machines: templates and how they are baked, restoring machines from them and from snapshots, and standbys.

mod bake;
mod bakes;
mod cache_template;
mod desktop;
mod error;
mod exercise;
mod factory;
mod identify;
mod jail;
mod machines;
mod names;
mod pages_written;
mod ready;
mod source;
mod standby;
mod stored;
mod template;
mod ticks;

pub use bake::{BakeError, Step};
pub(crate) use bake::{Baked, can_restore, check_bake_manifest};
pub(crate) use bakes::SizedImage;
pub use desktop::DesktopError;
pub use error::MakeError;
pub(crate) use factory::MachineFactory;
pub use identify::IdentifyError;
pub(crate) use identify::{Confirmed, identify};
pub(crate) use jail::file_bytes;
pub use machines::Machines;
pub use names::{alias_note, stored_name};
pub(crate) use pages_written::{PagesWritten, WritingPages};
pub(crate) use ready::{ENGINE_FILE, Live, ReadyMachine, end_and_remove, remove_leftover};
pub(crate) use source::{Source, root_layer};
pub(crate) use standby::StandbySettings;
pub use stored::{EvictableTemplate, StoredBake};
pub(crate) use template::{Template, summary};
pub use template::{TemplateError, TemplateSummary};
