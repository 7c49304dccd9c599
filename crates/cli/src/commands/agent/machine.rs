//! The sandbox in which a task runs.

use std::sync::Arc;
use std::time::Duration;

use sandling_agent::{Engine, Worker};
use sandling_tools::{Settings, Toolbox};
use sandling_wire::{CreateSandbox, NetworkRequest, SetSecret};
use serde_json::Value;

use super::keys;
use crate::client::{Client, Sandbox};
use crate::commands::{REMOVE_TIMEOUT, remove_sandbox};
use crate::options::Agent;
use crate::outcome;

/// Extra lifetime for setup, checks and copying the changes back.
const TTL_SLACK_SECONDS: u64 = 1800;

pub struct Machine {
    client: Arc<Client>,
    pub toolbox: Toolbox,
    /// The name of the secret that holds the API key.
    secret: Option<String>,
}

impl Machine {
    pub async fn make(options: &Agent, worker: Worker<'_>) -> anyhow::Result<Self> {
        let client = Arc::new(Client::find_or_start().await?);
        let Worker::Engine(engine) = worker else { return Self::with(client, options, None).await };
        // Best effort: the next run tries again.
        for stale in keys::stale(&client).await.unwrap_or_default() {
            remove_secret(&client, &stale).await;
        }
        let key = SetSecret { value: engine.key().to_owned(), hosts: vec![engine.host().to_owned()] };
        client.put::<Value>(&secret_path(engine.secret()), &key).await?;
        match Self::with(client.clone(), options, Some(engine)).await {
            Ok(machine) => Ok(machine),
            Err(error) => {
                remove_secret(&client, engine.secret()).await;
                Err(error)
            }
        }
    }

    async fn with(client: Arc<Client>, options: &Agent, engine: Option<&Engine>) -> anyhow::Result<Self> {
        // An engine is one long-running command.
        let (usual, timeout) = match engine {
            Some(_) => ("agent", options.budget.max_time),
            None => ("base", options.budget.command_timeout),
        };
        let request = CreateSandbox {
            template: Some(options.template.clone().unwrap_or_else(|| usual.to_owned())),
            ttl_seconds: Some(options.budget.max_time.saturating_add(TTL_SLACK_SECONDS)),
            labels: Some([("made-by".to_owned(), "agent".to_owned())].into()),
            network: engine.map(network),
            ..CreateSandbox::default()
        };
        let made: Sandbox = client.post("/v1/sandboxes", &request).await?;
        let settings = Settings { timeout: Duration::from_secs(timeout), ..Settings::default() };
        let toolbox = Toolbox::new(client.clone(), made.id, settings);
        let machine = Self { toolbox, client, secret: engine.map(|engine| engine.secret().to_owned()) };
        if let Err(error) = machine.toolbox.make_directory().await {
            machine.end().await;
            return Err(error.into());
        }
        Ok(machine)
    }

    pub async fn end(&self) {
        remove_sandbox(&self.client, self.toolbox.sandbox()).await;
        if let Some(secret) = &self.secret {
            remove_secret(&self.client, secret).await;
        }
    }
}

/// Allows only the model's server.
fn network(engine: &Engine) -> NetworkRequest {
    NetworkRequest {
        allow: Some(vec![engine.allowed()]),
        secrets: Some(vec![engine.secret().to_owned()]),
        ..NetworkRequest::default()
    }
}

fn secret_path(name: &str) -> String {
    format!("/v1/secrets/{name}")
}

async fn remove_secret(client: &Client, secret: &str) {
    if let Err(error) = client.delete_within(&secret_path(secret), REMOVE_TIMEOUT).await {
        let why = outcome::chain(&error);
        eprintln!("sandling: cannot remove the stored API key; run `sandling secret rm {secret}`: {why}");
    }
}
