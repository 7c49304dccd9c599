//! The command line: one definition that yields parsing, help and completions.

mod access;
mod agents;
mod copies;
mod network;
mod parse;
mod past;
mod root;
mod run;
mod sandboxes;
mod serve;
mod template;
mod volumes;
mod work;

pub use access::{Audit, ClientChoice, Quota, Token, TokenCommand};
pub use agents::{Agent, AgentBudget, Mcp};
pub use copies::{Fork, SnapshotCommand};
pub use network::{Network, OperatorNetwork, SecretCommand, given_allow_list, given_list, limits};
pub use past::{CheckpointCommand, Diff, Rewind, Timeline};
pub use root::{Command, Common, Doctor, Options, Serve};
pub use run::Run;
pub use sandboxes::{Create, Ls, Rm, SandboxList};
pub use serve::Listening;
pub use template::{Build, TemplateCommand};
pub use volumes::VolumeCommand;
pub use work::{Cp, Events, Exec, Logs, Place, Ports, Shell};
