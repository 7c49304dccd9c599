//! Reading a file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sandling_protocol::{CHUNK, Part, Response};

use super::path::about;
use super::serve::Stopped;
use crate::worker::WorkerStream;

/// Sends the bytes of a file from `offset` on, at most `length` of them.
pub fn read(path: &Path, offset: u64, length: Option<u64>, work: &mut WorkerStream) -> Result<Response, Stopped> {
    // Opening a pipe without a writer would block otherwise.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(about(path))?;
    let size = file.metadata().map_err(about(path))?.len();
    let mut file = file;
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(about(path))?;
    }
    let mut limited = file.take(length.unwrap_or(u64::MAX));
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let length = limited.read(&mut buffer).map_err(about(path))?;
        if length == 0 {
            return Ok(Response::Read { bytes, size });
        }
        work.send(Part::Bytes, &buffer[..length])?;
        bytes += length as u64;
    }
}
