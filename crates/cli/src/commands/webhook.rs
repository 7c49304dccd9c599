//! `sandling webhook`.

use jiff::Timestamp;
use sandling_wire::{CreateWebhook, DeliveryView, WebhookView};
use serde_json::Value;

use crate::client::{Client, segment};
use crate::options::WebhookCommand;
use crate::show;

pub async fn webhook(command: &WebhookCommand) -> anyhow::Result<()> {
    let client = Client::require().await?;
    let path = |id: &str| format!("/v1/webhooks/{}", segment(id));
    match command {
        WebhookCommand::Create { url, events, description, json } => {
            let (url, events, description) = (url.clone(), events.clone(), description.clone());
            let made: Value = client.post("/v1/webhooks", &CreateWebhook { url, events, description }).await?;
            show::field(&made, "id", *json)?;
            if !json {
                let key = made["key"].as_str().unwrap_or_default();
                eprintln!("Save the key of the signatures now; it is not shown again: {key}");
            }
            Ok(())
        }
        WebhookCommand::Ls { json } => {
            let mut answer: Value = client.get("/v1/webhooks").await?;
            let header = ["id", "url", "events", "created"];
            show::list(answer["webhooks"].take(), *json, &header, |webhook: WebhookView| {
                [webhook.id, webhook.url, webhook.events.join(","), time(&webhook.created_at)]
            })
        }
        WebhookCommand::Rm { id } => Ok(client.delete(&path(id)).await?),
        WebhookCommand::Deliveries { id, limit, json } => {
            let mut answer: Value = client.get(&format!("{}/deliveries?limit={limit}", path(id))).await?;
            let header = ["number", "type", "state", "attempts", "status", "tried", "error"];
            show::list(answer["deliveries"].take(), *json, &header, |one: DeliveryView| {
                let status = one.status.map(|status| status.to_string()).unwrap_or_default();
                let tried = one.tried_at.as_deref().map(time).unwrap_or_default();
                let (number, attempts) = (one.number.to_string(), one.attempts.to_string());
                [number, one.kind, one.state, attempts, status, tried, one.error.unwrap_or_default()]
            })
        }
        WebhookCommand::Replay { id, number } => {
            client.tell(&format!("{}/deliveries/{number}/replay", path(id)), &serde_json::json!({})).await?;
            Ok(())
        }
    }
}

fn time(text: &str) -> String {
    text.parse::<Timestamp>().map_or_else(|_| text.to_owned(), show::time)
}
