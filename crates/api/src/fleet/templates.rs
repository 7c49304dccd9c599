//! Templates: one list of those of all nodes, which says where each of them is.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};

use super::here::Here;
use super::list::{Page, gather};
use super::member::Fleet;
use crate::app::App;

pub(super) const PATH: &str = "/v1/templates";

pub(super) async fn list(fleet: &Fleet, app: &App, request: Request, here: Here<'_>) -> Response {
    match gather(fleet, app, request, here).await {
        Ok(mut lists) => {
            let all = merge(std::mem::take(&mut lists.pages));
            lists.respond(&all.into())
        }
        Err(refusal) => refusal,
    }
}

/// One entry for each name, as the first node that has the template ready describes it, and the nodes that have it.
fn merge(pages: Vec<(Arc<str>, Page)>) -> Vec<Value> {
    let mut all: BTreeMap<String, (Value, Vec<Arc<str>>)> = BTreeMap::new();
    for (node, page) in pages {
        for template in page.items {
            let name = template["name"].as_str().unwrap_or_default().to_owned();
            let is_ready = template["ready"] == true;
            let (entry, nodes) = all.entry(name).or_insert_with(|| (template.clone(), Vec::new()));
            if is_ready {
                if nodes.is_empty() {
                    *entry = template;
                }
                nodes.push(node.clone());
            }
        }
    }
    let describe = |(mut entry, nodes): (Value, Vec<Arc<str>>)| {
        entry["nodes"] = json!(nodes.iter().map(|node| &**node).collect::<Vec<_>>());
        entry
    };
    all.into_values().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_listed_once_with_the_nodes_that_have_it() {
        let page = |node: &str, items: &[(&str, bool)]| {
            let item = |(name, ready): &(&str, bool)| json!({"name": name, "ready": ready, "from": node});
            (node.into(), Page { items: items.iter().map(item).collect(), ..Page::default() })
        };
        let pages = vec![
            page("a", &[("agent", false), ("base", true)]),
            page("b", &[("agent", true), ("base", true), ("mine", true)]),
            page("c", &[("agent", false)]),
        ];
        let expected = [
            json!({"name": "agent", "ready": true, "from": "b", "nodes": ["b"]}),
            json!({"name": "base", "ready": true, "from": "a", "nodes": ["a", "b"]}),
            json!({"name": "mine", "ready": true, "from": "b", "nodes": ["b"]}),
        ];
        assert_eq!(merge(pages), expected);
    }
}
