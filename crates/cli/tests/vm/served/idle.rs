//! A server with an idle timeout.

use std::time::{Duration, Instant};

use super::server::{PATIENCE, Server};

const IDLE: Duration = Duration::from_secs(2);

#[test]
fn an_idle_server_exits_only_without_running_sandboxes() {
    let server = Server::start_with(&["--standbys", "0", "--idle-exit", "2"]);
    let id = server.ok(&["create", "-t", "base"]).trim().to_owned();
    assert!(server.ended(Instant::now() + 2 * IDLE).is_none(), "it exited while a sandbox was running");
    assert_eq!(server.ok(&["exec", "-c", "echo still there", &id]), "still there\n");

    server.ok(&["rm", &id]);
    let removed = Instant::now();
    let ended = server.ended(removed + PATIENCE).expect("it did not exit when idle");
    assert!(ended.success() && removed.elapsed() >= IDLE / 2, "{ended} after {:?}", removed.elapsed());
    assert!(!server.home.path().join("server").exists(), "its address is still announced");
    assert!(std::fs::read_dir(server.home.path().join("sandboxes")).unwrap().next().is_none());
}
