//! Lists of sandboxes: those of this node and of all others.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use sandling_fleet::Member;
use serde_json::Value;

use super::member::Fleet;
use crate::app::App;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Names the nodes that did not answer.
const PARTIAL: HeaderName = HeaderName::from_static("sandling-partial");

pub(super) async fn list<F>(fleet: &Fleet, app: &App, request: Request, here: impl Fn(Request) -> F) -> Response
where
    F: Future<Output = Response>,
{
    let others = fleet.membership.members().into_iter().filter(|member| *member.name != *fleet.membership.name());
    let asks: Vec<_> = others.map(|member| (copy(&request), member)).collect();
    let ask = |(request, member): (Request, Member)| async move {
        let listed = async { items(fleet.forward(app, &member, request).await.ok()?).await };
        let listed = tokio::time::timeout(ANSWER_WITHIN, listed).await.ok().flatten();
        listed.ok_or(member.name)
    };
    let (own, others) = tokio::join!(here(request), join_all(asks.into_iter().map(ask)));
    if own.status() != StatusCode::OK {
        return own;
    }
    let (mut parts, body) = own.into_parts();
    let mut all = items(Response::new(body)).await.unwrap_or_default();
    let mut missing = Vec::new();
    for listed in others {
        match listed {
            Ok(listed) => all.extend(listed),
            Err(name) => missing.push(name.to_string()),
        }
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    if let Some(names) = Some(missing.join(",")).filter(|names| !names.is_empty()) {
        let names = HeaderValue::from_str(&names).unwrap_or(HeaderValue::from_static("true"));
        parts.headers.insert(PARTIAL, names);
    }
    Response::from_parts(parts, Body::from(Value::from(all).to_string()))
}

fn copy(request: &Request) -> Request {
    let mut copy = Request::new(Body::empty());
    *copy.uri_mut() = request.uri().clone();
    copy.headers_mut().clone_from(request.headers());
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// The items of a successful list.
async fn items(response: Response) -> Option<Vec<Value>> {
    let succeeded = response.status() == StatusCode::OK;
    let bytes = response.into_body().collect().await.ok().filter(|_| succeeded)?.to_bytes();
    serde_json::from_slice(&bytes).ok()
}
