//! The programs that a build runs. They end with this process, and their failures become readable errors.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process, set_parent_process_death_signal};

/// How long a program may be silent before [`Event::Silence`] is reported.
const TICK: Duration = Duration::from_secs(1);

/// How long a program that took too long may clean up before it is killed.
const KILL_AFTER: Duration = Duration::from_secs(20);

/// How many lines of a failed program's output go into the error.
const KEPT_LINES: usize = 6;

/// The only variables of this process that programs see: how to reach mirrors and registries, and where to put files.
/// Others may hold the server's token or keys of model providers, and packages bring programs of their own.
const KEPT_VARIABLES: [&str; 22] = [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "ftp_proxy",
    "FTP_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_registry",
    "NPM_CONFIG_REGISTRY",
    "npm_config_cafile",
    "PIP_INDEX_URL",
    "PIP_CERT",
    "APT_CONFIG",
    "HOME",
    "TMPDIR",
    "USER",
];

/// Programs, and the Debian packages that have them.
pub(crate) const TOOLS: [(&str, &str); 7] = [
    ("mmdebstrap", "mmdebstrap"),
    ("mke2fs", "e2fsprogs"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("apt-config", "apt"),
    ("dpkg", "dpkg"),
    ("dpkg-deb", "dpkg"),
];

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("`{program}` is not installed; `apt-get install {package}` brings it")]
    Missing { program: String, package: &'static str },
    #[error("`{program}` could not be run")]
    Run { program: String, source: io::Error },
    #[error("a build needs user ids of its own: {reason}")]
    NoUserIds { reason: String },
    #[error("the disk is full (`{program}` found no space left)")]
    NoSpace { program: String },
    #[error("`{program}` took longer than {minutes} minutes")]
    TooSlow { program: String, minutes: u64 },
    #[error("`{program}` failed ({status}): {said}")]
    Failed { program: String, status: ExitStatus, said: String },
}

/// One run of a program.
pub(crate) struct Tool {
    program: &'static str,
    command: Command,
    longest: Option<Duration>,
}

/// What a program did: it printed a line, or nothing for a while.
pub(crate) enum Event<'a> {
    Line(&'a str),
    Silence,
}

impl Tool {
    pub(crate) fn new(program: &'static str) -> Self {
        Self::with_path(program, find(program).unwrap_or_else(|| program.into()))
    }

    /// `program`, as the program at `path` runs it.
    pub(crate) fn with_path(program: &'static str, path: PathBuf) -> Self {
        let mut command = Command::new(path);
        command.env_clear().envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env("PATH", search_path()).env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        // In a user namespace, the caller's directory may be inaccessible, and some programs return to theirs.
        command.current_dir("/");
        // SAFETY: the closure makes one async-signal-safe system call and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        Self { program, command, longest: None }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn current_dir(mut self, directory: impl AsRef<std::path::Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// The program is ended after this time.
    pub(crate) fn within(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }

    /// Makes system calls in the child before the program starts. The closure must do nothing else.
    pub(crate) fn before_start(mut self, calls: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Self {
        // SAFETY: the closure is async-signal-safe and allocates nothing.
        unsafe { self.command.pre_exec(calls) };
        self
    }

    pub(crate) fn stdin(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Runs the program and returns its standard output.
    pub(crate) fn capture(mut self) -> Result<String, ToolError> {
        let output = self.command.output().map_err(|error| cannot_run(self.program, error))?;
        let mut explanation = FailureLines::default();
        String::from_utf8_lossy(&output.stderr).lines().for_each(|line| explanation.add(line.to_owned()));
        explanation.check(self.program, output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the program and reports each line of its standard output and error as it is printed.
    pub(crate) fn follow(mut self, mut on: impl FnMut(Event<'_>)) -> Result<(), ToolError> {
        let (mut child, lines) = self.start().map_err(|error| cannot_run(self.program, error))?;
        let mut explanation = FailureLines::default();
        let begun = Instant::now();
        let mut ended_at = None;
        loop {
            if ended_at.is_none_or(|at: Instant| at.elapsed() > KILL_AFTER)
                && self.longest.is_some_and(|longest| begun.elapsed() > longest)
            {
                // At first gently, so that it cleans up.
                let signal = if ended_at.is_none() { Signal::TERM } else { Signal::KILL };
                end(&child, signal);
                ended_at = Some(Instant::now());
            }
            match lines.recv_timeout(TICK) {
                Ok(line) => {
                    on(Event::Line(&line));
                    explanation.add(line);
                }
                Err(RecvTimeoutError::Timeout) => on(Event::Silence),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().map_err(|error| cannot_run(self.program, error))?;
        if let (Some(_), Some(longest)) = (ended_at, self.longest) {
            return Err(ToolError::TooSlow { program: self.program.to_owned(), minutes: longest.as_secs() / 60 });
        }
        explanation.check(self.program, status)
    }

    fn start(&mut self) -> io::Result<(Child, Receiver<String>)> {
        let (reader, writer) = io::pipe()?;
        self.command.stdout(writer.try_clone()?).stderr(writer);
        let child = self.command.spawn()?;
        // Dropped, because the command holds its ends of the pipe open and the reader would see no end.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        let (send, lines) = channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if send.send(text).is_err() {
                    break;
                }
            }
        });
        Ok((child, lines))
    }
}

fn end(child: &Child, signal: Signal) {
    if let Ok(pid) = i32::try_from(child.id())
        && let Some(pid) = Pid::from_raw(pid)
    {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// Whether this process needs a user namespace to create files with several owners.
pub(crate) fn is_ordinary_user() -> bool {
    !geteuid().is_root()
}

/// Finds a program, also in directories that an ordinary user's PATH lacks.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// The search path: the system's directories first, `/usr/local` last. A program that a package installs in the tree must
/// not replace a program that the build runs in that tree.
fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    let own: Vec<&str> = own.split(':').filter(|directory| !directory.starts_with("/usr/local")).collect();
    format!("/usr/sbin:/usr/bin:/sbin:/bin:{}:/usr/local/sbin:/usr/local/bin", own.join(":"))
}

fn cannot_run(program: &str, source: io::Error) -> ToolError {
    let program = program.to_owned();
    let package = TOOLS.iter().find(|(tool, _)| *tool == program).map(|(_, package)| *package);
    match package {
        Some(package) if source.kind() == io::ErrorKind::NotFound => ToolError::Missing { program, package },
        _ => ToolError::Run { program, source },
    }
}

/// The output lines that explain a program's failure.
#[derive(Default)]
struct FailureLines {
    last: VecDeque<String>,
    /// The lines marked with `E:` by apt, dpkg and mmdebstrap.
    marked: Vec<String>,
    disk_full: bool,
}

impl FailureLines {
    fn add(&mut self, line: String) {
        self.disk_full |= line.contains("No space left on device");
        if let Some(error) = line.strip_prefix("E: ")
            && self.marked.len() < KEPT_LINES
        {
            // The first mark often only says that a script failed; the script's own output just before says why.
            let cause = self.last.back().filter(|_| self.marked.is_empty()).cloned();
            self.marked.extend(cause);
            self.marked.push(error.to_owned());
        }
        if self.last.len() == KEPT_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    fn check(self, program: &str, status: ExitStatus) -> Result<(), ToolError> {
        let program = program.to_owned();
        if status.success() {
            return Ok(());
        }
        if self.disk_full {
            return Err(ToolError::NoSpace { program });
        }
        let words = if self.marked.is_empty() { Vec::from(self.last) } else { self.marked };
        Err(ToolError::Failed { program, status, said: words.join("; ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usr_local_is_searched_last() {
        let path = search_path();
        let place = |wanted: &str| path.split(':').position(|directory| directory == wanted).unwrap();
        assert!(place("/usr/bin") < 4 && place("/usr/sbin") < 4);
        assert!(place("/usr/local/bin") > place("/bin") && !path.starts_with("/usr/local"));
    }

    #[test]
    fn programs_see_only_a_few_variables_of_this_process() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo sets it for tests");
        let seen = Tool::new("env").capture().unwrap();
        let own = ["PATH", "LC_ALL", "DEBIAN_FRONTEND"];
        for name in seen.lines().filter_map(|line| Some(line.split_once('=')?.0)) {
            assert!(own.contains(&name) || KEPT_VARIABLES.contains(&name), "{name}");
        }
    }

    #[test]
    fn both_streams_are_reported_and_a_failure_has_the_marked_lines() {
        let mut heard = Vec::new();
        let error = Tool::new("sh")
            .args(["-c", "echo one; echo 'E: bad thing' >&2; exit 3"])
            .follow(|event| {
                if let Event::Line(line) = event {
                    heard.push(line.to_owned());
                }
            })
            .unwrap_err();
        assert_eq!(heard, ["one", "E: bad thing"]);
        assert!(matches!(&error, ToolError::Failed { said, .. } if said == "one; bad thing"), "{error}");
    }

    #[test]
    fn a_silent_program_is_reported_as_silent() {
        let mut ticks = 0;
        Tool::new("sh")
            .args(["-c", "exec sleep 1.5"])
            .follow(|event| ticks += u32::from(matches!(event, Event::Silence)))
            .unwrap();
        assert!(ticks >= 1);
    }

    #[test]
    fn a_full_disk_is_a_separate_error() {
        let script = "echo 'cp: error writing: No space left on device' >&2; exit 1";
        let error = Tool::new("sh").args(["-c", script]).capture().unwrap_err();
        assert!(matches!(error, ToolError::NoSpace { .. }), "{error}");
    }

    #[test]
    fn a_missing_program_is_reported_with_its_package() {
        let error = cannot_run("mke2fs", io::ErrorKind::NotFound.into());
        assert!(error.to_string().contains("apt-get install e2fsprogs"), "{error}");
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        // It prints all the time, so silence is not what ends it.
        let endless = Tool::new("sh").args(["-c", "while :; do echo x; sleep 0.1; done"]);
        let error = endless.within(Duration::from_millis(300)).follow(|_| ()).unwrap_err();
        assert!(matches!(error, ToolError::TooSlow { .. }), "{error}");
        Tool::new("true").within(Duration::from_secs(60)).follow(|_| ()).unwrap();
    }
}
