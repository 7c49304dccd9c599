//! The audit log of a fleet: each node writes its own, and any node shows those of all as one.
//!
//! The entries of a node stay in the order of their numbers, and nodes are merged by time. A page names the last entry of each
//! node that was read, so no entry is missed or read twice, also if clocks differ or a node did not answer for a while.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use futures_util::future::join_all;
use jiff::Timestamp;
use sandling_fleet::Member;
use serde_json::{Value, json};

use super::here::Here;
use super::list::{self, Lists, gather, gather_each};
use super::member::{Fleet, unreachable};
use crate::app::App;
use crate::auth::query_value;
use crate::error::ApiError;

const LIST: &str = "/v1/audit";
const VERIFY: &str = "/v1/audit/verify";
/// As for one node.
const USUAL_LIMIT: usize = 100;
const LARGEST_LIMIT: usize = 10_000;

pub(super) fn is_about(path: &str) -> bool {
    path == LIST || path.starts_with("/v1/audit/")
}

pub(super) async fn answer(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let query = request.uri().query();
    let node = query_value(query, "node");
    if !node.is_empty() {
        return answer_of(fleet, app, &node, request, here).await;
    }
    match request.uri().path() {
        LIST => list(fleet, app, request, here).await,
        VERIFY => Ok(verify(fleet, app, request, here).await),
        _ => recording(fleet, app, request, here).await,
    }
}

/// What one node has, in its own numbers.
async fn answer_of(
    fleet: &Fleet,
    app: &App,
    node: &str,
    request: Request,
    here: Here<'_>,
) -> Result<Response, ApiError> {
    if node == fleet.membership.name() {
        return Ok(here.answer(request).await);
    }
    let member = fleet.others().into_iter().find(|member| *member.name == *node);
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "node_not_found", format!("there is no node `{node}`"));
    fleet.forward(app, &member.ok_or_else(missing)?, request).await
}

async fn list(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let query = request.uri().query().map(str::to_owned);
    let value = |name| query_value(query.as_deref(), name);
    let after = match &*value("after") {
        "" => None,
        text => Some(Position::parse(text).ok_or_else(|| {
            ApiError::bad_request(
                "in a fleet, `after` is the `next` of an earlier list; with `node`, it is the number of an entry",
            )
        })?),
    };
    let limit = value("limit").parse().unwrap_or(USUAL_LIMIT).min(LARGEST_LIMIT);
    let since = value("since");
    let of_node = |node: &str, request| match &after {
        Some(after) => after.apply(node, request),
        None => request,
    };
    let mut lists = match gather_each(fleet, app, request, here, of_node).await {
        Ok(lists) => lists,
        Err(refusal) => return Ok(refusal),
    };
    let pages = named_items(&mut lists);
    let (items, next) = match after {
        Some(after) => continued(pages, after, limit),
        None => newest(pages, !since.is_empty(), limit),
    };
    Ok(lists.respond(&json!({ "items": items, "next": next.to_string() })))
}

async fn verify(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Response {
    match gather(fleet, app, request, here).await {
        Ok(mut lists) => {
            let chains: Vec<Value> = named_items(&mut lists).into_iter().flat_map(|(_, chains)| chains).collect();
            lists.respond(&json!({ "chains": chains }))
        }
        Err(refusal) => refusal,
    }
}

/// A recording of the node that has it. Each node counts its own entries, so several may have one of this number.
async fn recording(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Result<Response, ApiError> {
    let asks: Vec<_> = fleet.others().into_iter().map(|member| (list::copy(&request), member)).collect();
    let own = here.answer(request).await;
    if !matches!(own.status(), StatusCode::OK | StatusCode::NOT_FOUND) {
        return Ok(own);
    }
    let ask = |(request, member): (Request, Member)| async move {
        let answer = tokio::time::timeout(list::ANSWER_WITHIN, fleet.forward(app, &member, request)).await;
        (member.name, answer.ok().and_then(Result::ok))
    };
    let mut found: Vec<(Arc<str>, Response)> = Vec::new();
    let mut silent = None;
    for (node, answer) in join_all(asks.into_iter().map(ask)).await {
        match answer {
            Some(answer) if answer.status() == StatusCode::OK => found.push((node, answer)),
            Some(answer) if answer.status() == StatusCode::NOT_FOUND => {}
            _ => silent = Some(node),
        }
    }
    if own.status() == StatusCode::OK {
        found.push((fleet.membership.name().into(), own));
    } else if found.is_empty() {
        return match silent {
            Some(node) => Err(unreachable(&node, "it was asked for the recording")),
            None => Ok(own),
        };
    }
    match (found.pop(), found.is_empty()) {
        (Some((_, only)), true) => Ok(only),
        (last, _) => {
            let nodes: Vec<_> = found.iter().chain(&last).map(|(node, _)| format!("`{node}`")).collect();
            let message = format!("the nodes {} have recordings of this number; add `node`", nodes.join(", "));
            Err(ApiError::conflict("number_ambiguous", message))
        }
    }
}

/// What each node has listed, with its name in each item.
fn named_items(lists: &mut Lists) -> Vec<(Arc<str>, Vec<Value>)> {
    let pages = std::mem::take(&mut lists.pages).into_iter();
    pages
        .map(|(node, page)| {
            let mut items = page.items;
            items.iter_mut().for_each(|item| item["node"] = (*node).into());
            (node, items)
        })
        .collect()
}

/// Up to where the logs of all nodes were read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    /// Where to begin in the log of a node that is not named, in milliseconds since 1970.
    floor_ms: i64,
    /// The number of each node's last entry that was read.
    nodes: BTreeMap<String, i64>,
}

impl Position {
    /// `1767225602000.a.12.b.7`. A node's name has no dots.
    fn parse(text: &str) -> Option<Self> {
        let (floor, rest) = text.split_once('.').map_or((text, None), |(floor, rest)| (floor, Some(rest)));
        let parts: Vec<&str> = rest?.split('.').collect();
        let nodes = match parts[..] {
            [""] => BTreeMap::new(),
            _ if parts.len().is_multiple_of(2) => {
                let pairs = parts.chunks(2).map(|pair| Some((pair[0].to_owned(), pair[1].parse().ok()?)));
                pairs.collect::<Option<_>>()?
            }
            _ => return None,
        };
        Some(Self { floor_ms: floor.parse().ok()?, nodes })
    }

    /// The request for a node's entries after this position, in its own numbers.
    fn apply(&self, node: &str, mut request: Request) -> Request {
        let query: Vec<(String, String)> =
            serde_urlencoded::from_str(request.uri().query().unwrap_or_default()).unwrap_or_default();
        let mut since = query_value(request.uri().query(), "since");
        let mut query: Vec<_> = query.into_iter().filter(|(name, _)| !matches!(&**name, "after" | "since")).collect();
        let after = self.nodes.get(node).copied();
        if after.is_none() {
            let floor = Timestamp::from_millisecond(self.floor_ms).unwrap_or(Timestamp::MIN);
            let wanted = since.parse::<Timestamp>().unwrap_or(Timestamp::MIN);
            since = floor.max(wanted).to_string();
        }
        query.push(("after".to_owned(), after.unwrap_or(0).to_string()));
        if !since.is_empty() {
            query.push(("since".to_owned(), since));
        }
        let query = serde_urlencoded::to_string(query).unwrap_or_default();
        if let Ok(uri) = Uri::try_from(format!("{LIST}?{query}")) {
            *request.uri_mut() = uri;
        }
        request
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.", self.floor_ms)?;
        for (at, (node, number)) in self.nodes.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            write!(f, "{dot}{node}.{number}")?;
        }
        Ok(())
    }
}

fn time_ms(entry: &Value) -> i64 {
    let time = entry["time"].as_str().unwrap_or_default().parse::<Timestamp>();
    time.map_or(0, Timestamp::as_millisecond)
}

fn number(entry: &Value) -> i64 {
    entry["number"].as_i64().unwrap_or(0)
}

/// The newest entries of all nodes. All others count as read.
fn newest(pages: Vec<(Arc<str>, Vec<Value>)>, has_since: bool, limit: usize) -> (Vec<Value>, Position) {
    let mut nodes = BTreeMap::new();
    for (node, items) in &pages {
        match items.last() {
            Some(last) => drop(nodes.insert(node.to_string(), number(last))),
            // It has no entries at all, so its first one is the next.
            None if !has_since => drop(nodes.insert(node.to_string(), 0)),
            None => {}
        }
    }
    let mut items: Vec<Value> = merged(pages).collect();
    items.drain(..items.len().saturating_sub(limit));
    let floor_ms = items.iter().map(time_ms).min().unwrap_or_else(|| Timestamp::now().as_millisecond());
    (items, Position { floor_ms, nodes })
}

/// The first entries after a position.
fn continued(pages: Vec<(Arc<str>, Vec<Value>)>, after: Position, limit: usize) -> (Vec<Value>, Position) {
    let items: Vec<Value> = merged(pages).take(limit).collect();
    let mut next = after;
    for item in &items {
        next.nodes.insert(item["node"].as_str().unwrap_or_default().to_owned(), number(item));
    }
    (items, next)
}

/// All entries: those of each node in their order, and of several nodes the oldest first.
fn merged(pages: Vec<(Arc<str>, Vec<Value>)>) -> impl Iterator<Item = Value> {
    let mut pages: Vec<VecDeque<Value>> = pages.into_iter().map(|(_, items)| items.into()).collect();
    std::iter::from_fn(move || {
        let with_entries = pages.iter_mut().filter(|page| !page.is_empty());
        let oldest = with_entries.min_by_key(|page| (time_ms(&page[0]), page[0]["node"].as_str().map(str::to_owned)));
        oldest?.pop_front()
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use proptest::prelude::*;

    use super::*;

    fn entry(node: &str, number: i64, second: i64) -> Value {
        json!({"node": node, "number": number, "time": Timestamp::from_second(second).unwrap().to_string()})
    }

    fn names(entries: &[Value]) -> Vec<String> {
        entries.iter().map(|entry| format!("{}{}", entry["node"].as_str().unwrap(), entry["number"])).collect()
    }

    /// What the nodes answer to a request after a position, or without one.
    fn pages(all: &[Vec<Value>], after: Option<&Position>, limit: usize) -> Vec<(Arc<str>, Vec<Value>)> {
        let page = |(at, log): (usize, &Vec<Value>)| {
            let node = ["a", "b", "c"][at];
            let last = after.map(|after| after.nodes.get(node).copied());
            let is_new = |entry: &&Value| match last {
                Some(Some(last)) => number(entry) > last,
                Some(None) => time_ms(entry) >= after.unwrap().floor_ms,
                None => true,
            };
            let mut items: Vec<Value> = log.iter().filter(is_new).cloned().collect();
            match after {
                Some(_) => items.truncate(limit),
                None => drop(items.drain(..items.len().saturating_sub(limit))),
            }
            (node.into(), items)
        };
        all.iter().enumerate().map(page).collect()
    }

    #[test]
    fn the_newest_of_all_nodes_are_listed_by_time_and_new_ones_follow() {
        let mut logs = vec![vec![entry("a", 1, 10), entry("a", 2, 30)], vec![entry("b", 1, 20)], vec![]];
        let (items, next) = newest(pages(&logs, None, 2), false, 2);
        assert_eq!(names(&items), ["b1", "a2"]);
        assert_eq!(next.to_string(), "20000.a.2.b.1.c.0");
        // The clock of b is behind.
        logs[1].push(entry("b", 2, 5));
        logs[2].push(entry("c", 1, 40));
        let (items, next) = continued(pages(&logs, Some(&next), 9), next, 9);
        assert_eq!(names(&items), ["b2", "c1"]);
        assert_eq!(next.to_string(), "20000.a.2.b.2.c.1");
        assert_eq!(continued(pages(&logs, Some(&next), 9), next.clone(), 9), (vec![], next));
    }

    #[test]
    fn a_node_that_did_not_answer_continues_where_the_list_began() {
        let logs = vec![vec![entry("a", 7, 100)], vec![entry("b", 1, 20), entry("b", 2, 110)]];
        let (_, next) = newest(pages(&logs[..1], None, 9), false, 9);
        let (items, next) = continued(pages(&logs, Some(&next), 9), next, 9);
        assert_eq!(names(&items), ["b2"]);
        assert_eq!(next.nodes["b"], 2);
    }

    #[test]
    fn each_node_is_asked_in_its_own_numbers() {
        let position = Position::parse("20000.a.2.b-1.7").unwrap();
        let ask = |node: &str, query: &str| {
            let request = Request::get(format!("/v1/audit?{query}")).body(Body::empty()).unwrap();
            position.apply(node, request).uri().to_string()
        };
        let query = "after=20000.a.2.b-1.7&limit=3&workspace=team";
        assert_eq!(ask("b-1", query), "/v1/audit?limit=3&workspace=team&after=7");
        let since = "since=1970-01-01T00%3A00%3A20Z";
        assert_eq!(ask("c", query), format!("/v1/audit?limit=3&workspace=team&after=0&{since}"));
        assert_eq!(ask("c", "since=1970-01-01T00:00:01Z"), format!("/v1/audit?after=0&{since}"));
        let later = "since=1970-01-01T00%3A01%3A00Z";
        assert_eq!(ask("a", "since=1970-01-01T00:01:00Z"), format!("/v1/audit?after=2&{later}"));
        assert_eq!(ask("c", "since=1970-01-01T00:01:00Z"), format!("/v1/audit?after=0&{later}"));
        for bad in ["12", "x.a.1", "1.a", "1.a.b", "1.a.1.b"] {
            assert_eq!(Position::parse(bad), None, "{bad}");
        }
        let empty = Position { floor_ms: 5, nodes: BTreeMap::new() };
        assert_eq!(Position::parse(&empty.to_string()), Some(empty));
    }

    proptest! {
        #[test]
        fn pages_have_every_entry_once_and_in_the_order_of_its_node(
            times in proptest::collection::vec(proptest::collection::vec(0i64..50, 0..20), 3), limit in 1usize..7,
        ) {
            let log = |(at, times): (usize, &Vec<i64>)| {
                let times = times.iter().enumerate();
                times.map(|(number, second)| entry(["a", "b", "c"][at], number as i64 + 1, *second)).collect()
            };
            let logs: Vec<Vec<Value>> = times.iter().enumerate().map(log).collect();
            let nodes = ["a", "b", "c"].map(|node| (node.to_owned(), 0)).into();
            let (mut position, mut read) = (Position { floor_ms: 0, nodes }, Vec::new());
            loop {
                let (items, next) = continued(pages(&logs, Some(&position), limit), position.clone(), limit);
                if items.is_empty() {
                    break;
                }
                read.extend(items);
                position = Position::parse(&next.to_string()).unwrap();
            }
            prop_assert_eq!(read.len(), logs.iter().map(Vec::len).sum::<usize>());
            for (node, log) in ["a", "b", "c"].iter().zip(&logs) {
                let of_node: Vec<_> = read.iter().filter(|entry| entry["node"] == *node).cloned().collect();
                prop_assert_eq!(&of_node, log);
            }
            if times.iter().all(|times| times.is_sorted()) {
                prop_assert!(read.iter().map(time_ms).is_sorted());
            }
        }
    }
}
