//! The confined process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::process::ExitCode;

use super::confine::{self, Entered, ResourceLimits};
use super::message::{LayerFd, Message, Request};
use crate::layers::LayerInput;
use crate::unpack::{Progress, Summary, UnpackError, UnpackOptions, unpack};

/// The first argument of a program that must call [`unpack_main`] at once.
pub const UNPACK_ARGUMENT: &str = "__unpack-layers";

/// What the confined process does with its descriptors.
pub type Work = fn(&[LayerInput], &File, &UnpackOptions, &mut dyn FnMut(Progress)) -> Result<Summary, UnpackError>;

/// What a program does when its first argument is [`UNPACK_ARGUMENT`], before it starts a thread.
pub fn unpack_main() -> ExitCode {
    confined_main(unpack)
}

/// [`unpack_main`] with other work, for tests of the confinement.
pub fn confined_main(work: Work) -> ExitCode {
    match run(work) {
        Ok(code) => code,
        Err(error) => {
            let message = format!("cannot confine the process that unpacks layers: {error}");
            // This fails if the parent is dead.
            let _ = send(&Message::Failed { message, disk_too_small: false });
            ExitCode::FAILURE
        }
    }
}

fn run(work: Work) -> io::Result<ExitCode> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text)?;
    let fds: Vec<RawFd> = request.layers.iter().map(|layer| layer.fd).chain([request.out]).collect();
    confine::close_others(&fds)?;
    let mut missing = Vec::new();
    if let Entered::Outside(code) = confine::enter_namespaces(&mut missing)? {
        return Ok(code);
    }
    let layers: Vec<LayerInput> = request.layers.into_iter().map(layer_input).collect();
    // SAFETY: the parent passes this descriptor for this purpose, and nothing else owns it.
    let out = unsafe { File::from_raw_fd(request.out) };
    let limits = ResourceLimits {
        cpu_seconds: request.cpu_seconds,
        memory_bytes: request.memory_bytes,
        file_bytes: u64::from(request.options.disk_mib) << 20,
    };
    confine::drop_privileges(&mut missing)?;
    confine::deny_files(&mut missing).map_err(io::Error::other)?;
    confine::limit_resources(&limits, fds.iter().copied().max().unwrap_or(2))?;
    confine::deny_system_calls()?;
    send(&Message::Confined { missing })?;

    let result = work(&layers, &out, &request.options, &mut |progress| {
        let _ = send(&Message::Progress(progress));
    });
    match result {
        Ok(summary) => send(&Message::Done(summary)).map(|()| ExitCode::SUCCESS),
        Err(error) => {
            let disk_too_small = error.is_disk_too_small();
            send(&Message::Failed { message: error.to_string(), disk_too_small }).map(|()| ExitCode::FAILURE)
        }
    }
}

fn layer_input(layer: LayerFd) -> LayerInput {
    let LayerFd { fd, offset, length, media_type, digest, diff_id } = layer;
    // SAFETY: the parent passes each descriptor once, and nothing else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    LayerInput { file, offset, length, media_type, digest, diff_id }
}

fn send(message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
