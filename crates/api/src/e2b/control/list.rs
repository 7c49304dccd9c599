//! Lists of sandboxes, page by page.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use sandling_engine::SandboxInfo;
use serde::{Deserialize, Serialize};

use super::view::{listed, metadata_of, state_of};
use crate::app::App;
use crate::auth::{Caller, Read};
use crate::e2b::settings::Settings;
use crate::error::ApiError;
use crate::extract::Params;

const NEXT: HeaderName = HeaderName::from_static("x-next-token");
const MOST: usize = 100;

/// The routes are with those of making, whose paths they share.
pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wanted {
    metadata: Option<String>,
    state: Option<String>,
    order: Option<String>,
    started_after: Option<String>,
    template: Option<String>,
    next_token: Option<String>,
    limit: Option<usize>,
}

/// The old list, in one piece: those that run.
pub(super) async fn first(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Params(mut wanted): Params<Wanted>,
) -> Result<Response, ApiError> {
    wanted.state.get_or_insert_with(|| "running".to_owned());
    let all = select(&app, &caller, &wanted).await?;
    Ok(Json(all.iter().map(listed).collect::<Vec<_>>()).into_response())
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    caller: Caller<Read>,
    Params(wanted): Params<Wanted>,
) -> Result<Response, ApiError> {
    let all = select(&app, &caller, &wanted).await?;
    Ok(paged(all, wanted.next_token.as_deref(), wanted.limit, |info| info.id.compact(), listed))
}

async fn select(app: &App, caller: &Caller<Read>, wanted: &Wanted) -> Result<Vec<SandboxInfo>, ApiError> {
    app.engine.settled().await;
    let mut all = app.engine.list_of(caller.workspace().as_str());
    if wanted.order.as_deref() != Some("asc") {
        all.reverse();
    }
    let metadata = wanted.metadata.as_deref().map(metadata_filter).unwrap_or_default();
    let after = wanted.started_after.as_deref().map(str::parse::<Timestamp>).transpose();
    let after = after.map_err(|_| ApiError::bad_request("startedAfter must be a time"))?;
    let states: Option<Vec<&str>> = wanted.state.as_deref().map(|states| states.split(',').collect());
    all.retain(|info| {
        let own = metadata_of(info);
        let template = Settings::of(info).template;
        metadata.iter().all(|(key, value)| own.get(key) == Some(value))
            && states.as_ref().is_none_or(|states| states.contains(&state_of(info)))
            && after.is_none_or(|after| info.created_at >= after)
            && wanted.template.as_ref().is_none_or(|w| template.as_ref() == Some(w) || info.template == *w)
    });
    Ok(all)
}

/// The clients encode each key and value twice, and the whole once more, which is undone before this.
fn metadata_filter(text: &str) -> BTreeMap<String, String> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(text).unwrap_or_default();
    let decode = |text: String| percent_decode_str(&text).decode_utf8_lossy().into_owned();
    pairs.into_iter().map(|(key, value)| (decode(key), decode(value))).collect()
}

/// One page of things, and the token of the next in a header. The token names the last thing of this page.
pub(super) fn paged<T, V: Serialize>(
    all: Vec<T>,
    token: Option<&str>,
    limit: Option<usize>,
    id: impl Fn(&T) -> String,
    view: impl Fn(&T) -> V,
) -> Response {
    let limit = limit.unwrap_or(MOST).clamp(1, MOST);
    // What ended in between cannot be gone on from; its page is the last.
    let from = match token.filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => all.iter().position(|thing| id(thing) == token).map_or(all.len(), |at| at + 1),
    };
    let rest = &all[from..];
    let page = &rest[..limit.min(rest.len())];
    let mut response = Json(page.iter().map(view).collect::<Vec<_>>()).into_response();
    if page.len() < rest.len()
        && let Some(last) = page.last()
        && let Ok(token) = HeaderValue::from_str(&id(last))
    {
        response.headers_mut().insert(NEXT, token);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_decoded_as_often_as_the_clients_encode_it() {
        // As it is after the query's own decoding: `{"a": "b c", "k&": "é"}`.
        let filter = metadata_filter("a=b%2520c&k%2526=%25C3%25A9");
        assert_eq!(filter, BTreeMap::from([("a".into(), "b c".into()), ("k&".into(), "é".into())]));
    }

    #[tokio::test]
    async fn a_page_ends_with_the_token_of_the_next() {
        let page = |token, limit| {
            let response = paged(vec![1, 2, 3], token, limit, ToString::to_string, |n| *n);
            let next = response.headers().get(NEXT).map(|next| next.to_str().unwrap().to_owned());
            async move {
                let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
                (serde_json::from_slice::<Vec<i32>>(&body).unwrap(), next)
            }
        };
        assert_eq!(page(None, Some(2)).await, (vec![1, 2], Some("2".to_owned())));
        assert_eq!(page(Some("2"), Some(2)).await, (vec![3], None));
        assert_eq!(page(Some("gone"), None).await, (vec![], None));
        assert_eq!(page(None, Some(0)).await, (vec![1], Some("1".to_owned())));
    }
}
