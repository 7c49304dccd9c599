//! Templates with warm commands.

use super::server::{Server, text};

#[test]
fn warm_commands_run_before_a_template_is_saved_and_leave_no_process() {
    let server = Server::shared();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("Dockerfile");
    std::fs::write(&file, "FROM base\nWORKDIR /srv\nLABEL sandling.warm=\"pwd > warm\"\n").unwrap();
    let build = ["template", "build", "warmed", "-f", file.to_str().unwrap()];
    // One process stays in the command's session, and the other leaves it.
    let leaving = "echo two >> warm; sleep 1000 & setsid sleep 1000 & cat /proc/[0-9]*/comm | grep -c sleep >> warm";
    server.ok(&[&build[..], &["--warm", "echo one >> warm", "--warm", leaving]].concat());
    let sandbox = server.ok(&["create", "-t", "warmed"]);
    let shown = "cat /srv/warm; cat /proc/[0-9]*/comm | grep -c sleep";
    assert_eq!(text(&server.sandling(&["exec", "-c", shown, sandbox.trim()]).stdout), "/srv\none\ntwo\n2\n0\n");
    server.ok(&["rm", sandbox.trim()]);

    let failed = server.sandling(&[&build[..], &["--warm", "echo oh; echo no >&2; exit 3"]].concat());
    let said = text(&failed.stderr);
    let why = "the warm command `echo oh; echo no >&2; exit 3` ended with the exit code 3: oh | no";
    assert!(!failed.status.success() && said.contains(why), "{said}");
    server.ok(&["template", "rm", "warmed"]);
}

#[test]
fn a_template_without_packages_can_have_warm_commands() {
    let server = Server::shared();
    server.ok(&["template", "build", "rehearsed", "--warm", "pwd > /srv/warm; whoami >> /srv/warm"]);
    let sandbox = server.ok(&["create", "-t", "rehearsed"]);
    let shown = server.ok(&["exec", "-c", "cat /srv/warm; pwd; whoami", sandbox.trim()]);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[..2], lines[2..], "a warm command and a command in a sandbox");
    server.ok(&["rm", sandbox.trim()]);
    server.ok(&["template", "rm", "rehearsed"]);
}
