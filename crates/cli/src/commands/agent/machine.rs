//! The sandbox in which a task runs.

use std::sync::Arc;
use std::time::Duration;

use sandling_agent::{Engine, Worker};
use sandling_engine::with_causes;
use sandling_tools::{DesktopTools, Settings, Toolbox};
use sandling_wire::{CreateSandbox, DEFAULT_TEMPLATE, NetworkRequest, SetSecret};
use serde_json::Value;

use super::keys;
use crate::client::{Client, Sandbox};
use crate::commands::{REMOVE_TIMEOUT, remove_sandbox, waiting};
use crate::options::{Agent, DESKTOP_TEMPLATE};

/// Extra lifetime for setup, checks and copying the changes back.
const TTL_SLACK_SECONDS: u64 = 1800;

/// The headers in which clients of models send their key.
const KEY_PLACEMENTS: [&str; 2] = ["header Authorization: Bearer", "header x-api-key"];

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
        let key = SetSecret {
            value: engine.key().to_owned(),
            hosts: vec![engine.host().to_owned()],
            placements: Some(KEY_PLACEMENTS.map(str::to_owned).to_vec()),
        };
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
            None if options.desktop => (DESKTOP_TEMPLATE, options.budget.command_timeout),
            None => (DEFAULT_TEMPLATE, options.budget.command_timeout),
        };
        let mut machine = options.machine.request()?;
        if let (Some(engine), Some(network)) = (engine, &mut machine.network) {
            allow_model(network, engine);
        }
        let request = CreateSandbox {
            template: options.image.is_none().then(|| options.template.clone().unwrap_or_else(|| usual.to_owned())),
            image: options.image.clone(),
            ttl_seconds: Some(options.budget.max_time.saturating_add(TTL_SLACK_SECONDS)),
            labels: Some([("made-by".to_owned(), "agent".to_owned())].into()),
            ..machine
        };
        let creating = client.post::<Sandbox>("/v1/sandboxes", &request);
        let made = waiting::with_progress(&client, &request, creating).await?;
        let desktop = if options.desktop { DesktopTools::Offered } else { DesktopTools::Hidden };
        let settings = Settings { timeout: Duration::from_secs(timeout), desktop, ..Settings::default() };
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

/// Allows the model's server, besides what the options allow.
fn allow_model(network: &mut NetworkRequest, engine: &Engine) {
    network.allow.get_or_insert_default().push(engine.allowed());
    network.secrets.get_or_insert_default().push(engine.secret().to_owned());
}

fn secret_path(name: &str) -> String {
    format!("/v1/secrets/{name}")
}

async fn remove_secret(client: &Client, secret: &str) {
    if let Err(error) = client.delete_within(&secret_path(secret), REMOVE_TIMEOUT).await {
        let why = with_causes(&error);
        eprintln!("sandling: cannot remove the stored API key; run `sandling secret rm {secret}`: {why}");
    }
}
