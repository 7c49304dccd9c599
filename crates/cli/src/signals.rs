//! Being asked to end.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::outcome;

/// Cancelled by Ctrl-C or a request to end, so that everything is ended in order; asked twice, this process leaves at
/// once. What it leaves behind ends by itself when its time is over.
pub fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let (mut terminations, mut interrupts) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminations.recv() => {}
                _ = interrupts.recv() => {}
            }
            if stopped.is_cancelled() {
                std::process::exit(i32::from(outcome::INTERRUPTED));
            }
            stopped.cancel();
        }
    });
    Ok(stop)
}
