//! Lists of what this node and all others have, as one list.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header, response};
use axum::response::Response;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use jiff::Timestamp;
use sandling_fleet::Member;
use serde_json::{Value, json};

use super::here::Here;
use super::member::Fleet;
use super::named;
use crate::app::App;
use crate::auth::query_value;
use crate::e2b;

pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The lists with pages.
const PAGED: &str = "/v2/sandboxes";
const PAGED_SNAPSHOTS: &str = "/snapshots";
const SNAPSHOTS: &str = "/v1/snapshots";
const VOLUMES: &str = "/v1/volumes";
const BUILDS: &str = "/v1/templates/builds";
/// The lists that are a field of an object.
const WRAPPED: [&str; 3] = ["snapshots", "items", "chains"];
/// What sandboxes use is a field of an object, too, by their ids.
const SAMPLES: &str = "sandboxes";
/// Names the nodes that did not answer.
const PARTIAL: HeaderName = HeaderName::from_static("sandling-partial");

pub(super) async fn list(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Response {
    let (path, query) = (request.uri().path().to_owned(), request.uri().query().map(str::to_owned));
    let mut lists = match gather(fleet, app, request, here).await {
        Ok(lists) => lists,
        Err(refusal) => return refusal,
    };
    let mut all = Page::default();
    lists.pages.drain(..).for_each(|(_, page)| all.add(page));
    if let Some(total) = lists.head.headers.get_mut(e2b::TOTAL_RUNNING) {
        *total = all.running.into();
    }
    let next = all.arrange(&path, query.as_deref());
    lists.head.headers.remove(e2b::NEXT_PAGE);
    lists.head.headers.extend(next.map(|next| (e2b::NEXT_PAGE, next)));
    lists.respond(&all.items.into())
}

/// Whether sandboxes are listed here, in any dialect, or snapshots with pages.
pub(super) fn is_by_time(path: &str) -> bool {
    named::is_collection(path) || path == PAGED_SNAPSHOTS
}

/// Whether snapshots, volumes or builds are listed here, in any dialect without pages.
pub(super) fn is_of_nodes(path: &str) -> bool {
    matches!(path, SNAPSHOTS | VOLUMES | "/volumes" | BUILDS)
}

/// A list of things that stay on their node, which each of them names.
pub(super) async fn list_of_nodes(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Response {
    let path = request.uri().path().to_owned();
    let parts = copy(&request).into_parts().0;
    let mut lists = match gather(fleet, app, request, here).await {
        Ok(lists) => lists,
        Err(refusal) => return refusal,
    };
    let answered = lists.pages.iter().map(|(node, _)| node.clone()).collect();
    let named = |(node, page): (Arc<str>, Page)| {
        page.items.into_iter().map(move |mut item| {
            item["node"] = (*node).into();
            item
        })
    };
    let mut all: Vec<Value> = lists.pages.drain(..).flat_map(named).collect();
    match &*path {
        SNAPSHOTS => {
            let stored = fleet.stored_elsewhere(app, &parts, &answered).await;
            all.extend(stored);
            all.sort_by_cached_key(|item| Reverse(position(item)));
            // One that moves is on two nodes for a moment.
            all.dedup_by_key(|item| position(item));
            lists.respond(&json!({ "snapshots": all }))
        }
        BUILDS => {
            all.sort_by_cached_key(|item| Reverse(position(item)));
            lists.respond(&all.into())
        }
        _ => {
            all.sort_by_cached_key(position);
            lists.respond(&all.into())
        }
    }
}

/// What each node has listed, this one first.
pub(super) struct Lists {
    pub(super) pages: Vec<(Arc<str>, Page)>,
    head: response::Parts,
    /// The nodes that did not answer.
    missing: Vec<Arc<str>>,
}

/// Asks all nodes the same. The error is this node's refusal: others are not asked for a client that this node does not know.
pub(super) async fn gather(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Lists, Response> {
    gather_each(fleet, app, request, here, |_, request| request).await
}

/// Asks each node what `of_node` makes of the request for it.
pub(super) async fn gather_each(
    fleet: &Fleet,
    app: &App,
    request: Request,
    here: Here<'_>,
    of_node: impl Fn(&str, Request) -> Request,
) -> Result<Lists, Response> {
    let of_member = |member: Member| (of_node(&member.name, copy(&request)), member);
    let asks: Vec<_> = fleet.others().into_iter().map(of_member).collect();
    let own = here.answer(of_node(fleet.membership.name(), request)).await;
    if own.status() != StatusCode::OK {
        return Err(own);
    }
    let ask = |(request, member): (Request, Member)| async move {
        let listed = async { Page::of(fleet.forward(app, &member, request).await.ok()?).await };
        let listed = tokio::time::timeout(ANSWER_WITHIN, listed).await.ok().flatten();
        (member.name, listed)
    };
    let others = join_all(asks.into_iter().map(ask)).await;
    let (head, body) = own.into_parts();
    let mut own = Response::new(body);
    own.headers_mut().clone_from(&head.headers);
    let own = Page::of(own).await.unwrap_or_default();
    let mut lists = Lists { pages: vec![(fleet.membership.name().into(), own)], head, missing: Vec::new() };
    for (name, listed) in others {
        match listed {
            Some(page) => lists.pages.push((name, page)),
            None => lists.missing.push(name),
        }
    }
    Ok(lists)
}

impl Lists {
    pub(super) fn respond(self, list: &Value) -> Response {
        self.respond_with(Response::new(Body::from(list.to_string())))
    }

    /// With the body of a response, and its headers.
    pub(super) fn respond_with(mut self, page: Response) -> Response {
        let (parts, body) = page.into_parts();
        self.head.headers.extend(parts.headers);
        self.head.headers.remove(header::CONTENT_LENGTH);
        if !self.missing.is_empty() {
            let names = HeaderValue::from_str(&self.missing.join(",")).unwrap_or(HeaderValue::from_static("true"));
            self.head.headers.insert(PARTIAL, names);
        }
        Response::from_parts(self.head, body)
    }
}

/// The samples of all nodes.
pub(super) fn one_object(all: Vec<Value>) -> Value {
    let fields = all.into_iter().filter_map(|item| if let Value::Object(fields) = item { Some(fields) } else { None });
    json!({ SAMPLES: fields.flatten().collect::<serde_json::Map<_, _>>() })
}

/// The same request without its body.
pub(super) fn copy(request: &Request) -> Request {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    copy.headers_mut().clone_from(request.headers());
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// What one node has listed, or several together.
#[derive(Default)]
pub(super) struct Page {
    pub(super) items: Vec<Value>,
    /// Whether a node has more items than these.
    pub(super) continues: bool,
    /// How many of the selected sandboxes are running, as E2B's lists say.
    pub(super) running: u64,
}

impl Page {
    /// `None` if the response is not a list.
    async fn of(response: Response) -> Option<Self> {
        let succeeded = response.status() == StatusCode::OK;
        let continues = response.headers().contains_key(e2b::NEXT_PAGE);
        let running = response.headers().get(e2b::TOTAL_RUNNING).and_then(|total| total.to_str().ok()?.parse().ok());
        let bytes = response.into_body().collect().await.ok().filter(|_| succeeded)?.to_bytes();
        let items = match serde_json::from_slice(&bytes).ok()? {
            Value::Object(mut wrapped) => match wrapped.remove(SAMPLES) {
                Some(samples) => json!([samples]),
                None => WRAPPED.iter().find_map(|field| wrapped.remove(*field))?,
            },
            items => items,
        };
        Some(Self { items: serde_json::from_value(items).ok()?, continues, running: running.unwrap_or(0) })
    }

    fn add(&mut self, other: Self) {
        self.items.extend(other.items);
        self.continues |= other.continues;
        self.running += other.running;
    }

    /// Sorts the items as one node would, and cuts them to one page. Returns the token of the next page. A token is a
    /// position in the order of all sandboxes, so every node understands it.
    fn arrange(&mut self, path: &str, query: Option<&str>) -> Option<HeaderValue> {
        let oldest_first = path == "/v1/sandboxes" || path == PAGED && query_value(query, "order") == "asc";
        if oldest_first {
            self.items.sort_by_cached_key(position);
        } else {
            self.items.sort_by_cached_key(|item| Reverse(position(item)));
        }
        // A sandbox that moves is on two nodes for a moment, and two nodes may have snapshots of one name.
        let mut seen = HashSet::new();
        self.items.retain(|item| seen.insert(position(item).1));
        if !matches!(path, PAGED | PAGED_SNAPSHOTS) {
            return None;
        }
        let limit = e2b::page_limit(query_value(query, "limit").parse().ok());
        let continues = self.continues || self.items.len() > limit;
        self.items.truncate(limit);
        let (created, id) = self.items.last().filter(|_| continues).map(position)?;
        HeaderValue::from_str(&format!("{created}.{id}")).ok()
    }
}

/// The time of creation in nanoseconds, and the id.
pub(super) fn position(item: &Value) -> (i128, String) {
    let text = |names: &[&str]| names.iter().find_map(|name| item[name].as_str()).unwrap_or_default().to_owned();
    let created = text(&["created_at", "startedAt", "createdAt", "started_at"]);
    let created = created.parse::<Timestamp>().map_or(0, Timestamp::as_nanosecond);
    let id = text(&["id", "sandboxID", "snapshotID"]);
    (created, e2b::parse_id(&id).map_or(id, |id| id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 3] =
        ["00000000000000000000000000000001", "00000000000000000000000000000002", "00000000000000000000000000000003"];

    fn page(items: &[(&str, &str)], continues: bool) -> Page {
        let item = |(id, at): &(&str, &str)| json!({"sandboxID": id, "startedAt": at});
        Page { items: items.iter().map(item).collect(), continues, running: items.len() as u64 }
    }

    fn ids(page: &Page) -> Vec<&str> {
        page.items.iter().map(|item| item["sandboxID"].as_str().unwrap()).collect()
    }

    #[test]
    fn pages_of_nodes_become_one_page_that_can_be_continued() {
        let [one, two, three] = IDS;
        let own = [(one, "2026-01-01T00:00:01.5Z"), (three, "2026-01-01T00:00:03Z")];
        let theirs = [(two, "2026-01-01T00:00:02Z")];
        let merged = || {
            let mut all = page(&own, false);
            all.add(page(&theirs, false));
            all
        };
        let mut first = merged();
        assert_eq!(first.running, 3);
        let next = first.arrange(PAGED, Some("limit=2")).unwrap();
        assert_eq!(ids(&first), [three, two]);
        let second = "1767225602000000000.00000000-0000-0000-0000-000000000002";
        assert_eq!(next, second);
        let mut all = merged();
        assert_eq!(all.arrange(PAGED, Some("order=asc&limit=3")), None);
        assert_eq!(ids(&all), IDS);
        let mut native = merged();
        assert_eq!(native.arrange("/v1/sandboxes", Some("limit=1")), None);
        assert_eq!(ids(&native), IDS);
        let mut moving = merged();
        moving.add(page(&theirs, false));
        moving.arrange("/v1/sandboxes", None);
        assert_eq!(ids(&moving), IDS, "each once");
        let snapshot = |at: &str| json!({"snapshotID": "mine:default", "createdAt": at});
        let items = ["2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"].map(snapshot).to_vec();
        let mut snapshots = Page { items, ..Page::default() };
        assert_eq!(snapshots.arrange(PAGED_SNAPSHOTS, None), None);
        assert_eq!(snapshots.items, [snapshot("2026-01-01T00:00:02Z")], "the newest of each name");
        let build = |at: &str| position(&json!({"id": "b", "started_at": at}));
        assert!(build("2026-01-01T00:00:01Z") < build("2026-01-01T00:00:01.5Z"));
        // A node that has more makes the whole list continue.
        let mut all = page(&theirs, true);
        assert_eq!(all.arrange(PAGED, None).unwrap(), second);
    }
}
