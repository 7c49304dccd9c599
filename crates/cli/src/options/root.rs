//! The commands, and what all of them share.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell as CompletionShell;
use sandling_network::policy::Policy;
use sandling_vmm::accelerator::AcceleratorChoice;

use super::{
    Agent, Audit, Checkpoint, Cp, Create, Diff, Events, Exec, Fork, Logs, Ls, Mcp, Named, Network, Outside, Ports,
    Quota, Rewind, Rm, Run, Secret, Shell, Snapshot, Template, Timeline, Token, Volume,
};

/// A disposable computer for every AI agent.
///
/// Each run gets a virtual machine with its own kernel, no network and none of your files, and is thrown away
/// afterwards. KVM is used where it works, software emulation where it does not.
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
  echo 'console.log(process.version)' | sandling run --language node -

With a server:
  sandling serve &
  id=$(sandling create --ttl 1h)
  sandling cp ./project $id:/work
  sandling exec -w /work $id python3 main.py
  sandling shell $id
  sandling rm $id

State lives in $SANDLING_HOME, else ~/.local/share/sandling. The server of that home is found by
itself; SANDLING_API names another one, and SANDLING_TOKEN the token to show it.";

const CREATE_EXAMPLES: &str = "\
Examples:
  id=$(sandling create)
  sandling create --template code-interpreter --ttl 2h --idle 15m --label task=42
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
A path in a sandbox that does not begin with / starts at /root. As with `cp`, what is copied into a
directory that is there keeps its name; a source that ends in /. means what is in it. Permissions
and symbolic links are kept, owners and times are not.

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

#[derive(Debug, Args)]
pub struct Common {
    /// How machines are run: `auto` uses KVM if it really works here.
    #[arg(long, global = true, env = "SANDLING_ACCELERATOR", default_value = "auto", value_name = "kvm|tcg|auto")]
    pub accelerator: AcceleratorChoice,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run code in a sandbox of its own, which is gone afterwards
    ///
    /// The code's stdout and stderr are ours, its exit code is ours, stdin goes to it, and Ctrl-C reaches it.
    /// Ended by a limit, the exit code is 124 (timeout), 125 (output limit), 137 (out of memory) or 70 (the guest
    /// died), and the reason is printed. If nothing could be run at all, it is 2. A server that is running does the
    /// work; without one, this process does.
    Run(Run),
    /// Make a sandbox on the server and print its id
    #[command(after_help = CREATE_EXAMPLES)]
    Create(Create),
    /// List sandboxes
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(Ls),
    /// Run a command in a sandbox
    ///
    /// Its stdout and stderr are ours, its exit code is ours, stdin goes to it, and Ctrl-C reaches it. The exit codes
    /// of limits are those of `run`.
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(Exec),
    /// Open a terminal in a sandbox
    ///
    /// The shell's exit code is ours. Every key goes to it, Ctrl-C too; Enter, then ~ and . leaves at once.
    Shell(Shell),
    /// Copy files and directories into or out of a sandbox
    #[command(after_help = CP_EXAMPLES)]
    Cp(Cp),
    /// Show what a sandbox's console, or a command of it, printed
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(Logs),
    /// Show what happened to a sandbox, or in the whole workspace
    #[command(after_help = EVENTS_EXAMPLES)]
    Events(Events),
    /// Show, or change, what a sandbox may reach, and what its gateway decided
    #[command(after_help = NETWORK_EXAMPLES)]
    Network(Network),
    /// Store, list and remove secrets that sandboxes can use and never see
    Secret(Secret),
    /// List the TCP ports that are listened on in a sandbox, and make links to them
    #[command(after_help = PORTS_EXAMPLES)]
    Ports(Ports),
    /// Stop sandboxes' CPUs; their memory stays
    Pause(Named),
    /// Let paused sandboxes go on
    Resume(Named),
    /// Put sandboxes to sleep: saved, without memory, until something needs them
    Hibernate(Named),
    /// Wake sandboxes that hibernate
    Wake(Named),
    /// Copy a running sandbox: its memory, disk, processes and live interpreters
    ///
    /// The parent stands still for milliseconds. Prints the children's ids.
    #[command(
        after_help = "Example:\n  for id in $(sandling fork -n 5 3f2a); do sandling exec $id ./attempt.sh & done"
    )]
    Fork(Fork),
    /// Save sandboxes, and list, carry away and delete what was saved
    Snapshot(Snapshot),
    /// List a sandbox's checkpoints, to which it can be put back
    Timeline(Timeline),
    /// Make checkpoints, and give them names, which keeps them
    Checkpoint(Checkpoint),
    /// Put a sandbox back to a checkpoint: its memory, disk and processes
    ///
    /// Where it was becomes a checkpoint, too, so that a rewind can be taken back.
    #[command(after_help = "Example:\n  sandling rewind 3f2a --to 7")]
    Rewind(Rewind),
    /// Show which files differ between two moments of a sandbox, or between sandboxes of one family
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(Diff),
    /// Make, list, copy and delete volumes: named disks that outlive sandboxes
    Volume(Volume),
    /// End sandboxes; nothing of them is left
    #[command(visible_alias = "kill", after_help = "Examples:\n  sandling rm 3f2a 77b0\n  sandling rm --all")]
    Rm(Rm),
    /// Make, list and revoke tokens
    Token(Token),
    /// Show, or set, how much a workspace may use
    #[command(after_help = QUOTA_EXAMPLES)]
    Quota(Quota),
    /// Read the audit log: who did what, on what, with what result
    #[command(
        after_help = "Examples:\n  sandling audit --since 2026-01-31T00:00:00Z --json\n  sandling audit --recording 17"
    )]
    Audit(Audit),
    /// Build, list, inspect and remove templates
    Template(Template),
    /// Serve sandboxes over HTTP, to PandaStack's own clients and yours
    ///
    /// Every request needs a token; the first is made at the first start. On SIGTERM requests under way are finished
    /// and sandboxes go on; the next start takes them over.
    Serve(Serve),
    /// Give a model a task and a sandbox, and follow what it does
    ///
    /// The model proposes, the sandbox runs, the model is told, until it says that it is done or a budget is used up.
    /// Its key comes from the environment and stays out of the sandbox. The answer is printed on stdout, all else on
    /// stderr. The exit code is 0 if the task was done, with --best-of if the best attempt passed its check.
    #[command(after_help = AGENT_EXAMPLES)]
    Agent(Box<Agent>),
    /// Serve sandboxes to an MCP client, such as a coding assistant
    ///
    /// Each session has a sandbox of its own, made when a tool first needs it and ended with the session. A server
    /// that runs does the work; without one, one is started, which ends by itself. docs/mcp.md has configurations.
    #[command(after_help = "Examples:\n  sandling mcp\n  sandling mcp --http 127.0.0.1:8100 --template base")]
    Mcp(Mcp),
    /// Say what this host can do, what is missing, and the command that mends it
    Doctor(Doctor),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  sandling completions bash > ~/.local/share/bash-completion/completions/sandling"
    )]
    Completions { shell: CompletionShell },
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen. An address that others can reach needs SANDLING_TOKEN to be set
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Machines kept ready per template, once it was used; 0 for none
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub standbys: usize,
    /// Machines that are kept ready give way, and none are made, while the host has less memory than this to spare
    #[arg(long, default_value_t = 1024, value_name = "MIB", env = "SANDLING_SPARE_MEMORY")]
    pub spare_memory: u64,
    /// Persistent sandboxes that nobody has used for so many seconds hibernate; 0: none does so by itself
    #[arg(long, default_value_t = 300, value_name = "SECONDS", env = "SANDLING_HIBERNATE_AFTER")]
    pub hibernate_after: u64,
    #[command(flatten)]
    pub outside: Outside,
    /// What the steps of a template's build may reach: deny, open, or a list as of --allow
    #[arg(
        long, value_name = "LIST", env = "SANDLING_BUILD_NETWORK", default_value = "pypi,npm,debian,github",
        value_parser = super::network::policy,
    )]
    pub build_network: Policy,
    /// End after so many seconds without a request and without a sandbox that runs; never if absent
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_exit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Doctor {
    #[arg(long)]
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
    fn what_follows_a_command_is_the_commands_own() {
        let Ok(Command::Exec(exec)) = parse(&["exec", "-it", "3f", "ls", "-l", "--", "-t"]) else { panic!() };
        assert!(exec.tty && exec.interactive);
        assert_eq!(exec.command, ["ls", "-l", "--", "-t"]);
        let Ok(Command::Exec(exec)) = parse(&["exec", "3f", "-c", "ls | wc"]) else { panic!() };
        assert_eq!(exec.line.as_deref(), Some("ls | wc"));
        let Ok(Command::Exec(exec)) = parse(&["exec", "3f", "--", "-x"]) else { panic!() };
        assert_eq!(exec.command, ["-x"]);
    }

    #[test]
    fn wishes_that_contradict_each_other_are_refused() {
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
