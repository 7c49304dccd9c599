//! The caller's side: starts the confined process, reads its messages, and ends it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};

use super::child::UNPACK_ARGUMENT;
use super::message::{LayerFd, Message, Request};
use crate::layers::LayerInput;
use crate::unpack::{Progress, Summary, UnpackOptions};

/// How to run the confined process.
#[derive(Debug, Clone)]
pub struct Jail {
    /// A program that calls [`super::unpack_main`] if its first argument is [`UNPACK_ARGUMENT`].
    pub launcher: PathBuf,
    /// How long unpacking may take.
    pub deadline: Duration,
    /// How much memory it may use. Names, links and attributes of the whole image are in memory.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    pub summary: Summary,
    /// Protections that this host does not offer, one line each.
    pub missing: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum JailError {
    #[error("cannot start the process that unpacks layers")]
    Start(#[source] io::Error),
    #[error("cannot read from the process that unpacks layers")]
    Read(#[source] io::Error),
    #[error("{message}")]
    Refused { message: String, disk_too_small: bool },
    #[error("unpacking the image took longer than {} seconds, which is the limit", limit.as_secs())]
    Timeout { limit: Duration },
    #[error(
        "the process that unpacks layers ended unexpectedly ({status}); it may need more than {memory_mib} MiB of memory"
    )]
    Died { status: String, memory_mib: u64 },
    #[error("the process that unpacks layers sent a malformed message")]
    Malformed,
}

/// Messages are short, and the process may be compromised.
const MOST_LINE: usize = 64 << 10;
const MOST_TEXT: usize = 2000;

impl Jail {
    /// Makes a disk of an image's layers, as [`crate::unpack`] does. Blocks until the process has ended.
    ///
    /// If this fails, `out` has no valid content. The descriptors of the layers should be read-only.
    pub fn unpack(
        &self,
        layers: &[LayerInput],
        out: &File,
        options: &UnpackOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Unpacked, JailError> {
        let end = Instant::now() + self.deadline;
        let mut process = self.start(layers, out, options).map_err(JailError::Start)?;
        let result = self.follow(&mut process.output, end, progress);
        let status = process.end().map_err(JailError::Read)?;
        result?.ok_or_else(|| self.died(status))
    }

    fn start(&self, layers: &[LayerInput], out: &File, options: &UnpackOptions) -> io::Result<Process> {
        let layer_fd = |layer: &LayerInput| LayerFd {
            fd: layer.file.as_raw_fd(),
            offset: layer.offset,
            length: layer.length,
            media_type: layer.media_type.clone(),
            digest: layer.digest.clone(),
            diff_id: layer.diff_id.clone(),
        };
        // Each layer gets its own descriptor, even if several are in one file.
        let copies = layers.iter().map(|layer| layer.file.try_clone()).collect::<io::Result<Vec<_>>>()?;
        let described =
            layers.iter().zip(&copies).map(|(layer, copy)| LayerFd { fd: copy.as_raw_fd(), ..layer_fd(layer) });
        let request = Request {
            layers: described.collect(),
            out: out.as_raw_fd(),
            options: options.clone(),
            cpu_seconds: self.deadline.as_secs() + 1,
            memory_bytes: self.memory_bytes,
        };
        let inherited: Vec<RawFd> = request.layers.iter().map(|layer| layer.fd).chain([request.out]).collect();
        let mut command = Command::new(&self.launcher);
        command.arg(UNPACK_ARGUMENT).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let inherit = move || {
            inherited.iter().try_for_each(|fd| {
                // SAFETY: `copies` and `out` are open until the process has started.
                let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
                Ok(fcntl_setfd(fd, FdFlags::empty())?)
            })
        };
        // SAFETY: between fork and exec, the closure only makes system calls.
        unsafe { command.pre_exec(inherit) };
        let mut child = command.spawn()?;
        let output = child.stdout.take().expect("it was piped");
        let mut input = child.stdin.take().expect("it was piped");
        let process = Process { child, output };
        // A process that fails early reports why, so a closed pipe is no error here.
        let _ = input.write_all(&serde_json::to_vec(&request)?);
        Ok(process)
    }

    /// Reads messages until the process is done. `None`: it ended without a result.
    fn follow(
        &self,
        output: &mut ChildStdout,
        end: Instant,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Unpacked>, JailError> {
        let mut missing = Vec::new();
        let mut waiting = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            if !readable(output, end).map_err(JailError::Read)? {
                return Err(JailError::Timeout { limit: self.deadline });
            }
            let count = output.read(&mut buffer).map_err(JailError::Read)?;
            if count == 0 {
                return Ok(None);
            }
            waiting.extend_from_slice(&buffer[..count]);
            while let Some(at) = waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=at).collect();
                match serde_json::from_slice(&line).map_err(|_| JailError::Malformed)? {
                    Message::Confined { missing: lines } => missing = lines.iter().map(|line| plain(line)).collect(),
                    Message::Progress(now) => progress(now),
                    Message::Done(summary) => return Ok(Some(Unpacked { summary, missing })),
                    Message::Failed { message, disk_too_small } => {
                        return Err(JailError::Refused { message: plain(&message), disk_too_small });
                    }
                }
            }
            if waiting.len() > MOST_LINE {
                return Err(JailError::Malformed);
            }
        }
    }

    fn died(&self, status: ExitStatus) -> JailError {
        // The process that waits for the confined one passes a signal on as a shell does.
        let signal = status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128));
        if signal == Some(libc::SIGXCPU) {
            return JailError::Timeout { limit: self.deadline };
        }
        let status = signal.map_or_else(|| status.to_string(), |signal| format!("signal {signal}"));
        JailError::Died { status, memory_mib: self.memory_bytes >> 20 }
    }
}

/// Waits for output; `false` at the deadline.
fn readable(output: &ChildStdout, end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => (),
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Text of the confined process, without control characters.
fn plain(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).take(MOST_TEXT).collect()
}

/// The process and its group, which end together with this value.
struct Process {
    child: Child,
    output: ChildStdout,
}

impl Process {
    /// Ends the process, if it has not ended by itself.
    fn end(mut self) -> io::Result<ExitStatus> {
        // At the end of its output, the process is about to end. Its exit status is needed only then, so it gets a
        // moment.
        let given_up = Instant::now() + Duration::from_millis(200);
        while Instant::now() < given_up {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kill();
        self.child.wait()
    }

    fn kill(&self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that was waited for has no id that could belong to another one.
        if let Ok(None) = self.child.try_wait() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}
