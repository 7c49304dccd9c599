//! Sends deliveries of webhooks over HTTP.
//!
//! The sender connects to an address that it has checked, never to a name that could resolve differently a moment later.
//! It follows no redirects, because they could lead to an address that was not checked. Through a proxy it can check only
//! what this host resolves the name to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body_util::Full;
use hyper::{Request, header};
use sandling_proxy::UpstreamProxy;
use sandling_service::{Attempt, DueDelivery, Outbox, WebhookAddresses, WebhookUrl, Webhooks};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http_client::{send, tls_connector};

/// How long an attempt may take, from the name to the status.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(10);
/// After an error of the database.
const PAUSE: Duration = Duration::from_secs(5);
const AT_ONCE: usize = 16;
const AGENT: &str = concat!("sandling-webhooks/", env!("CARGO_PKG_VERSION"));

/// Sends what there is to send until the task is aborted.
pub(crate) async fn send_webhooks(webhooks: Arc<Webhooks>) {
    let mut outbox = webhooks.outbox();
    let way = match (tls_connector(), UpstreamProxy::from_environment()) {
        (Ok(tls), Ok(proxy)) => Way { tls, proxy },
        (Err(error), _) => return tracing::error!(%error, "webhooks are not sent, because TLS cannot be set up"),
        (_, Err(error)) => return tracing::error!(%error, "webhooks are not sent, because HTTPS_PROXY is wrong"),
    };
    loop {
        outbox.changed().await;
        if let Err(error) = send_due(&outbox, &way).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot read or write deliveries of webhooks");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// How receivers are reached.
struct Way {
    tls: TlsConnector,
    proxy: Option<UpstreamProxy>,
}

async fn send_due(outbox: &Outbox, way: &Way) -> Result<(), sandling_engine::StoreError> {
    let due = stream::iter(outbox.take()?);
    let mut attempts = due.map(|delivery| attempt(delivery, outbox.addresses(), way)).buffer_unordered(AT_ONCE);
    while let Some((delivery, attempt)) = attempts.next().await {
        outbox.finish(delivery, attempt)?;
    }
    Ok(())
}

async fn attempt(delivery: DueDelivery, addresses: &WebhookAddresses, way: &Way) -> (DueDelivery, Attempt) {
    let sending = tokio::time::timeout(ATTEMPT_WITHIN, post(&delivery, addresses, way)).await;
    let attempt = match sending {
        Ok(Ok(status)) => Attempt::Answered(status),
        Ok(Err(why)) => Attempt::Failed(why),
        Err(_) => Attempt::Failed(format!("the receiver did not answer within {} s", ATTEMPT_WITHIN.as_secs())),
    };
    (delivery, attempt)
}

async fn post(delivery: &DueDelivery, addresses: &WebhookAddresses, way: &Way) -> Result<u16, String> {
    let url: WebhookUrl = delivery.url.parse().map_err(|error: sandling_service::BadUrl| error.to_string())?;
    let proxy = way.proxy.as_ref().filter(|proxy| url.is_https && proxy.serves(&url.host, url.port));
    let found = tokio::net::lookup_host((url.host.as_str(), url.port)).await;
    let checked = match found.map_err(|error| format!("cannot resolve {}: {error}", url.host)) {
        // Only the proxy knows the name.
        Err(_) if proxy.is_some() => None,
        found => Some(choose(&url, found?.collect(), addresses)?),
    };
    let connected = match (proxy, checked) {
        (Some(proxy), _) => proxy.connect(&url.host, url.port).await,
        (None, Some(address)) => TcpStream::connect(address).await,
        (None, None) => return Err(format!("cannot resolve {}", url.host)),
    };
    let shown = checked.map_or_else(|| url.host.clone(), |address| address.to_string());
    let stream = connected.map_err(|error| format!("cannot connect to {shown}: {error}"))?;
    let request = request(&url, delivery)?;
    send(stream, url.is_https.then_some((&way.tls, url.host.as_str())), request).await
}

/// One of the receiver's addresses, if it may be told.
fn choose(url: &WebhookUrl, found: Vec<SocketAddr>, addresses: &WebhookAddresses) -> Result<SocketAddr, String> {
    let first = found.first().ok_or_else(|| format!("{} has no address", url.host))?;
    found.iter().copied().find(|address| addresses.allows(address.ip())).ok_or_else(|| {
        format!(
            "{} is at {}, which is not a public address; the operator can allow it with `serve --webhook-allow-private`",
            url.host,
            first.ip()
        )
    })
}

fn request(url: &WebhookUrl, delivery: &DueDelivery) -> Result<Request<Full<Bytes>>, String> {
    let signature = &delivery.signature;
    Request::post(&url.path)
        .header(header::HOST, url.authority())
        .header(header::USER_AGENT, AGENT)
        .header(header::CONTENT_TYPE, "application/json")
        .header("webhook-id", &signature.id)
        .header("webhook-timestamp", signature.timestamp)
        .header("webhook-signature", &signature.value)
        .body(Full::new(Bytes::from(delivery.body.clone())))
        .map_err(|error| error.to_string())
}
