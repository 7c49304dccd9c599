//! The E2B dialect: E2B's public clients work unmodified, on the same sandboxes as the other dialects.
//!
//! It has three planes on one address: `control` (create, list, pause, fork), `envd` (processes and files of one
//! sandbox) and `interpreter` (code in it). The port in a request's headers or host tells `envd`, `interpreter` and a
//! user's own servers apart: see [`place`]. The clients' options are stored in the sandbox's settings ([`settings`]),
//! and its token is derived from its id ([`token`]). So the dialect needs no store of its own.

mod actions;
mod awake;
mod control;
mod envd;
mod gone;
mod interpreter;
mod memory;
mod names;
mod origins;
mod place;
mod plan;
mod refusal;
mod router;
mod settings;
mod token;
mod unnamed;

pub(crate) use actions::ACTIONS;
pub(crate) use control::{NEXT as NEXT_PAGE, TOTAL_RUNNING, page_limit, page_of_templates};
pub(crate) use envd::split_frames;
pub(crate) use names::{has_template, is_built_in, made_at, made_or_begun_at};
pub(crate) use place::{by_place, parse_id, sandbox_of};
pub(crate) use refusal::shape_of_client;
pub(crate) use router::routes;
pub(crate) use unnamed::{credential, sandbox_with, workspace_of};
