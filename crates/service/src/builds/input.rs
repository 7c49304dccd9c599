//! Streams of files for the builder inside a machine.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use sandling_engine::{Download, EndReason, Sandbox, StreamSender, UseError};
use tokio::sync::mpsc;

use super::context::Context;
use super::machine::BuildFailure;

const CHUNK: usize = 64 * 1024;
const CHUNKS: usize = 16;

/// The files of one COPY, or of one bind mount.
pub(super) enum Input {
    /// A part of the uploaded directory.
    Context {
        context: Arc<Context>,
        sources: Vec<String>,
        excludes: Vec<String>,
    },
    Text(Vec<(String, String)>),
    /// What another machine has packed. The machine ends when the stream was sent.
    Packed {
        download: Box<Download>,
        machine: Arc<Sandbox>,
    },
    /// An archive that a client sent for this step.
    Archive(tokio::fs::File),
}

impl Input {
    pub(super) async fn send(self, to: &StreamSender) -> Result<(), BuildFailure> {
        match self {
            Self::Context { context, sources, excludes } => {
                let (sender, chunks) = mpsc::channel(CHUNKS);
                let writing = tokio::task::spawn_blocking(move || {
                    let taken = context.take(&sources, &excludes)?;
                    let out = io::BufWriter::with_capacity(CHUNK, Chunks(sender));
                    taken.write(out).map_err(BuildFailure::Archive)
                });
                forward(chunks, to).await?;
                writing.await.map_err(|error| BuildFailure::Archive(io::Error::other(error)))??;
            }
            Self::Text(files) => send(to, &text_stream(&files).map_err(BuildFailure::Archive)?).await?,
            Self::Packed { mut download, machine } => {
                let sent = async {
                    while let Some(bytes) = download.next().await? {
                        send(to, &bytes).await?;
                    }
                    Ok::<_, BuildFailure>(())
                };
                let sent = sent.await;
                let _ = machine.end(EndReason::Requested).await;
                sent?;
            }
            Self::Archive(mut file) => {
                use tokio::io::AsyncReadExt;
                let mut buffer = vec![0; CHUNK];
                loop {
                    let read = file.read(&mut buffer).await.map_err(BuildFailure::Archive)?;
                    if read == 0 {
                        break;
                    }
                    send(to, &buffer[..read]).await?;
                }
            }
        }
        Ok(to.finish().map_err(UseError::from)?)
    }
}

async fn send(to: &StreamSender, bytes: &[u8]) -> Result<(), BuildFailure> {
    Ok(to.send(bytes).await.map_err(UseError::from)?)
}

async fn forward(mut chunks: mpsc::Receiver<Vec<u8>>, to: &StreamSender) -> Result<(), BuildFailure> {
    while let Some(chunk) = chunks.recv().await {
        send(to, &chunk).await?;
    }
    Ok(())
}

/// A writer whose bytes another task sends.
struct Chunks(mpsc::Sender<Vec<u8>>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.blocking_send(bytes.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Files that the Dockerfile has itself.
fn text_stream(files: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        tar.append_data(&mut header, Path::new("f").join(name), text.as_bytes())?;
    }
    tar.into_inner()
}
