//! Reduces the number of a disk's layers while the guest runs: QEMU copies the content of the upper layers into the
//! machine's own file. The layers themselves do not change, because other machines may use them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::command_line::DISK;
use super::error::MachineError;
use super::handle::Machine;
use crate::qmp::QmpError;

const JOB: &str = "fold";
const FOLD_LIMIT: Duration = Duration::from_secs(600);
/// How long a cancelled fold may take to end, and how often its end is checked.
const CANCEL_LIMIT: Duration = Duration::from_secs(30);
const CHECK_EVERY: Duration = Duration::from_millis(50);

impl Machine {
    /// Makes `base`, one of the disk's layers by its name in the jail (`/layers/NAME`), the only layer below the disk.
    /// The machine must not be frozen meanwhile. If this fails or is interrupted, the disk keeps its layers.
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
                    // The missed events may have included the completion.
                    Err(RecvError::Lagged(_)) if !self.is_folding().await? => return Ok(()),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(closed().into()),
                }
            }
        });
        match limited.await {
            Ok(folded) => folded,
            Err(_) => self.cancel_fold().await,
        }
    }

    /// Cancels a fold that takes too long. The disk keeps its layers, unless the fold completes just now.
    async fn cancel_fold(&self) -> Result<(), MachineError> {
        self.command("block-job-cancel", json!({ "device": JOB, "force": true })).await?;
        let deadline = Instant::now() + CANCEL_LIMIT;
        while self.is_folding().await? && Instant::now() < deadline {
            tokio::time::sleep(CHECK_EVERY).await;
        }
        Err(QmpError::TimedOut { command: "block-stream".to_owned(), limit: FOLD_LIMIT }.into())
    }

    async fn is_folding(&self) -> Result<bool, MachineError> {
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
