//! From the host's request to the arguments of `execve`.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use sandling_protocol::{ExecSpec, Failure, FailureKind, Language, Program};

use crate::environment::{self, Variables};
use crate::failure::{failure, io_failure};
use crate::sys::launch::{Launch, Session};
use crate::users::User;

/// The longest argument that the kernel takes, minus some room.
const LONGEST_ARGUMENT: usize = 96 * 1024;

const LONGEST_DESCRIPTION: usize = 200;
/// The shells to look for, in this order.
const SHELLS: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"];

/// The user, the working directory and the environment of a process.
pub struct Setting {
    pub user: User,
    pub variables: Variables,
    pub directory: String,
    /// The directory was checked, or needs no check.
    seen: bool,
}

impl Setting {
    pub fn new(
        sandbox: &Variables,
        user: Option<&str>,
        own: &Variables,
        directory: Option<&str>,
    ) -> Result<Self, Failure> {
        let user = User::find(user)?;
        let variables = environment::compose(sandbox, &user, own);
        let seen = directory.is_none();
        let directory = match directory {
            Some(directory) if !directory.starts_with('/') => {
                let message = format!("working directory {directory:?} is not an absolute path");
                return Err(failure(FailureKind::Invalid, message));
            }
            Some(directory) => directory.to_owned(),
            // A user without a home directory can run commands, too.
            None if Path::new(&user.home).is_dir() => user.home.clone(),
            None => "/".to_owned(),
        };
        Ok(Self { user, variables, directory, seen })
    }

    /// The agent's own user, for a driver that switches to its user later.
    pub fn ours(variables: Variables) -> Self {
        Self { user: User::ourselves(), variables, directory: "/".to_owned(), seen: true }
    }

    /// Checks the directory now, because an interpreter changes to it later, when it is too late for a clear error.
    pub fn check_directory(&self) -> Result<(), Failure> {
        if self.seen {
            return Ok(());
        }
        let wrong = |error: std::io::Error| io_failure(format!("working directory {}", self.directory), &error);
        let metadata = std::fs::metadata(&self.directory).map_err(wrong)?;
        if metadata.is_dir() { Ok(()) } else { Err(wrong(std::io::Error::from_raw_os_error(libc::ENOTDIR))) }
    }
}

/// A program to start.
#[derive(Default)]
pub struct Plan {
    pub programs: Vec<String>,
    pub arguments: Vec<String>,
    /// Become the descriptors from 3.
    pub extra: Vec<OwnedFd>,
    pub niceness: i32,
    pub session: Session,
    /// It reads nothing, and what it prints is dropped.
    pub is_silent: bool,
    /// The program is whichever shell there is.
    pub is_shell: bool,
}

impl Plan {
    pub fn shell(line: &str) -> Result<Self, Failure> {
        Self::bash(line, &["bash".to_owned()])
    }

    pub fn argv(argv: &[String], variables: &Variables) -> Result<Self, Failure> {
        let program = argv.first().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| failure(FailureKind::Invalid, "the command is empty"))?;
        let programs = environment::candidates(program, variables);
        Ok(Self { programs, arguments: argv.to_vec(), ..Self::default() })
    }

    pub fn bash_code(code: &[u8], args: &[String]) -> Result<Self, Failure> {
        let code = text_of(code)?;
        let mut names = vec!["bash".to_owned()];
        names.extend_from_slice(args);
        Self::bash(code, &names)
    }

    /// `names` are `$0` and the positional parameters.
    fn bash(code: &str, names: &[String]) -> Result<Self, Failure> {
        let programs = SHELLS.map(str::to_owned).to_vec();
        // BusyBox looks at the name that it is called by.
        let found = programs.iter().find(|program| Path::new(program).exists());
        let name = found.and_then(|program| program.rsplit('/').next()).unwrap_or("sh");
        let mut arguments = vec![name.to_owned(), "-c".to_owned()];
        let mut extra = Vec::new();
        if code.len() > LONGEST_ARGUMENT {
            extra.push(in_memory(code).map_err(|error| io_failure("the code", &error))?);
            arguments.push(". /dev/fd/3".to_owned());
        } else {
            arguments.push(code.to_owned());
        }
        arguments.extend_from_slice(names);
        Ok(Self { programs, arguments, extra, is_shell: true, ..Self::default() })
    }

    pub fn launch<'a>(&'a self, setting: &Setting, stdio: [BorrowedFd<'a>; 3]) -> Result<Launch<'a>, Failure> {
        let to_c = |texts: &[String], what: &str| {
            texts.iter().map(|text| environment::c_string(text.as_str(), what)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Launch {
            programs: to_c(&self.programs, "the program's name")?,
            arguments: to_c(&self.arguments, "an argument")?,
            environment: environment::to_c(&setting.variables)?,
            directory: environment::c_string(setting.directory.as_str(), "the working directory")?,
            user: setting.user.change(),
            stdio,
            extra: self.extra.iter().map(|fd| fd.as_fd()).collect(),
            session: self.session,
            cgroup: None,
            niceness: self.niceness,
        })
    }

    pub fn name(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }
}

fn in_memory(code: &str) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("code", MemfdFlags::CLOEXEC)?);
    file.write_all(code.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

pub fn text_of(code: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(code).map_err(|_| failure(FailureKind::Invalid, "the code is not UTF-8"))
}

pub fn check_id(id: &str) -> Result<(), Failure> {
    let fine = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let message = || format!("{id:?} is not a valid id: use 1 to 64 letters, digits, dashes or underscores");
    if fine { Ok(()) } else { Err(failure(FailureKind::Invalid, message())) }
}

/// The command for display.
pub fn describe(spec: &ExecSpec, code: &[u8]) -> String {
    let text = match &spec.program {
        Program::Shell(line) => line.clone(),
        Program::Argv(argv) => argv.join(" "),
        Program::Code { language, .. } => {
            let name = match language {
                Language::Python => "python",
                Language::Node => "node",
                Language::Bash => "bash",
            };
            let start = String::from_utf8_lossy(&code[..code.len().min(4 * LONGEST_DESCRIPTION)]).into_owned();
            format!("{name}: {}", start.lines().find(|line| !line.trim().is_empty()).unwrap_or_default())
        }
    };
    text.chars().take(LONGEST_DESCRIPTION).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_plain() {
        assert!(check_id("a_B-9").is_ok());
        for bad in ["", "a b", "../x", "ä", &"x".repeat(65)] {
            assert!(check_id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn code_too_long_for_an_argument_is_passed_by_descriptor() {
        let long = "x".repeat(LONGEST_ARGUMENT + 1);
        let plan = Plan::bash_code(long.as_bytes(), &["one".to_owned()]).unwrap();
        assert_eq!(plan.extra.len(), 1);
        assert_eq!(plan.arguments[2..], [". /dev/fd/3", "bash", "one"]);
    }

    #[test]
    fn a_shell_is_called_by_its_own_name() {
        let plan = Plan::shell("true").unwrap();
        let found = plan.programs.iter().find(|program| Path::new(program).exists()).unwrap();
        assert!(found.ends_with(&format!("/{}", plan.name())), "{found} as {}", plan.name());
        assert!(plan.is_shell);
    }

    #[test]
    fn an_empty_argv_is_refused() {
        assert!(Plan::argv(&[], &Variables::new()).is_err());
        assert!(Plan::argv(&[String::new()], &Variables::new()).is_err());
    }
}
