//! Webhooks of the workspace, and their deliveries.

use sandling_service::{DeliveryState, NewWebhook, Webhook, WebhookDelivery};
use sandling_wire::{CreateWebhook, CreatedWebhookView, DeliveryList, DeliveryView, WebhookList, WebhookView};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::prelude::*;

const USUAL: u32 = 50;
const MOST: u32 = 1000;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(remove))
        .routes(routes!(deliveries))
        .routes(routes!(replay))
}

/// List the webhooks of the workspace
#[utoipa::path(get, path = "/v1/webhooks", responses((status = 200, body = WebhookList)))]
async fn list(call: Call<Admin>) -> Result<Json<WebhookList>, ApiError> {
    let webhooks = call.app.service.webhooks.list(call.workspace())?;
    Ok(Json(WebhookList { webhooks: webhooks.into_iter().map(view).collect() }))
}

/// Create a webhook
///
/// The server sends every event of these types as a POST request, from now on. Its headers `webhook-id`,
/// `webhook-timestamp` and `webhook-signature` are those of the Standard Webhooks specification, with the key of the
/// response. A receiver answers with a 2xx status within 10 seconds. Otherwise the server tries again, up to 6 times in
/// about 7 hours.
#[utoipa::path(
    post, path = "/v1/webhooks", request_body = CreateWebhook, responses((status = 201, body = CreatedWebhookView)),
)]
async fn create(
    call: Call<Admin>,
    body: JsonBody<CreateWebhook>,
) -> Result<(StatusCode, Json<CreatedWebhookView>), ApiError> {
    let CreateWebhook { url, events, description } = body.value;
    let made = call.app.service.webhooks.create(call.workspace(), NewWebhook { url, events, description })?;
    Ok((StatusCode::CREATED, Json(CreatedWebhookView { webhook: view(made.webhook), key: made.key })))
}

/// Remove a webhook and its deliveries
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", responses((status = 204)))]
async fn remove(call: Call<Admin>) -> Result<StatusCode, ApiError> {
    call.app.service.webhooks.remove(call.workspace(), &call.item)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DeliveryParams {
    /// 50 if absent, at most 1000.
    limit: Option<u32>,
}

/// List the newest deliveries of a webhook
///
/// Pending ones are kept until they are delivered or have failed. Of the others, the newest 1000 are kept.
#[utoipa::path(
    get, path = "/v1/webhooks/{webhook}/deliveries", params(DeliveryParams),
    responses((status = 200, body = DeliveryList)),
)]
async fn deliveries(call: Call<Admin>, Params(params): Params<DeliveryParams>) -> Result<Json<DeliveryList>, ApiError> {
    let limit = params.limit.unwrap_or(USUAL).min(MOST);
    let found = call.app.service.webhooks.deliveries(call.workspace(), &call.item, limit)?;
    Ok(Json(DeliveryList { deliveries: found.into_iter().map(delivery_view).collect() }))
}

/// Send a delivery again
///
/// It has the same `webhook-id` and body, and a new signature.
#[utoipa::path(
    post, path = "/v1/webhooks/{webhook}/deliveries/{delivery}/replay", responses((status = 202, description = "It is sent soon")),
)]
async fn replay(
    call: Call<Admin>,
    Parts((webhook, delivery)): Parts<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let number = delivery.parse().map_err(|_| ApiError::not_found("delivery"))?;
    call.app.service.webhooks.replay(call.workspace(), &webhook, number)?;
    Ok(StatusCode::ACCEPTED)
}

fn view(webhook: Webhook) -> WebhookView {
    let Webhook { id, url, events, description, created_at } = webhook;
    WebhookView { id, url, events, description, created_at: created_at.to_string() }
}

fn delivery_view(one: WebhookDelivery) -> DeliveryView {
    let is_pending = one.state == DeliveryState::Pending;
    DeliveryView {
        number: one.number,
        kind: one.kind,
        state: one.state.name().to_owned(),
        attempts: one.attempts,
        created_at: one.created_at.to_string(),
        tried_at: one.tried_at.map(|time| time.to_string()),
        next_at: is_pending.then(|| one.due_at.to_string()),
        status: one.status,
        error: one.error,
        body: serde_json::from_str(&one.body).unwrap_or_default(),
    }
}
