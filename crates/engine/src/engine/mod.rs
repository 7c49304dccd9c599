//! The engine: all parts of one home directory together, and the operations on sandboxes.

mod checkpoint;
mod create;
mod disk_guard;
mod evict;
mod failover;
mod fork;
mod instance;
mod left_fleet;
mod moving;
mod open;
mod point;
mod recover;
mod restore;
mod rewind;
mod template_copy;
mod templates;
mod unreadable;
mod volumes;

pub use create::{CreateSpec, PreparedCreate};
pub use evict::{Evictable, EvictableKind};
pub use fork::{Fork, ForkError, ForkSpec, Receipt};
pub use instance::Engine;
pub use moving::{Arrived, Consignment, MoveError, MovePlan, Tied, tied};
pub use open::OpenError;
pub use point::PointNote;
pub use rewind::Rewound;
pub use template_copy::{TemplateCopyError, TemplateOffer, TemplateStream};
pub use templates::check_tagged;
