//! The list of commands and the options they share.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell as CompletionShell;
use sandling_engine::Standbys;
use sandling_vmm::accelerator::AcceleratorChoice;

use super::{
    Agent, Audit, AuditChoices, BuildNetwork, CheckpointCommand, Cp, Create, Diff, Events, Exec, Execs, FleetCommand,
    Fork, Hibernate, Listening, Logs, Ls, Mcp, Network, OperatorImages, OperatorNetwork, Ports, Quota, RegistryCommand,
    Rewind, Rm, Run, SandboxList, SecretCommand, Shell, SnapshotCommand, Stats, TemplateCommand, Timeline, Token, Top,
    VolumeCommand, WebhookCommand, WorkspaceCommand,
};
use crate::trust::CA_VARIABLE;

/// A disposable computer for every AI agent.
///
/// Each run gets a virtual machine with its own kernel. It has no network and none of your files, and is deleted
/// afterwards. Sandling uses KVM where it works, and software emulation elsewhere.
#[derive(Debug, Parser)]
#[command(name = "sandling", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sandling run -c 'print(sum(range(101)))'
  sandling run --template code-interpreter analysis.py -- data.csv
  sandling run --pip requests --out results scrape.py
  sandling run -it
  echo 'console.log(process.version)' | sandling run --language node -

With a server:
  sandling serve &
  id=$(sandling create --ttl 1h)
  sandling cp ./project $id:/work
  sandling exec -w /work $id python3 main.py
  sandling shell $id
  sandling rm $id

State is stored in $SANDLING_HOME, or ~/.local/share/sandling if that is unset. Commands find the
server of that directory automatically. To use another server, set SANDLING_API to its address and
SANDLING_TOKEN to a token.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  sandling doctor
  sandling doctor --attack --out report.md
  sandling doctor --attack --only gateway --accept host.smt --json";

const CREATE_EXAMPLES: &str = "\
Examples:
  id=$(sandling create)
  sandling create --name web --template code-interpreter --ttl 2h --idle 15m --label task=42
  sandling create --checkpoints every-exec --checkpoints-kept 50";

const LS_EXAMPLES: &str = "\
Examples:
  sandling ls --label task=42
  sandling ls --json | jq -r '.[] | select(.status == \"paused\") | .id'";

const EXEC_EXAMPLES: &str = "\
Examples:
  sandling exec 3f2a python3 -V
  sandling exec -c 'ls /etc | wc -l' 3f2a
  tar -c src | sandling exec -w /work 3f2a tar -x
  sandling exec --detach 3f2a python3 -m http.server 8000
  sandling exec -it 3f2a python3";

const CP_EXAMPLES: &str = "\
Relative paths in a sandbox start at /root. As with `cp`, copying into an existing directory keeps
the source's name, and a source that ends in /. copies the directory's contents. Permissions and
symbolic links are preserved; owners and times are not.

Examples:
  sandling cp data.csv 3f2a:/work/
  sandling cp 3f2a:/work/plots ./plots
  sandling cp ./src/. 3f2a:/work
  echo hello | sandling cp - 3f2a:greeting
  sandling cp 3f2a:/etc/os-release -";

const DIFF_EXAMPLES: &str = "\
Examples:
  sandling diff 3f2a@7
  sandling diff 3f2a 77b0 --path /work --patch | git apply
  sandling diff 3f2a@7 3f2a@9 --tar changes.tar";

const LOGS_EXAMPLES: &str = "\
Examples:
  sandling logs -f 3f2a
  sandling logs --exec 5d1c -f 3f2a";

const EVENTS_EXAMPLES: &str = "\
Examples:
  sandling events -f
  sandling events 3f2a --json";

const NETWORK_EXAMPLES: &str = "\
Examples:
  sandling network -f 3f2a
  sandling network 3f2a --allow pypi --allow api.example.com
  sandling network 3f2a --only pypi
  sandling network 3f2a --set deny
  sandling network 3f2a --clear
  sandling network --default --allow pypi --binding";

const PORTS_EXAMPLES: &str = "\
Examples:
  sandling ports 3f2a
  sandling ports 3f2a --link 8000 --ttl 15m";

const AGENT_EXAMPLES: &str = "\
Environment: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_MODEL; OPENAI_API_KEY, OPENAI_BASE_URL,
OPENAI_MODEL.

Examples:
  sandling agent 'How many primes are there below a million?'
  sandling agent --files . --apply 'Make the tests pass'
  sandling agent --files . --best-of 5 --check 'pytest -q' --max-time 10m 'Make the tests pass'";

const QUOTA_EXAMPLES: &str = "\
Examples:
  sandling quota
  sandling quota --workspace team --set sandboxes=20 --set memory_mb=none";

/// Replaces `-it` of `run` by `-i`, because `-t` names a template there.
pub fn with_docker_flags(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.iter().skip(1).find(|arg| !arg.as_encoded_bytes().starts_with(b"-")).is_some_and(|first| first == "run") {
        let own = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        for arg in args[..own].iter_mut().filter(|arg| *arg == "-it" || *arg == "-ti") {
            *arg = "-i".into();
        }
    }
    args
}

#[derive(Debug, Args)]
pub struct Common {
    /// How to run virtual machines; `auto` uses KVM if it works on this host
    #[arg(long, global = true, env = "SANDLING_ACCELERATOR", default_value = "auto", value_name = "kvm|tcg|auto")]
    pub accelerator: AcceleratorChoice,
    /// Trust the certificates in this file (PEM) besides those of the system, for example those of your company's proxy;
    /// sandboxes trust them, too
    #[arg(long, global = true, env = CA_VARIABLE, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run code in a new sandbox and delete the sandbox afterwards
    ///
    /// Sandling passes stdin and Ctrl-C to the code, prints its output, and exits with its exit code. If a limit stops
    /// the code, the reason is printed and the exit code is 124 (timeout), 125 (output limit), 137 (out of memory), 152
    /// (CPU time), 153 (disk space) or 70 (the guest died). If nothing could be run, the exit code is 2. The sandbox runs on the server if there is
    /// one, otherwise in this process.
    Run(Box<Run>),
    /// Create a sandbox on the server and print its ID
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// List sandboxes
    #[command(visible_aliases = ["list", "ps"], after_help = LS_EXAMPLES)]
    Ls(Ls),
    /// Show the processes in a sandbox
    Top(Top),
    /// Show the CPU, memory, disk and network usage of sandboxes
    Stats(Stats),
    /// List the commands of a sandbox: running ones, and ended ones whose output is still stored
    Execs(Execs),
    /// Run a command in a sandbox
    ///
    /// Sandling passes stdin and Ctrl-C to the command, prints its output, and exits with its exit code. The exit codes
    /// for limits are the same as for `run`. If the program does not exist, the exit code is 127.
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(Exec),
    /// Open a terminal in a sandbox
    ///
    /// Every key goes to the shell, including Ctrl-C. To disconnect, type Enter, then ~ and then a period. Sandling
    /// exits with the shell's exit code.
    Shell(Shell),
    /// Copy files and directories into or out of a sandbox
    #[command(after_help = CP_EXAMPLES)]
    Cp(Cp),
    /// Show the console output of a sandbox, or the output of one of its commands
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(Logs),
    /// Show the events of a sandbox or of the whole workspace
    #[command(after_help = EVENTS_EXAMPLES)]
    Events(Events),
    /// Show or change a sandbox's network policy, and show the gateway's decisions
    #[command(after_help = NETWORK_EXAMPLES)]
    Network(Network),
    /// Store, list and remove secrets that sandboxes can use without seeing them
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Store, list and remove credentials for registries of OCI images
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Send events to URLs, and list and replay deliveries
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Run several machines behind one address: start a fleet, join one, and show its nodes
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// List the TCP ports that programs in a sandbox listen on, and create links to them
    #[command(after_help = PORTS_EXAMPLES)]
    Ports(Ports),
    /// Pause sandboxes: stop their CPUs and keep their memory
    Pause(SandboxList),
    /// Resume paused sandboxes
    Resume(SandboxList),
    /// Hibernate sandboxes: save them to disk and free their memory until they are used again
    Hibernate(Hibernate),
    /// Wake hibernated sandboxes
    Wake(SandboxList),
    /// Fork a running sandbox with its memory, disk and processes
    ///
    /// The parent pauses for a few milliseconds. Prints the children's IDs.
    #[command(
        after_help = "Example:\n  for id in $(sandling fork -n 5 3f2a); do sandling exec $id ./attempt.sh & done"
    )]
    Fork(Fork),
    /// Create, list, export, import and delete snapshots of sandboxes
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// List a sandbox's checkpoints
    Timeline(Timeline),
    /// Create and name checkpoints
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Restore a sandbox's memory, disk and processes from a checkpoint
    ///
    /// The state before the rewind becomes a checkpoint, so you can undo the rewind.
    #[command(after_help = "Example:\n  sandling rewind 3f2a --to 7")]
    Rewind(Rewind),
    /// Show which files differ between two states of a sandbox, or between a sandbox and its forks
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(Diff),
    /// Create, list, copy and delete volumes: named disks that outlive sandboxes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Remove sandboxes and all their data
    #[command(visible_alias = "kill", after_help = "Examples:\n  sandling rm 3f2a 77b0\n  sandling rm --all")]
    Rm(Rm),
    /// Create, list and revoke tokens
    Token(Token),
    /// Create, list and delete workspaces (operators only)
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// Show or change a workspace's quota
    #[command(after_help = QUOTA_EXAMPLES)]
    Quota(Quota),
    /// Show the audit log: who did what to which object, with which result
    #[command(
        after_help = "Examples:\n  sandling audit --since 2026-01-31T00:00:00Z --json\n  sandling audit --recording 17"
    )]
    Audit(Audit),
    /// Build, list, inspect and remove templates
    #[command(subcommand)]
    Template(TemplateCommand),
    /// Open the server's dashboard in a browser, signed in
    ///
    /// Creates a one-time link that expires after 5 minutes, and opens it. Without a graphical desktop, for example over
    /// SSH, the command only prints the link.
    #[command(after_help = "Example:\n  ssh -L 8080:127.0.0.1:8080 HOST sandling dashboard --print")]
    Dashboard {
        /// Print the link instead of opening a browser
        #[arg(long)]
        print: bool,
    },
    /// Run the HTTP server, for Sandling's, E2B's and PandaStack's clients
    ///
    /// Every request needs a token. The first start creates one. On SIGTERM the server finishes its open requests and
    /// exits. Sandboxes keep running, and the next start takes them over.
    Serve(Serve),
    /// Let a model work on a task in a sandbox, and show what it does
    ///
    /// The model calls tools in the sandbox and reads their results until it finishes or reaches a limit. The API key
    /// comes from the environment and never enters the sandbox. The answer goes to stdout, everything else to stderr.
    /// The exit code is 0 if the model finished and the check, if any, passed. With --best-of, the best attempt must
    /// have passed the check.
    #[command(after_help = AGENT_EXAMPLES)]
    Agent(Box<Agent>),
    /// Run an MCP server that gives coding assistants sandboxes
    ///
    /// Each session gets its own sandbox. It is created when a tool first needs it and removed with the session. If no
    /// Sandling server is running, the command starts one, which exits when idle. docs/mcp.md shows how to set it up.
    #[command(after_help = "Examples:\n  sandling mcp\n  sandling mcp --http 127.0.0.1:8100 --template base")]
    Mcp(Mcp),
    /// Check this host and print the commands that fix what is missing
    ///
    /// With --attack, the host attacks itself: from inside guests, from inside the jail, over the network and through the
    /// API, with a private server that is removed afterwards. This takes up to ten minutes. The exit code is 1 if a
    /// defense did not hold.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  sandling completions bash > ~/.local/share/bash-completion/completions/sandling"
    )]
    Completions { shell: CompletionShell },
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub listening: Listening,
    /// Standby machines per template that has been used; 0 disables them, and auto follows recent creates
    #[arg(long, default_value = "auto", value_name = "N|auto", value_parser = super::parse::standbys)]
    pub standbys: Standbys,
    /// Evict standby machines, and create none, while the host has less available memory than this
    #[arg(long, default_value = "1024", value_name = "SIZE", env = "SANDLING_SPARE_MEMORY", value_parser = super::parse::mib)]
    pub spare_memory: u32,
    /// Hibernate persistent sandboxes after this many idle seconds; 0 disables automatic hibernation
    #[arg(long, default_value_t = 300, value_name = "SECONDS", env = "SANDLING_HIBERNATE_AFTER")]
    pub hibernate_after: u64,
    #[command(flatten)]
    pub operator: OperatorNetwork,
    #[command(flatten)]
    pub images: OperatorImages,
    /// Let webhooks send to private addresses, such as services on this host
    #[arg(long, env = "SANDLING_WEBHOOK_ALLOW_PRIVATE")]
    pub webhook_allow_private: bool,
    /// Send traces and metrics to the OpenTelemetry collector at this URL, such as http://127.0.0.1:4318 (OTLP over
    /// HTTP) [env: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    #[command(flatten)]
    pub build: BuildNetwork,
    #[command(flatten)]
    pub audit: AuditChoices,
    /// In a fleet: copy templates in the background that other nodes have built, those that were used in the last week or, with
    /// names, these
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, value_delimiter = ',', default_missing_value = "")]
    pub pull_templates: Option<Vec<String>>,
    /// In a fleet: a sandbox with failover that is in use gets a new point, from which another node takes over, when its last
    /// one is this many seconds old
    #[arg(long, default_value_t = 300, value_name = "SECONDS", env = "SANDLING_FAILOVER_EVERY", value_parser = clap::value_parser!(u64).range(1..))]
    pub failover_every: u64,
    /// Exit after this many seconds without a request or a running sandbox [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_exit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Attack this host and report for each defense whether it held
    #[arg(long)]
    pub attack: bool,
    /// Write the report with all evidence to this file, as Markdown
    #[arg(long, value_name = "FILE", requires = "attack")]
    pub out: Option<PathBuf>,
    /// Make only the attacks whose name starts with this; may be repeated
    #[arg(long, value_name = "NAME", requires = "attack")]
    pub only: Vec<String>,
    /// Exit with 0 although this attack succeeds, because you know and accept it; may be repeated
    #[arg(long, value_name = "NAME", requires = "attack")]
    pub accept: Vec<String>,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &[&str]) -> Result<Command, clap::Error> {
        Options::try_parse_from([&["sandling"], line].concat()).map(|options| options.command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_run_needs_code_or_a_file_but_not_both() {
        assert!(parse(&["run"]).is_err());
        assert!(parse(&["run", "-c", "1", "x.py"]).is_err());
        let Ok(Command::Run(run)) = parse(&["run", "x.py", "--", "-v", "1"]) else { panic!() };
        assert_eq!(run.args, ["-v", "1"]);
    }

    #[test]
    fn a_shell_in_a_new_sandbox_is_asked_for_as_in_docker() {
        let flags = |line: &[&str]| with_docker_flags(line.iter().map(|word| (*word).into()));
        assert_eq!(flags(&["sandling", "run", "-it", "--image", "x"]), ["sandling", "run", "-i", "--image", "x"]);
        assert_eq!(flags(&["sandling", "run", "a.sh", "--", "-it"])[4], "-it");
        assert_eq!(flags(&["sandling", "exec", "-it", "3f", "sh"])[2], "-it");
        let Ok(Command::Run(run)) = parse(&["run", "-i"]) else { panic!() };
        assert!(run.interactive);
        assert!(parse(&["run", "-i", "x.py"]).is_err());
    }

    #[test]
    fn arguments_after_the_command_belong_to_it() {
        let Ok(Command::Exec(exec)) = parse(&["exec", "-it", "3f", "ls", "-l", "--", "-t"]) else { panic!() };
        assert!(exec.tty && exec.interactive);
        assert_eq!(exec.command, ["ls", "-l", "--", "-t"]);
        let Ok(Command::Exec(exec)) = parse(&["exec", "3f", "-c", "ls | wc"]) else { panic!() };
        assert_eq!(exec.line.as_deref(), Some("ls | wc"));
        let Ok(Command::Exec(exec)) = parse(&["exec", "3f", "--", "-x"]) else { panic!() };
        assert_eq!(exec.command, ["-x"]);
    }

    #[test]
    fn contradictory_options_are_rejected() {
        for line in [
            &["exec", "3f"][..],
            &["exec", "-dt", "3f", "ls"],
            &["exec", "-c", "ls", "3f", "ls"],
            &["exec", "--json", "3f", "ls"],
            &["rm"],
            &["rm", "--all", "3f"],
            &["pause"],
            &["cp", "one"],
            &["ls", "-q", "--json"],
            &["ports", "3f", "--link", "0"],
            &["rewind", "3f"],
            &["diff", "3f", "--patch", "--tar", "x"],
            &["create", "--checkpoints-kept", "3"],
            &["audit", "--since", "yesterday"],
            &["audit", "--recording", "3", "--after", "2"],
            &["quota", "--set", "cpu"],
            &["token", "create"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
