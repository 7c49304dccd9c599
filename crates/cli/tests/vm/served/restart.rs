//! A server that starts while its predecessor shuts down.

use super::server::{Server, answer};

#[test]
fn a_server_started_during_a_shutdown_takes_over_the_sandboxes() {
    let mut server = Server::start_with(&["--standbys", "0"]);
    let id = server.ok(&["create", "-t", "base"]).trim().to_owned();
    // An open request delays the shutdown.
    let body = r#"{"cmd": "touch /tmp/began; sleep 3; echo done"}"#;
    let waiting = server.ask("POST", &format!("/v1/sandboxes/{id}/exec"), body);
    server.ok(&["exec", "-c", "until [ -f /tmp/began ]; do sleep 0.05; done", &id]);
    assert!(server.replace().success());
    assert_eq!(answer(waiting)["stdout"], "done\n");
    assert_eq!(server.ok(&["exec", "-c", "ls /tmp/began", &id]), "/tmp/began\n");
}
