//! Writing a file of a sandbox.
//!
//! The first bytes take the control channel. What follows is collected in a file on the host. If it is little, it takes the
//! channel as well. Otherwise the machine gets the file as a disk for a moment, which under emulation takes a fifth of the
//! time.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use sandling_protocol::{Failure, FailureKind, LentDisk, Request, Response, generation};
use sandling_vmm::machine::{LENT_SLOT, MachineError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use super::activity::InUse;
use super::error::UseError;
use crate::host::available_space_mib;
use crate::link::{LinkError, Stream, StreamSender};
use crate::machine::Live;

/// A multiple of a block, so that the rest of the file starts at one.
const FIRST: usize = 256 * 1024;
/// Plugging a disk in takes the guest as long as this many bytes of the channel.
const LEAST_ON_DISK: u64 = 8 << 20;
/// A larger upload takes several disks.
const MOST_ON_DISK: u64 = 128 << 20;
/// So many uploads of this process collect bytes at once. Others take the channel.
static PLACES: Semaphore = Semaphore::const_new(4);
/// If the host has less space, uploads take the channel.
const SPACE_MIB: u64 = 2048;
const BUFFER: usize = 64 * 1024;

/// A file that is being written. It is there when [`Upload::finish`] returned, and not before.
pub struct Upload {
    live: Arc<Live>,
    stream: Stream,
    sender: StreamSender,
    /// How many of the first bytes have been sent.
    first: usize,
    collected: Option<Collected>,
    collects: bool,
    _in_use: InUse,
}

/// Bytes of an upload, in a file without a name.
struct Collected {
    file: tokio::fs::File,
    disk: LentDisk,
    _place: SemaphorePermit<'static>,
}

impl Upload {
    pub(super) fn new(live: Arc<Live>, stream: Stream, in_use: InUse) -> Self {
        let collects = live.link.generation() >= generation::TAKES_DISKS;
        Self { sender: stream.sender(), live, stream, first: 0, collected: None, collects, _in_use: in_use }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), UseError> {
        let (first, mut rest) = bytes.split_at(bytes.len().min(FIRST - self.first));
        self.first += first.len();
        self.through_channel(first).await?;
        while !rest.is_empty() {
            if self.collected.is_none() && self.collects {
                self.collected = Collected::begin(self.live.machine.dir().path()).await;
                self.collects = self.collected.is_some();
            }
            let Some(collected) = &mut self.collected else { return self.through_channel(rest).await };
            let room = usize::try_from(MOST_ON_DISK - collected.disk.bytes).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(room));
            collected.add(now).await.map_err(no_room)?;
            if collected.disk.bytes == MOST_ON_DISK {
                self.hand_over().await?;
            }
            rest = later;
        }
        Ok(())
    }

    pub async fn send_all(&mut self, mut source: impl AsyncRead + Unpin) -> io::Result<Result<(), UseError>> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = source.read(&mut buffer).await?;
            if read == 0 {
                return Ok(Ok(()));
            }
            if let Err(error) = self.send(&buffer[..read]).await {
                return Ok(Err(error));
            }
        }
    }

    /// Puts the file in its place, and says how many bytes it has.
    pub async fn finish(mut self) -> Result<u64, UseError> {
        self.hand_over().await?;
        self.sender.finish()?;
        match self.stream.drain(|_, _| {}).await? {
            Response::Written { bytes } => Ok(bytes),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    async fn through_channel(&self, bytes: &[u8]) -> Result<(), UseError> {
        match self.sender.send(bytes).await {
            // The guest ended the stream; why is in the outcome that `finish` reads.
            Ok(()) | Err(LinkError::Closed(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the guest what was collected.
    async fn hand_over(&mut self) -> Result<(), UseError> {
        let Some(mut collected) = self.collected.take() else { return Ok(()) };
        if collected.disk.bytes >= LEAST_ON_DISK {
            let file = collected.finish().await.map_err(no_room)?;
            match lend(self.live.clone(), file).await {
                Ok(lent) => return self.take(collected.disk, lent).await,
                Err(error) => {
                    tracing::info!(error = &error as &dyn std::error::Error, "an upload goes on without a disk");
                    self.collects = false;
                }
            }
        }
        collected.file.seek(io::SeekFrom::Start(LentDisk::BLOCK as u64)).await.map_err(no_room)?;
        let mut content = collected.file.take(collected.disk.bytes);
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = content.read(&mut buffer).await.map_err(no_room)?;
            if read == 0 {
                return Ok(());
            }
            self.through_channel(&buffer[..read]).await?;
        }
    }

    /// Waits until the guest has written the disk's bytes to its file.
    async fn take(&self, disk: LentDisk, lent: Lent) -> Result<(), UseError> {
        let taken = self.live.link.call(Request::TakeDisk { upload: self.stream.id(), disk }).await;
        drop(lent);
        match taken {
            // The upload has failed; why is in the outcome that `finish` reads.
            Ok(_) | Err(LinkError::Failed(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Collected {
    /// `None` if the host cannot collect more uploads now.
    async fn begin(dir: &Path) -> Option<Self> {
        let place = PLACES.try_acquire().ok()?;
        available_space_mib(dir).filter(|mib| *mib >= SPACE_MIB)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).ok()?);
        let disk = LentDisk { slot: LENT_SLOT, name: uuid::Uuid::new_v4().simple().to_string(), bytes: 0 };
        let mut file = tokio::fs::File::from_std(file);
        file.write_all(&disk.header()).await.ok()?;
        Some(Self { file, disk, _place: place })
    }

    async fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.bytes += bytes.len() as u64;
        self.file.write_all(bytes).await
    }

    /// Fills the last block, and opens the file for a machine, which may not write to it.
    async fn finish(&mut self) -> io::Result<File> {
        self.file.flush().await?;
        self.file.set_len((LentDisk::BLOCK as u64 + self.disk.bytes).next_multiple_of(LentDisk::BLOCK as u64)).await?;
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// The host could not keep an upload's bytes.
fn no_room(error: io::Error) -> UseError {
    let message = format!("the host cannot take the upload now ({error}); try again later");
    LinkError::Failed(Failure { kind: FailureKind::NoSpace, message }).into()
}

/// A disk that the machine has until this is dropped.
struct Lent {
    _keep: oneshot::Sender<()>,
}

/// Plugs a file into the machine. A task of its own takes it back, also if the upload is cut off.
async fn lend(live: Arc<Live>, file: File) -> Result<Lent, MachineError> {
    let (answer, plugged) = oneshot::channel();
    let (keep, returned) = oneshot::channel();
    tokio::spawn(async move {
        let lent = match live.machine.lend(&file).await {
            Ok(lent) => lent,
            Err(error) => return drop(answer.send(Err(error))),
        };
        // If nobody waits any more, the disk is returned at once.
        let _ = answer.send(Ok(()));
        let _ = returned.await;
        if let Err(error) = live.machine.take_back(lent).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the disk of an upload could not be removed");
        }
    });
    plugged.await.unwrap_or(Err(MachineError::StillLent)).map(|()| Lent { _keep: keep })
}
