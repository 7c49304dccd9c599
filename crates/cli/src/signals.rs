//! Stopping on signals.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::outcome;

/// Returns a token that SIGINT, SIGTERM or SIGHUP cancels, so that the caller can clean up. A second signal exits at
/// once; sandboxes that are left behind end when their TTL expires.
pub fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    let (mut terminations, mut interrupts) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangups = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminations.recv() => {}
                _ = interrupts.recv() => {}
                () = next(hangups.as_mut()) => {}
            }
            if stopped.is_cancelled() {
                std::process::exit(i32::from(outcome::INTERRUPTED));
            }
            stopped.cancel();
        }
    });
    Ok(stop)
}

async fn next(signals: Option<&mut Signal>) {
    match signals {
        Some(signals) => drop(signals.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP is ignored, as under `nohup`. Installing a handler would undo that.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}
