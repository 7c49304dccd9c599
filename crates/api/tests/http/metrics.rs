//! The history of resource usage.

use std::time::Instant;

use crate::harness::{PATIENCE, Server, TOKEN};

#[tokio::test]
async fn the_hosts_usage_is_recorded_for_operators() {
    let server = Server::start().await;
    let start = Instant::now();
    let history = loop {
        let answer = server.get("/v1/host/metrics?step=5").await;
        if answer.status == 200 && !answer.json()["points"].as_array().unwrap().is_empty() {
            break answer.json();
        }
        assert!(start.elapsed() < PATIENCE, "{}", answer.json());
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    };
    assert_eq!(history["step_seconds"], 5);
    let total = history["memory_total_bytes"].as_u64().unwrap();
    let used = history["points"][0]["memory_bytes"].as_u64().unwrap();
    assert!(0 < used && used < total, "{history}");
    let made = server.post("/v1/me/tokens", serde_json::json!({ "name": "reader", "scope": "read" })).await.json();
    let refused = server.call(made["token"].as_str(), "GET", "/v1/host/metrics", None).await;
    assert_eq!(refused.refusal().0, 403);
    server.stop().await;
}

#[tokio::test]
async fn a_span_must_make_sense() {
    let server = Server::start().await;
    for query in ["from=yesterday", "to=x", "from=200&to=100", "step=0", "step=fast", "from=2026-02-30T00:00:00Z"] {
        let refused = server.get(&format!("/v1/host/metrics?{query}")).await;
        assert_eq!(refused.refusal().0, 400, "{query}");
    }
    let unknown = "/v1/sandboxes/00000000-0000-4000-8000-000000000000/metrics?step=5";
    assert_eq!(server.call(Some(TOKEN), "GET", unknown, None).await.refusal(), (404, "not_found".to_owned()));
    server.stop().await;
}
