//! A disk that stands on many layers is made to stand on few, while the guest runs: what lies in the upper ones is
//! copied into the machine's own file. The layers themselves, which others may stand on, stay as they are.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::command_line::DISK;
use super::error::MachineError;
use super::handle::Machine;
use crate::qmp::QmpError;

const JOB: &str = "fold";
const FOLD_LIMIT: Duration = Duration::from_secs(600);
/// How long one that is given up may take to end, and how often that is looked for.
const CANCEL_LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Machine {
    /// Makes the disk stand on `base` alone, a layer of it as QEMU knows it (`/layers/NAME`). The disk must not be
    /// frozen meanwhile. If it fails or is cut off, the disk stands on what it stood on.
    pub async fn fold_disk(&self, base: &str) -> Result<(), MachineError> {
        let mut events = self.qmp.events();
        let arguments = json!({ "job-id": JOB, "device": DISK, "base": base, "backing-file": base });
        self.command("block-stream", arguments).await?;
        let limited = tokio::time::timeout(FOLD_LIMIT, async {
            loop {
                match events.recv().await {
                    Ok(event) if event.name == "BLOCK_JOB_COMPLETED" && event.data["device"] == JOB => {
                        return outcome(&event.data);
                    }
                    Ok(_) => {}
                    // What was missed may have been it.
                    Err(RecvError::Lagged(_)) if !self.folds().await? => return Ok(()),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(closed().into()),
                }
            }
        });
        match limited.await {
            Ok(folded) => folded,
            Err(_) => self.stop_folding().await,
        }
    }

    /// Gives up a fold that takes too long. The disk stands on what it stood on, unless it was done just now.
    async fn stop_folding(&self) -> Result<(), MachineError> {
        self.command("block-job-cancel", json!({ "device": JOB, "force": true })).await?;
        let deadline = Instant::now() + CANCEL_LIMIT;
        while self.folds().await? && Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(QmpError::TimedOut { command: "block-stream".to_owned(), limit: FOLD_LIMIT }.into())
    }

    async fn folds(&self) -> Result<bool, MachineError> {
        let jobs = self.command("query-block-jobs", json!({})).await?;
        Ok(jobs.as_array().is_some_and(|jobs| jobs.iter().any(|job| job["device"] == JOB)))
    }
}

fn closed() -> QmpError {
    QmpError::Closed { command: "block-stream".to_owned() }
}

fn outcome(data: &Value) -> Result<(), MachineError> {
    data["error"].as_str().map_or(Ok(()), |error| Err(refused(error)))
}

fn refused(why: &str) -> MachineError {
    let (command, class) = ("block-stream".to_owned(), "GenericError".to_owned());
    QmpError::Refused { command, class, description: why.to_owned() }.into()
}
