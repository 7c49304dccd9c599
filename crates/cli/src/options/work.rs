//! Commands that work with one sandbox.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use super::parse;

#[derive(Debug, Args)]
pub struct Exec {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "line", value_name = "COMMAND")]
    pub command: Vec<String>,
    /// A line for the sandbox's shell instead
    #[arg(short = 'c', long = "line", value_name = "LINE", conflicts_with = "command")]
    pub line: Option<String>,
    /// stdin is always passed; this is here so that `-it` works as people know it
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the command a terminal: ours
    #[arg(short, long)]
    pub tty: bool,
    /// Do not wait for it: print its id. `sandling logs --exec ID` shows its output
    #[arg(short, long, conflicts_with_all = ["tty", "interactive"])]
    pub detach: bool,
    /// Do not pass stdin
    #[arg(short = 'n', long, conflicts_with_all = ["tty", "interactive"])]
    pub no_stdin: bool,
    /// Set a variable in its environment; may be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = parse::pair)]
    pub env: Vec<(String, String)>,
    /// The directory it starts in [default: its user's home]
    #[arg(short = 'w', long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// A name or a number [default: root]
    #[arg(short, long)]
    pub user: Option<String>,
    /// How long it may run: 90s, 15m, 12h [default: as long as the sandbox lives]
    #[arg(long, value_name = "TIME", value_parser = parse::seconds)]
    pub timeout: Option<u64>,
    /// With `--detach`: print the whole answer
    #[arg(long, requires = "detach")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Shell {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    /// A name or a number [default: root]
    #[arg(short, long)]
    pub user: Option<String>,
}

#[derive(Debug, Args)]
pub struct Cp {
    /// What to copy: a path here, or SANDBOX:PATH
    #[arg(value_name = "SOURCE")]
    pub source: Place,
    /// Where to: a path here, or SANDBOX:PATH
    #[arg(value_name = "DESTINATION")]
    pub destination: Place,
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Here(PathBuf),
    There { sandbox: String, path: String },
}

impl FromStr for Place {
    type Err = String;

    /// Before a colon stands a sandbox, unless there is a slash before it.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("", _)) => Err("write SANDBOX:PATH, or ./:… for a path here".to_owned()),
            Some((sandbox, path)) if !sandbox.contains('/') => {
                Ok(Self::There { sandbox: sandbox.to_owned(), path: path.to_owned() })
            }
            _ if text.is_empty() => Err("a path cannot be empty".to_owned()),
            _ => Ok(Self::Here(text.into())),
        }
    }
}

#[derive(Debug, Args)]
pub struct Logs {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    /// Go on until the sandbox, or the command, ends
    #[arg(short, long)]
    pub follow: bool,
    /// Only so many lines at the end
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "exec")]
    pub tail: Option<usize>,
    /// The output of a command that was started with `exec --detach`, instead of the console
    #[arg(long, value_name = "ID")]
    pub exec: Option<String>,
}

#[derive(Debug, Args)]
pub struct Events {
    /// Of one sandbox, which may have ended if its whole id is given [default: of the workspace]
    pub sandbox: Option<String>,
    /// Go on as they happen
    #[arg(short, long)]
    pub follow: bool,
    /// So many of the newest [default: 100, or none with --follow]
    #[arg(short = 'n', long, value_name = "N")]
    pub tail: Option<u32>,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Ports {
    /// An id, or as much of its beginning as no other sandbox has
    pub sandbox: String,
    /// Print a link that opens this port in a browser, without any other token
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub link: Option<u16>,
    /// How long the link works: 90s, 15m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse::seconds, default_value = "1h", requires = "link")]
    pub ttl: u64,
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_here_or_in_a_sandbox() {
        let there = |sandbox: &str, path: &str| Place::There { sandbox: sandbox.to_owned(), path: path.to_owned() };
        assert_eq!("ab:/x:y".parse(), Ok(there("ab", "/x:y")));
        assert_eq!("ab:".parse(), Ok(there("ab", "")));
        assert_eq!("./ab:x".parse(), Ok(Place::Here("./ab:x".into())));
        assert_eq!("/a:b".parse(), Ok(Place::Here("/a:b".into())));
        assert_eq!("-".parse(), Ok(Place::Here("-".into())));
        assert!("".parse::<Place>().is_err() && ":x".parse::<Place>().is_err());
    }
}
