//! A server in the place of one that is about to end.

use super::server::{Server, answer};

#[test]
fn who_starts_while_a_server_ends_has_its_sandboxes() {
    let mut server = Server::start_with(&["--standbys", "0"]);
    let id = server.ok(&["create"]).trim().to_owned();
    // A request under way keeps it from ending.
    let body = r#"{"cmd": "touch /tmp/began; sleep 3; echo done"}"#;
    let waiting = server.ask("POST", &format!("/v1/sandboxes/{id}/exec"), body);
    server.ok(&["exec", "-c", "until [ -f /tmp/began ]; do sleep 0.05; done", &id]);
    assert!(server.replace().success());
    assert_eq!(answer(waiting)["stdout"], "done\n");
    assert_eq!(server.ok(&["exec", "-c", "ls /tmp/began", &id]), "/tmp/began\n");
}
