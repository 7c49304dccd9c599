//! A task's sandbox, budget and observers.

use sandling_tools::{Action, CallControl, Observation, ToolError, Toolbox};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::{Budget, Spent};
use crate::ended_by::EndedBy;
use crate::events::{Event, Watch};
use crate::transcript::Transcript;

#[derive(Clone)]
pub struct Job<'a> {
    pub toolbox: &'a Toolbox,
    pub budget: Budget,
    pub transcript: Transcript,
    pub watch: Watch<'a>,
    pub stop: CancellationToken,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    /// The last text of the model.
    pub answer: String,
    pub ended: EndedBy,
    pub spent: Spent,
}

impl Job<'_> {
    /// Calls a tool. Kills it at the deadline, or when the user stops the task.
    pub(crate) async fn call(&self, name: &str, arguments: Value, deadline: Instant) -> Result<Observation, EndedBy> {
        self.controlled(deadline, async |control| self.toolbox.call(name, arguments, control).await).await
    }

    /// Does something with the desktop, with the same limits.
    pub(crate) async fn act(&self, action: &Action, deadline: Instant) -> Result<Observation, EndedBy> {
        self.controlled(deadline, async |control| self.toolbox.call_action(action, control).await).await
    }

    async fn controlled(
        &self,
        deadline: Instant,
        work: impl AsyncFnOnce(&CallControl<'_>) -> Result<Observation, ToolError>,
    ) -> Result<Observation, EndedBy> {
        let cancelled = self.stop.child_token();
        let printed = |stream, bytes: &[u8]| (self.watch)(Event::Printed(stream, bytes));
        let control = CallControl { cancelled: cancelled.clone(), watch: &printed };
        let mut call = std::pin::pin!(work(&control));
        let done = tokio::select! {
            done = &mut call => done,
            () = tokio::time::sleep_until(deadline) => {
                cancelled.cancel();
                call.await
            }
        };
        done.map_err(|error| match error {
            ToolError::Cancelled if self.stop.is_cancelled() => EndedBy::Stopped,
            ToolError::Cancelled => EndedBy::Time,
            other => EndedBy::Sandbox(other.to_string()),
        })
    }
}
