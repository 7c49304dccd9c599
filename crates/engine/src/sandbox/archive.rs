//! Directories as tar streams, which the guest's own tar packs and unpacks. Thousands of files take one command.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandling_protocol::{Failure, FailureKind, Part, Program, Stdin};

use super::error::UseError;
use super::exec::{Execution, Output, RunError, RunSpec};
use super::handle::Sandbox;
use crate::link::{LinkError, StreamSender};

/// GNU tar moves 10 KiB at a time, and an emulated guest then mostly switches between processes. In pieces of the size of a
/// pipe, a large file takes a third to a half of the time. Other tars ignore the variable.
const TAR_OPTIONS: &str = "--blocking-factor=128";
/// Unpacks into the directory that is its argument, and creates it. The files belong to the user who runs it.
const UNPACK: &str = "mkdir -p -- \"$0\" && exec tar -xpf - --no-same-owner -C \"$0\"";
/// Packs the directory that is its argument, without what the kernel makes up: some of those files have no end. A file that
/// changes meanwhile is no failure.
const PACK: &str = r#"cd -- "$0" || exit
case $(pwd -P) in
/) set -- --exclude=./proc --exclude=./sys ;;
/proc | /proc/* | /sys | /sys/*) echo "$0: the kernel makes these files up, so they cannot be copied" >&2; exit 2 ;;
esac
tar "$@" -cf - .; status=$?; [ $status = 1 ] || exit $status"#;
/// The most of tar's messages that an error shows.
const SHOWN: usize = 400;

/// A directory that is being written. All of it is there when [`ArchiveUpload::finish`] returned.
pub struct ArchiveUpload {
    execution: Execution,
    sender: StreamSender,
}

/// A directory that is being read, as a tar.
pub struct ArchiveDownload {
    execution: Execution,
    errors: Vec<u8>,
}

impl Sandbox {
    /// Unpacks a tar into a directory. Links and permissions are kept; owners are not.
    pub fn write_archive(self: &Arc<Self>, path: &str) -> Result<ArchiveUpload, UseError> {
        let execution = self.run(spec(UNPACK, path, Stdin::Open))?;
        Ok(ArchiveUpload { sender: execution.stdin(), execution })
    }

    /// A directory with everything below it, as a tar whose names start with `./`.
    pub fn read_archive(self: &Arc<Self>, path: &str) -> Result<ArchiveDownload, UseError> {
        Ok(ArchiveDownload { execution: self.run(spec(PACK, path, Stdin::Closed))?, errors: Vec::new() })
    }
}

fn spec(script: &str, path: &str, stdin: Stdin) -> RunSpec {
    let program = ["sh", "-c", script, path].map(str::to_owned).to_vec();
    let env = BTreeMap::from([("TAR_OPTIONS".to_owned(), TAR_OPTIONS.to_owned())]);
    RunSpec { stdin, env, output_limit: u64::MAX, ..RunSpec::new(Program::Argv(program)) }
}

impl ArchiveUpload {
    pub async fn send(&self, bytes: &[u8]) -> Result<(), UseError> {
        Ok(self.sender.send(bytes).await?)
    }

    pub async fn finish(self) -> Result<(), RunError> {
        // A tar that has failed already does not read its input to the end.
        let _ = self.sender.finish();
        let ended = self.execution.collect().await?;
        if ended.exit.code == 0 { Ok(()) } else { Err(failed(ended.exit.code, &ended.stderr)) }
    }
}

impl ArchiveDownload {
    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, RunError> {
        loop {
            match self.execution.next().await? {
                Output::Bytes { part: Part::Stderr, bytes, .. } => {
                    let room = SHOWN.saturating_sub(self.errors.len());
                    self.errors.extend(bytes.into_iter().take(room));
                }
                Output::Bytes { bytes, .. } => return Ok(Some(bytes)),
                Output::Exited(exit) if exit.code == 0 => return Ok(None),
                Output::Exited(exit) => return Err(failed(exit.code, &self.errors)),
                Output::Started { .. } | Output::Dropped(_) => {}
            }
        }
    }
}

/// What tar says. A shell exits with 127 if there is no tar.
fn failed(code: i32, stderr: &[u8]) -> RunError {
    let shown = stderr.len().min(SHOWN);
    let text = String::from_utf8_lossy(&stderr[..shown]).trim().to_owned();
    let (kind, message) = match code {
        127 => (FailureKind::Unsupported, "the sandbox has no tar; copy the files one by one".to_owned()),
        _ if text.contains("No such file") => (FailureKind::NotFound, text),
        _ if text.contains("No space") => (FailureKind::NoSpace, text),
        _ => (FailureKind::Other, format!("tar failed in the sandbox: {text}")),
    };
    UseError::Link(LinkError::Failed(Failure { kind, message })).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32, stderr: &str) -> FailureKind {
        let RunError::Use(UseError::Link(LinkError::Failed(failure))) = failed(code, stderr.as_bytes()) else {
            panic!()
        };
        failure.kind
    }

    #[test]
    fn errors_of_tar_have_a_kind() {
        assert_eq!(kind(127, "sh: 1: exec: tar: not found"), FailureKind::Unsupported);
        assert_eq!(kind(2, "sh: 1: cd: can't cd to /x: No such file or directory"), FailureKind::NotFound);
        assert_eq!(kind(2, "tar: x: Cannot write: No space left on device"), FailureKind::NoSpace);
        assert_eq!(kind(2, "tar: This does not look like a tar archive"), FailureKind::Other);
    }

    #[test]
    fn the_scripts_copy_a_tree() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from it's"), directory.path().join("new/to"));
        std::fs::create_dir_all(from.join("deep")).unwrap();
        std::fs::write(from.join("deep/file"), "1").unwrap();
        let run = |script: &str, path: &std::path::Path, input: &[u8]| {
            use std::io::Write;
            use std::process::{Command, Stdio};
            let mut command = Command::new("sh");
            command.args(["-c", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(input).unwrap();
            child.wait_with_output().unwrap()
        };
        let packed = run(PACK, &from, b"");
        assert!(packed.status.success());
        assert!(run(UNPACK, &to, &packed.stdout).status.success());
        assert_eq!(std::fs::read(to.join("deep/file")).unwrap(), b"1");
        assert!(!run(PACK, &directory.path().join("missing"), b"").status.success());
    }
}
