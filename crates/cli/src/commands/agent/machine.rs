//! The sandbox of a task.

use std::sync::Arc;
use std::time::Duration;

use sandling_api::CreateSandbox;
use sandling_tools::{Settings, Toolbox};
use serde_json::json;

use crate::client::{Client, Sandbox};
use crate::options::Agent;
use crate::outcome;

/// Beyond the loop's own time: for setup, checks, and bringing back what was done.
const TTL_SLACK_SECONDS: u64 = 1800;
const REMOVE_WITHIN: Duration = Duration::from_secs(30);

pub struct Machine {
    client: Arc<Client>,
    pub toolbox: Toolbox,
}

impl Machine {
    pub async fn make(options: &Agent) -> anyhow::Result<Self> {
        let client = Arc::new(Client::find_or_start().await?);
        let wish = CreateSandbox {
            template: Some(options.template.clone()),
            ttl_seconds: Some(options.budget.max_time.saturating_add(TTL_SLACK_SECONDS)),
            labels: Some([("made-by".to_owned(), "agent".to_owned())].into()),
            ..CreateSandbox::default()
        };
        let made: Sandbox = client.post("/v1/sandboxes", &wish).await?;
        let settings = Settings { timeout: Duration::from_secs(options.budget.command_timeout), ..Settings::default() };
        let directory = json!({ "path": settings.directory });
        let machine = Self { toolbox: Toolbox::new(client.clone(), made.id, settings), client };
        let path = format!("/v1/sandboxes/{}/fs/mkdir", machine.toolbox.sandbox());
        if let Err(error) = machine.client.tell(&path, &directory).await {
            machine.end().await;
            return Err(error.into());
        }
        Ok(machine)
    }

    pub async fn end(&self) {
        Self::remove(&self.client, self.toolbox.sandbox()).await;
    }

    pub async fn remove(client: &Client, sandbox: &str) {
        let why = match tokio::time::timeout(REMOVE_WITHIN, client.delete(&format!("/v1/sandboxes/{sandbox}"))).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) if error.is_missing() => return,
            Ok(Err(error)) => outcome::chain(&error),
            Err(_) => "the server does not answer".to_owned(),
        };
        eprintln!("sandling: sandbox {sandbox} could not be removed, and ends by itself when its time is over: {why}");
    }
}
