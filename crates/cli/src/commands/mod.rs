//! One file per command.

pub mod agent;
pub mod audit;
mod backend;
pub mod completions;
pub mod cp;
pub mod create;
mod decision;
pub mod diff;
pub mod doctor;
pub mod events;
pub mod exec;
pub mod fork;
pub mod lifecycle;
pub mod logs;
pub mod ls;
pub mod mcp;
pub mod network;
pub mod ports;
pub mod quota;
mod remove;
pub mod rm;
pub mod run;
pub mod secret;
pub mod serve;
pub mod shell;
pub mod snapshot;
pub mod template;
pub mod timeline;
pub mod token;
pub mod volume;

use backend::{config, open_engine, open_engine_with, server_for};
use remove::{REMOVE_TIMEOUT, remove_sandbox};
