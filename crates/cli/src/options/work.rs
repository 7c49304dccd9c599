//! Options of the commands that work in one sandbox.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::parse;
use super::run::CommandLimits;

#[derive(Debug, Args)]
pub struct Exec {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    /// Program to run, with its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "line", value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Run this shell command line instead
    #[arg(short = 'c', long = "line", value_name = "LINE", conflicts_with = "command")]
    pub line: Option<String>,
    /// Accepted so that `-it` works as in Docker; stdin is always passed
    #[arg(short, long)]
    pub interactive: bool,
    /// Connect the command to your terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Print the command's ID and do not wait for it. `sandling logs --exec ID` shows its output
    #[arg(short, long, conflicts_with_all = ["tty", "interactive"])]
    pub detach: bool,
    /// Do not pass stdin
    #[arg(short = 'n', long, conflicts_with_all = ["tty", "interactive"])]
    pub no_stdin: bool,
    /// Set an environment variable; may be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub env: Vec<(String, String)>,
    /// Working directory [default: that of the sandbox, /workspace in built-in templates]
    #[arg(short = 'w', long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// User name or ID [default: root]
    #[arg(short, long)]
    pub user: Option<String>,
    /// Stop the command after this long: 90s, 15m, 12h [default: no timeout]
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub timeout: Option<u64>,
    #[command(flatten)]
    pub limits: CommandLimits,
    /// With --detach: print the server's full response as JSON
    #[arg(long, requires = "detach")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Shell {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    /// User name or ID [default: root]
    #[arg(short, long)]
    pub user: Option<String>,
}

#[derive(Debug, Args)]
pub struct Cp {
    /// Path to copy from: a local path, `-` for stdin, or SANDBOX:PATH
    #[arg(value_name = "SOURCE")]
    pub source: Place,
    /// Path to copy to: a local path, `-` for stdout, or SANDBOX:PATH
    #[arg(value_name = "DESTINATION")]
    pub destination: Place,
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Local(PathBuf),
    Remote { sandbox: String, path: String },
}

impl FromStr for Place {
    type Err = String;

    /// The text before a colon is a sandbox, unless it contains a slash.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("", _)) => {
                Err("the sandbox before the colon is missing: write SANDBOX:PATH, or ./:… for a local path".to_owned())
            }
            Some((sandbox, path)) if !sandbox.contains('/') => {
                Ok(Self::Remote { sandbox: sandbox.to_owned(), path: path.to_owned() })
            }
            _ if text.is_empty() => Err("a path cannot be empty".to_owned()),
            _ => Ok(Self::Local(text.into())),
        }
    }
}

#[derive(Debug, Args)]
pub struct Logs {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    /// Keep printing until the sandbox or the command ends
    #[arg(short, long)]
    pub follow: bool,
    /// Show the last N lines
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "exec")]
    pub tail: Option<usize>,
    /// Show the output of this command, by its ID or a unique prefix, instead of the console
    #[arg(long, value_name = "ID")]
    pub exec: Option<String>,
}

#[derive(Debug, Args)]
pub struct Events {
    /// Show only this sandbox's events: a unique ID prefix, or the full ID if it has ended [default: all sandboxes]
    pub sandbox: Option<String>,
    /// Keep printing new events
    #[arg(short, long)]
    pub follow: bool,
    /// Show the newest N events [default: 100, or 0 with --follow]
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<u32>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Ports {
    /// Sandbox ID, a unique prefix of it, or its name
    pub sandbox: String,
    /// Print a link that opens this port in a browser; the link contains its own token
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub link: Option<u16>,
    /// How long the link is valid: 90s, 15m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse::seconds, default_value = "1h", requires = "link")]
    pub ttl: u64,
    #[arg(long, help = "Print JSON")]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_local_or_in_a_sandbox() {
        let remote = |sandbox: &str, path: &str| Place::Remote { sandbox: sandbox.to_owned(), path: path.to_owned() };
        assert_eq!("ab:/x:y".parse(), Ok(remote("ab", "/x:y")));
        assert_eq!("ab:".parse(), Ok(remote("ab", "")));
        assert_eq!("./ab:x".parse(), Ok(Place::Local("./ab:x".into())));
        assert_eq!("/a:b".parse(), Ok(Place::Local("/a:b".into())));
        assert_eq!("-".parse(), Ok(Place::Local("-".into())));
        assert!("".parse::<Place>().is_err() && ":x".parse::<Place>().is_err());
    }
}
