//! The command line: one definition that yields parsing, help and completions.

mod access;
mod agents;
mod copies;
mod fleet;
mod images;
mod network;
mod parse;
mod past;
mod root;
mod run;
mod sandboxes;
mod serve;
mod template;
mod volumes;
mod webhooks;
mod work;

pub use access::{Audit, AuditCommand, ClientChoice, Quota, Token, TokenCommand, WorkspaceCommand};
pub use agents::{Agent, AgentBudget, DESKTOP_TEMPLATE, Mcp};
pub use copies::{Fork, SnapshotCommand};
pub use fleet::{FleetCommand, StoreOptions};
pub use images::{OperatorImages, RegistryCommand};
pub use network::{BuildNetwork, Network, OperatorNetwork, SecretCommand, given_allow_list, given_list, limits};
pub use past::{CheckpointCommand, Diff, Rewind, Timeline};
pub use root::{Command, Common, Doctor, Options, Serve, with_docker_flags};
pub use run::{INSTALL_SECONDS, Run};
pub use sandboxes::{Create, Execs, Hibernate, Ls, Rm, SandboxList, Stats, Top};
pub use serve::{AuditChoices, Listening};
pub use template::{Build, TemplateCommand};
pub use volumes::VolumeCommand;
pub use webhooks::WebhookCommand;
pub use work::{Cp, Events, Exec, Logs, Place, Ports, Shell};
