//! The history of resource usage.

use std::time::Instant;

use serde_json::Value;

use super::server::{PATIENCE, Server};

fn points(server: &Server, path: &str) -> Vec<Value> {
    server.call("GET", path, "")["points"].as_array().cloned().unwrap_or_default()
}

/// Waits until there are two points, one of them with at least this CPU usage.
fn wait_for_points(server: &Server, path: &str, cpu_percent: f64) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = points(server, path);
        let most = found.iter().filter_map(|point| point["cpu_percent"].as_f64()).fold(0.0, f64::max);
        if found.len() >= 2 && most >= cpu_percent {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn usage_is_recorded_and_outlives_the_sandbox_and_the_server() {
    let mut server = Server::start();
    let id = server.ok(&["create", "-t", "base"]).trim().to_owned();
    let path = format!("/v1/sandboxes/{id}/metrics?step=5");
    // It gets less than a core when other tests run. A sandbox without work uses less than one percent.
    server.ok(&["exec", "--detach", "-c", "while :; do :; done", &id]);
    let recorded = wait_for_points(&server, &path, 5.0);
    assert!(recorded.iter().all(|point| point["memory_bytes"].as_u64() > Some(1 << 20)), "{recorded:?}");
    let host = wait_for_points(&server, "/v1/host/metrics?step=5", 0.0);
    assert!(host[0]["memory_bytes"].as_u64() > Some(1 << 20) && host[0]["disk_bytes"].as_u64() > Some(0), "{host:?}");
    // A hibernated sandbox stays so.
    server.ok(&["hibernate", &id]);
    assert!(!points(&server, &path).is_empty());
    assert_eq!(server.call("GET", &format!("/v1/sandboxes/{id}"), "")["status"], "hibernated");
    server.ok(&["rm", &id]);
    server.kill();
    server.start_again();
    let kept = points(&server, &path);
    assert!(recorded.iter().all(|point| kept.iter().any(|other| other["time"] == point["time"])), "{kept:?}");
    let unknown = server.call("GET", "/v1/sandboxes/00000000-0000-4000-8000-000000000000/metrics?step=5", "");
    assert_eq!(unknown["code"], "not_found");
}
