//! Lists of sandboxes, with pagination.

use std::collections::BTreeMap;

use axum::http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use sandling_engine::{SandboxInfo, State as SandboxState};
use serde::{Deserialize, Serialize};

use super::view::{is_over, listed, metadata_of, state_of};
use crate::e2b::settings::Settings;
use crate::prelude::*;

/// Has the token of the next page.
pub(crate) const NEXT: HeaderName = HeaderName::from_static("x-next-token");
/// How many of the selected sandboxes are running, on all pages together.
pub(crate) const TOTAL_RUNNING: HeaderName = HeaderName::from_static("x-total-running");
const MOST: usize = 100;
const STATES: [&str; 2] = ["running", "paused"];

/// `sandboxes` has the routes of the sandbox lists, because they share paths with creating.
pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListParams {
    metadata: Option<String>,
    state: Option<String>,
    order: Option<String>,
    started_after: Option<String>,
    template: Option<String>,
    next_token: Option<String>,
    limit: Option<usize>,
}

/// The first version of the list: running sandboxes, without pagination.
pub(super) async fn first(call: Call<Read>, Params(mut wanted): Params<ListParams>) -> Result<Response, ApiError> {
    wanted.state.get_or_insert_with(|| "running".to_owned());
    let mut all = select(&call.app, &call.caller, &wanted).await?;
    all.reverse();
    let total = total_running(&all);
    Ok(([(TOTAL_RUNNING, total)], Json(all.iter().map(listed).collect::<Vec<_>>())).into_response())
}

pub(super) async fn page(call: Call<Read>, Params(wanted): Params<ListParams>) -> Result<Response, ApiError> {
    let all = select(&call.app, &call.caller, &wanted).await?;
    let (order, total) = (wanted.order()?, total_running(&all));
    let key = |info: &SandboxInfo| Key::new(info.created_at, &info.id);
    let mut response = paged(all, order, wanted.next_token.as_deref(), wanted.limit, key, listed)?;
    response.headers_mut().insert(TOTAL_RUNNING, total);
    Ok(response)
}

fn total_running(all: &[SandboxInfo]) -> HeaderValue {
    all.iter().filter(|info| state_of(info) == "running").count().into()
}

async fn select(app: &App, caller: &Caller<Read>, wanted: &ListParams) -> Result<Vec<SandboxInfo>, ApiError> {
    app.engine.settled().await;
    let mut all = app.engine.list_of(caller.workspace().as_str());
    let metadata = wanted.metadata.as_deref().map(metadata_filter).transpose()?.unwrap_or_default();
    let after = wanted.started_after.as_deref().map(str::parse::<Timestamp>).transpose();
    let after = after.map_err(|_| ApiError::bad_request("startedAfter must be a time"))?;
    let states: Option<Vec<&str>> = wanted.state.as_deref().map(|states| states.split(',').collect());
    if let Some(strange) = states.iter().flatten().find(|state| !STATES.contains(state)) {
        return Err(ApiError::bad_request(format!("a sandbox cannot be {strange:?}, only running or paused")));
    }
    all.retain(|info| {
        let own = metadata_of(info);
        let template = Settings::of(info).template;
        // E2B has no state for a sandbox whose row in the database cannot be read.
        info.state != SandboxState::Unreadable
            && (!is_over(info) || info.lifetime.sleep.at_the_end)
            && metadata.iter().all(|(key, value)| own.get(key) == Some(value))
            && states.as_ref().is_none_or(|states| states.contains(&state_of(info)))
            && after.is_none_or(|after| info.created_at >= after)
            && wanted.template.as_ref().is_none_or(|w| template.as_ref() == Some(w) || info.template == *w)
    });
    Ok(all)
}

/// Parses a metadata filter. The clients encode each key and value twice and the whole text again; the query parser has
/// undone that last encoding.
fn metadata_filter(text: &str) -> Result<BTreeMap<String, String>, ApiError> {
    let wrong = || ApiError::bad_request("metadata must be pairs of a key, `=` and a value, with `&` between");
    // A key without `=` would parse as a key with an empty value; the list would be filtered wrongly.
    if text.split('&').any(|pair| !pair.contains('=')) {
        return Err(wrong());
    }
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(text).map_err(|_| wrong())?;
    let decode = |text: String| percent_decode_str(&text).decode_utf8().map(Into::into).map_err(|_| wrong());
    pairs.into_iter().map(|(key, value)| Ok((decode(key)?, decode(value)?))).collect()
}

/// The sort order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    OldestFirst,
    NewestFirst,
}

impl ListParams {
    fn order(&self) -> Result<Order, ApiError> {
        match self.order.as_deref() {
            None | Some("" | "desc") => Ok(Order::NewestFirst),
            Some("asc") => Ok(Order::OldestFirst),
            Some(_) => Err(ApiError::bad_request("order must be asc or desc")),
        }
    }
}

/// An item's position in a list. It stays valid after the item is gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(i128, String);

impl Key {
    pub(super) fn new(made_at: Timestamp, id: &impl ToString) -> Self {
        Self(made_at.as_nanosecond(), id.to_string())
    }

    fn parse(token: &str) -> Result<Self, ApiError> {
        let key = token.split_once('.').and_then(|(at, id)| Some(Self(at.parse().ok()?, id.to_owned())));
        key.ok_or_else(|| ApiError::bad_request("nextToken is not one that was given"))
    }
}

/// How many items a page has at most.
pub(crate) fn page_limit(wanted: Option<usize>) -> usize {
    wanted.unwrap_or(MOST).clamp(1, MOST)
}

/// Returns one page, and the next page's token in a header. The token is the position of the last item, so pagination
/// still works after items have ended.
pub(super) fn paged<T, V: Serialize>(
    mut all: Vec<T>,
    order: Order,
    token: Option<&str>,
    limit: Option<usize>,
    key: impl Fn(&T) -> Key,
    view: impl Fn(&T) -> V,
) -> Result<Response, ApiError> {
    let limit = page_limit(limit);
    all.sort_by_cached_key(&key);
    if order == Order::NewestFirst {
        all.reverse();
    }
    if let Some(last) = token.filter(|token| !token.is_empty()).map(Key::parse).transpose()? {
        all.retain(|thing| match order {
            Order::OldestFirst => key(thing) > last,
            Order::NewestFirst => key(thing) < last,
        });
    }
    let page = &all[..limit.min(all.len())];
    let mut response = Json(page.iter().map(view).collect::<Vec<_>>()).into_response();
    if page.len() < all.len()
        && let Some(Key(at, id)) = page.last().map(key)
        && let Ok(token) = HeaderValue::from_str(&format!("{at}.{id}"))
    {
        response.headers_mut().insert(NEXT, token);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_decoded_as_often_as_the_clients_encode_it() {
        // The text after the query parser has decoded it: `{"a": "b c", "k&": "é"}`.
        let filter = metadata_filter("a=b%2520c&k%2526=%25C3%25A9").unwrap();
        assert_eq!(filter, BTreeMap::from([("a".into(), "b c".into()), ("k&".into(), "é".into())]));
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_none() {
        for bad in ["", "key", "a=1&b", "a=%25ff"] {
            assert!(metadata_filter(bad).is_err(), "{bad:?}");
        }
    }

    async fn page(all: &[i64], order: Order, token: Option<&str>, limit: usize) -> (Vec<i64>, Option<String>) {
        let key = |second: &i64| Key::new(Timestamp::from_second(*second).unwrap(), second);
        let response = paged(all.to_vec(), order, token, Some(limit), key, |n| *n).unwrap();
        let next = response.headers().get(NEXT).map(|next| next.to_str().unwrap().to_owned());
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        (serde_json::from_slice(&body).unwrap(), next)
    }

    #[tokio::test]
    async fn a_page_begins_where_the_one_before_ended_whatever_has_ended_since() {
        for (order, first, then) in [(Order::OldestFirst, [1, 2], [3, 4]), (Order::NewestFirst, [4, 3], [2, 1])] {
            let (found, next) = page(&[2, 1, 4, 3], order, None, 2).await;
            assert_eq!((found.as_slice(), next.is_some()), (&first[..], true));
            let left: Vec<i64> = [1, 2, 3, 4].into_iter().filter(|number| *number != first[1]).collect();
            assert_eq!(page(&left, order, next.as_deref(), 2).await, (then.to_vec(), None));
        }
        assert_eq!(page(&[1, 2], Order::OldestFirst, None, 0).await.0, [1]);
        let key = |second: &i64| Key::new(Timestamp::UNIX_EPOCH, second);
        assert!(paged(vec![1], Order::OldestFirst, Some("gone"), None, key, |n| *n).is_err());
    }
}
