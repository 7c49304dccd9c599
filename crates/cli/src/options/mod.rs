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
pub use copies::{Fork, Snapshot, SnapshotCommand};
pub use network::{ModeChoice, Network, Outside, Secret, SecretCommand, given_allow_list, given_list, limits};
pub use past::{Checkpoint, CheckpointCommand, Diff, Rewind, Timeline};
pub use root::{Command, Common, Doctor, Options, Serve};
pub use run::Run;
pub use sandboxes::{Create, Ls, Named, Rm};
pub use serve::Listening;
pub use template::{Build, Template, TemplateCommand};
pub use volumes::{OnVolumes, Volume, VolumeCommand};
pub use work::{Cp, Events, Exec, Logs, Place, Ports, Shell};
