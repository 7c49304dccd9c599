//! Progress notifications for long calls.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(1);
/// How much of a line is shown.
const LINE: usize = 200;

/// The last line of a run's output, complete or not.
#[derive(Default)]
pub struct LastLine(Mutex<Vec<u8>>);

impl LastLine {
    pub fn heard(&self, bytes: &[u8]) {
        let mut line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes.trim_ascii_end();
        let last = bytes.iter().rposition(|byte| *byte == b'\n').map_or(bytes, |newline| &bytes[newline + 1..]);
        *line = last[..last.len().min(LINE)].to_vec();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Waits for work. Tells a client that asked for progress how long it has taken, and the last line of output.
pub async fn beside<T>(
    work: impl Future<Output = T>,
    peer: &Peer<RoleServer>,
    token: Option<ProgressToken>,
    longest: Duration,
    last: &LastLine,
) -> T {
    let mut work = std::pin::pin!(work);
    let started = Instant::now();
    let mut ticks = tokio::time::interval_at(started + EVERY, EVERY);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => {
                let Some(token) = token.clone() else { continue };
                let passed = started.elapsed().as_secs_f64();
                let sign = ProgressNotificationParam::new(token, passed)
                    .with_total(longest.as_secs_f64().max(passed))
                    .with_message(last.text());
                // A client that does not accept progress still wants the result.
                let _ = peer.notify_progress(sign).await;
            }
        }
    }
}
