//! Blocking work of a machine.

use std::io;

use super::error::MachineError;

/// Runs it on another thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MachineError> + Send + 'static,
) -> Result<T, MachineError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(MachineError::Process(io::Error::other(error))))
}
