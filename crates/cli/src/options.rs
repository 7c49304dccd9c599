//! The command line: one definition that yields parsing, help and completions.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sandling_protocol::Language;
use sandling_vmm::accelerator::AcceleratorChoice;

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
  sandling run --language bash -c 'uname -a; df -h /'
  sandling run --template code-interpreter analysis.py -- data.csv
  echo 'console.log(process.version)' | sandling run --language node -
  sandling doctor

State lives in $SANDLING_HOME, else ~/.local/share/sandling.";

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
    /// died), and the reason is printed. If nothing could be run at all, it is 2.
    Run(Run),
    /// Serve sandboxes over HTTP, to PandaStack's own clients and yours
    ///
    /// Every request needs a token; the first is made at the first start. On SIGTERM requests under way are finished
    /// and sandboxes go on; the next start takes them over.
    Serve(Serve),
    /// Say what this host can do, what is missing, and the command that mends it
    Doctor(Doctor),
    /// Build, list, inspect and remove templates
    Template(Template),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  sandling completions bash > ~/.local/share/bash-completion/completions/sandling"
    )]
    Completions { shell: Shell },
}

#[derive(Debug, Args)]
pub struct Run {
    /// The code
    #[arg(short = 'c', long = "code", value_name = "CODE", conflicts_with = "file")]
    pub code: Option<String>,
    /// A file with the code, or `-` for stdin
    #[arg(value_name = "FILE", required_unless_present = "code")]
    pub file: Option<PathBuf>,
    /// Arguments for the code
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,
    #[arg(short, long, default_value = "base", value_name = "NAME")]
    pub template: String,
    /// By default the one that the file's name says, else Python
    #[arg(short, long, value_enum)]
    pub language: Option<LanguageChoice>,
    /// How long the code may run
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print one JSON object with the output, the exit code, the reason and the sandbox
    #[arg(long)]
    pub json: bool,
    /// Set a variable in the code's environment; may be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Virtual CPUs [default: the template's]
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory in MiB [default: the template's]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Disk in MiB [default: the template's]
    #[arg(long, value_name = "MIB")]
    pub disk: Option<u32>,
    /// Processes and threads, all together [default: the template's]
    #[arg(long, value_name = "N")]
    pub pids: Option<u32>,
    /// Bytes the code may print
    #[arg(long, default_value_t = sandling_engine::RunSpec::OUTPUT_LIMIT, value_name = "BYTES")]
    pub output_limit: u64,
    /// Before it runs, report risky shapes in the code. Advice, not a boundary
    #[arg(long)]
    pub scan: bool,
    /// Print how long it took and what it ran on, to stderr
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LanguageChoice {
    Python,
    Node,
    Bash,
}

impl From<LanguageChoice> for Language {
    fn from(choice: LanguageChoice) -> Self {
        match choice {
            LanguageChoice::Python => Language::Python,
            LanguageChoice::Node => Language::Node,
            LanguageChoice::Bash => Language::Bash,
        }
    }
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen. An address that others can reach needs SANDLING_TOKEN to be set
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Machines kept ready per template, once it was used; 0 for none
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub standbys: usize,
}

#[derive(Debug, Args)]
pub struct Doctor {
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Template {
    #[command(subcommand)]
    pub command: TemplateCommand,
}

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Build a template and bake its warm snapshot; does nothing if its inputs have not changed
    Build(Build),
    /// List templates
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Show what a template is made of
    Inspect {
        name: String,
        /// Read every byte and compare it with its digest
        #[arg(long)]
        verify: bool,
    },
    /// Remove a template and what only it used
    Rm { name: String },
}

#[derive(Debug, Args)]
pub struct Build {
    /// `base`, `code-interpreter`, or a name of your own
    pub name: String,
    /// Debian packages, on top of `--from`
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE,…")]
    pub packages: Vec<String>,
    /// The built-in template that yours adds to
    #[arg(long, default_value = "base", value_name = "NAME")]
    pub from: String,
    /// Memory in MiB
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Virtual CPUs
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Disk in MiB
    #[arg(long, value_name = "MIB")]
    pub disk: Option<u32>,
    /// A kernel of your own instead of Debian's cloud kernel
    #[arg(long, value_name = "VMLINUZ")]
    pub kernel: Option<PathBuf>,
    /// That kernel's modules, a `lib/modules/RELEASE` directory, unless all it needs is built in
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// Take the newest kernel, even if nothing else changed
    #[arg(long)]
    pub upgrade: bool,
    /// Build it even if nothing changed
    #[arg(long)]
    pub force: bool,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_run_needs_code_or_a_file_but_not_both() {
        assert!(Options::try_parse_from(["sandling", "run"]).is_err());
        assert!(Options::try_parse_from(["sandling", "run", "-c", "1", "x.py"]).is_err());
        let options = Options::try_parse_from(["sandling", "run", "x.py", "--", "-v", "1"]).unwrap();
        let Command::Run(run) = options.command else { panic!() };
        assert_eq!(run.args, ["-v", "1"]);
    }
}
