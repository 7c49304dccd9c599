//! The places where the commands run: the host, other sandboxes, and Sandling's. All of them stay up.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sandling_engine::{EndReason, Engine, RunSpec, Sandbox};

use crate::contenders::spec;

/// For all places but Sandling's, which have the host's programs: a version switcher or a wrapper in another directory
/// would add its own time.
const PATH: &str = "/usr/bin:/bin";
const END: &str = "@end-of-command";
const LIMIT: Duration = Duration::from_secs(600);

/// A command's time, and whether it succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    pub took: Duration,
    pub succeeded: bool,
}

pub enum Place {
    Shell(Shell),
    Sandling(Arc<Sandbox>),
}

impl Place {
    /// The host itself, without a sandbox.
    pub fn host(work: &Path) -> anyhow::Result<Self> {
        Shell::start(&["/bin/sh"], work).map(Self::Shell)
    }

    pub fn bubblewrap(work: &Path) -> anyhow::Result<Self> {
        let work_text = work.to_str().context("the directory's name is not text")?;
        let words = [
            &["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"][..],
            &["--bind", work_text, "/mnt", "--chdir", "/mnt", "--unshare-all", "--die-with-parent", "/bin/sh"],
        ];
        Shell::start(&words.concat(), work).map(Self::Shell)
    }

    pub fn gvisor(work: &Path) -> anyhow::Result<Self> {
        let words = ["runsc", "--rootless", "--network=none", "--platform=ptrace", "do", "/bin/sh"];
        Shell::start(&words, work).map(Self::Shell)
    }

    pub fn podman(work: &Path) -> anyhow::Result<Self> {
        let work_text = work.to_str().context("the directory's name is not text")?;
        let bound = format!("{work_text}:/mnt");
        let words = [
            &["podman", "run", "--interactive", "--rm", "--network=none", "--volume", bound.as_str()][..],
            &["--workdir", "/mnt", "--rootfs", "/:O", "/bin/sh"],
        ];
        Shell::start(&words.concat(), work).map(Self::Shell)
    }

    pub async fn sandling(engine: &Arc<Engine>, template: &str) -> anyhow::Result<Self> {
        Ok(Self::Sandling(engine.create(spec(template)).await?))
    }

    /// Runs a line in a new shell, in `directory` below the place's own.
    pub async fn run(&mut self, directory: &str, line: &str) -> anyhow::Result<Ran> {
        let line = format!("cd {directory} && {{ {line}\n}} >/dev/null 2>&1");
        match self {
            Self::Shell(shell) => shell.run(&format!("export PATH={PATH}; {line}")),
            Self::Sandling(sandbox) => {
                let begun = Instant::now();
                let mut run = RunSpec::shell(line);
                run.timeout = Some(LIMIT);
                let ran = sandbox.run(run)?.collect().await?;
                Ok(Ran { took: begun.elapsed(), succeeded: ran.exit.code == 0 })
            }
        }
    }

    pub async fn end(self) -> anyhow::Result<()> {
        match self {
            Self::Shell(shell) => shell.end(),
            Self::Sandling(sandbox) => Ok(sandbox.end(EndReason::Requested).await?),
        }
    }
}

/// A shell that stays up and starts a new shell for each command.
pub struct Shell {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start(words: &[&str], work: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(work).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().with_context(|| format!("{} is not installed", words[0]))?;
        let input = process.stdin.take().context("no input")?;
        let output = BufReader::new(process.stdout.take().context("no output")?);
        let mut shell = Self { process, input, output };
        match shell.run("true") {
            Ok(ran) if ran.succeeded => Ok(shell),
            _ => {
                shell.end()?;
                bail!("{} does not work on this host", words[0])
            }
        }
    }

    fn run(&mut self, line: &str) -> anyhow::Result<Ran> {
        let quoted = line.replace('\'', r"'\''");
        let begun = Instant::now();
        self.input.write_all(format!("/bin/sh -c '{quoted}' </dev/null; echo {END} $?\n").as_bytes())?;
        let mut answer = String::new();
        while !answer.starts_with(END) {
            answer.clear();
            if self.output.read_line(&mut answer)? == 0 {
                bail!("the shell has ended");
            }
        }
        Ok(Ran { took: begun.elapsed(), succeeded: answer.trim_start_matches(END).trim() == "0" })
    }

    fn end(mut self) -> anyhow::Result<()> {
        // It may have ended by itself.
        let _ = self.process.kill();
        self.process.wait()?;
        Ok(())
    }
}
