//! The routes: one file per resource.

pub(crate) mod audit;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod exec_session;
pub(crate) mod exec_stream;
pub(crate) mod exec_ws;
pub(crate) mod execs;
pub(crate) mod files;
pub(crate) mod files_change;
pub(crate) mod files_content;
pub(crate) mod health;
pub(crate) mod lifecycle;
pub(crate) mod logs;
pub(crate) mod me;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod ports;
pub(crate) mod preview;
pub(crate) mod quota;
pub(crate) mod repl;
pub(crate) mod sandboxes;
pub(crate) mod template_builds;
pub(crate) mod templates;
pub(crate) mod terminal;
pub(crate) mod tokens;
pub(crate) mod workspaces;
