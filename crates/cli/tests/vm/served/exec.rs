//! `exec`, and `logs` of its commands.

use std::io::Read;
use std::time::Instant;

use super::server::{PATIENCE, Server, noise, signal, text};

#[test]
fn exec_forwards_streams_options_and_exit_code() {
    let server = Server::shared();
    let id = server.sandbox();
    let ran = server.fed(&["exec", id, "sh", "-c", "cat; echo err >&2; exit 7"], b"data\n");
    assert_eq!((text(&ran.stdout), text(&ran.stderr), ran.status.code()), ("data\n".into(), "err\n".into(), Some(7)));
    // Arbitrary bytes in both directions at once, more than all buffers together hold.
    let bytes = noise(3_000_000);
    let ran = server.fed(&["exec", &id[..6], "cat"], &bytes);
    assert!(ran.stdout == bytes, "{} bytes came back: {}", ran.stdout.len(), text(&ran.stderr));
    let line = "echo \"$(pwd)|$A|$(id -un)|$(test -t 0 || echo no terminal)\"";
    let said = server.ok(&["exec", "-w", "/tmp", "-e", "A=b c", "-u", "user", "-c", line, id]);
    assert_eq!(said, "/tmp|b c|user|no terminal\n");
    // A command that never reads its stdin must not block its output.
    let ran = server.fed(&["exec", id, "head", "-c", "2000000", "/dev/zero"], &bytes);
    assert_eq!(ran.stdout.len(), 2_000_000);
    assert_eq!(server.ok(&["exec", "--no-stdin", id, "cat"]), "");
}

#[test]
fn limits_and_invalid_requests_have_their_exit_codes() {
    let server = Server::shared();
    let id = server.sandbox();
    let ran = server.sandling(&["exec", "--timeout", "3s", "-c", "echo begun; sleep 600", id]);
    assert_eq!((ran.status.code(), text(&ran.stdout)), (Some(124), "begun\n".into()));
    assert!(text(&ran.stderr).contains("timeout after 3 s"), "{}", text(&ran.stderr));
    let ran = server.sandling(&["exec", id, "no-such-program"]);
    assert_eq!(ran.status.code(), Some(127));
    assert!(text(&ran.stderr).contains("no-such-program"), "{}", text(&ran.stderr));
    assert!(server.refused(&["exec", "-w", "/no/such/place", id, "true"]).contains("/no/such/place"));
    assert!(server.refused(&["exec", "zzzz", "true"]).contains("sandling ls"));
    assert!(server.refused(&["exec", "00000000-0000-4000-8000-000000000000", "true"]).contains("not found"));
    assert!(server.refused(&["exec", "-t", id, "true"]).contains("terminal"));
    assert!(server.refused(&["shell", id]).contains("terminal"));
}

#[test]
fn ctrl_c_and_a_closed_stdout_stop_a_command() {
    let server = Server::shared();
    let id = server.sandbox();
    // Short sleeps: Python does not notice an interrupt that arrives just before a long sleep until the sleep ends.
    let code = "import time\ntry:\n  print('up', flush=True)\n  while True: time.sleep(0.1)\nexcept KeyboardInterrupt: print('caught'); exit(4)";
    let mut child = server.command(&["exec", id, "python3", "-c", code]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 3]).unwrap();
    signal(child.id(), libc::SIGINT);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("caught\n", Some(4)));

    let mut child = server.command(&["exec", id, "yes", "unheard"]).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 100]).unwrap();
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(141));
    let deadline = Instant::now() + PATIENCE;
    while server.sandling(&["exec", id, "pgrep", "-f", "^yes unheard"]).status.success() {
        assert!(Instant::now() < deadline, "the command is still running");
    }
}

#[test]
fn a_detached_command_keeps_running_and_its_output_can_be_read() {
    let server = Server::shared();
    let id = server.sandbox();
    let line = "echo one; echo two >&2; while ! test -e /tmp/go-on; do sleep 0.05; done; echo three";
    let exec = server.ok(&["exec", "--detach", "-c", line, id]).trim().to_owned();
    let following = server.command(&["logs", "-f", "--exec", &exec, id]).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let so_far = server.sandling(&["logs", "--exec", &exec, id]);
        assert_eq!(so_far.status.code(), Some(0));
        if (text(&so_far.stdout).as_str(), text(&so_far.stderr).as_str()) == ("one\n", "two\n") {
            break;
        }
        assert!(Instant::now() < deadline, "{so_far:?}");
    }
    server.ok(&["exec", id, "touch", "/tmp/go-on"]);
    let followed = following.wait_with_output().unwrap();
    assert_eq!((text(&followed.stdout), text(&followed.stderr)), ("one\nthree\n".into(), "two\n".into()));
    assert_eq!(server.ok(&["logs", "--exec", &exec, id]), "one\nthree\n");
    assert!(server.refused(&["logs", "--exec", "none", id]).contains("sandling execs"));
    assert_eq!(server.json(&["exec", "--detach", "--json", id, "true"])["status"], "running");
}

#[test]
fn output_before_a_guest_death_is_returned_with_the_error() {
    let server = Server::shared();
    let id = server.ok(&["create", "-t", "base"]).trim().to_owned();
    let path = format!("/v1/sandboxes/{id}");
    let told = std::thread::scope(|scope| {
        let command = r#"{"cmd": "echo out; echo err >&2; touch /tmp/printed; sleep 600"}"#;
        let running = scope.spawn(|| server.call("POST", &format!("{path}/exec"), command));
        server.ok(&["exec", "-c", "until [ -e /tmp/printed ]; do sleep 0.05; done", &id]);
        let record = std::fs::read(server.home.path().join("sandboxes").join(&id).join("machine.json")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        signal(record["qemu"]["pid"].as_u64().unwrap() as u32, libc::SIGKILL);
        running.join().unwrap()
    });
    assert_eq!(
        (&told["code"], &told["stdout"], &told["stderr"]),
        (&"guest_died".into(), &"out\n".into(), &"err\n".into())
    );
    assert!(told["error"].as_str().unwrap().starts_with("guest died"), "{told}");
}
