//! Checkpoints, rewinding and diffs.

use super::server::{Server, text};

#[test]
fn a_sandbox_is_rewound_and_its_changes_are_shown() {
    let server = Server::shared();
    let made =
        server.json(&["create", "-t", "base", "--json", "--checkpoints", "every-exec", "--checkpoints-kept", "5"]);
    assert_eq!(made["checkpoints_kept"], 5);
    let id = made["id"].as_str().unwrap();
    server.ok(&["exec", "-c", "mkdir /root/w; echo one > /root/w/kept; echo x > /root/w/gone", id]);
    assert_eq!(server.ok(&["checkpoint", "create", "--name", "good", id]), "2\n");
    server.ok(&[
        "exec",
        "-c",
        "cd /root/w; echo two > kept; rm gone; mkdir d; printf 'new\\n' > \"$(printf 'd/\\033[1m')\"",
        id,
    ]);
    // An upload of several files creates one checkpoint.
    let files = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(files.path().join(name), name).unwrap();
    }
    server.ok(&["cp", &format!("{}/.", files.path().display()), &format!("{id}:/root/w/up")]);
    let told = server.json(&["timeline", "--json", id]);
    let causes: Vec<_> = told["checkpoints"].as_array().unwrap().iter().map(|one| one["cause"].clone()).collect();
    assert_eq!(causes, ["exec", "request", "exec", "files"], "{told}");
    let table = server.ok(&["timeline", &id[..8]]);
    assert!(table.contains("good") && table.contains("exec: cd /root/w"), "{table}");

    let listed = server.ok(&["diff", &format!("{id}@good"), id, "--path", "/root/w"]);
    let expected = ["A d/", "A d/\\u{1b}[1m", "D gone", "M kept", "A up/", "A up/a", "A up/b", "A up/c"];
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    let patch = server.ok(&["diff", &format!("{}@2", &id[..8]), &format!("{id}@3"), "--path", "/root/w", "--patch"]);
    assert_eq!(patch, "", "nothing changed between the two");
    let patch = server.ok(&["diff", &format!("{id}@2"), "--path", "/root/w", "--patch"]);
    assert!(patch.contains("--- a/kept\n+++ b/kept\n@@ -1,1 +1,1 @@\n-one\n+two\n"), "{patch}");
    let tar = files.path().join("changes.tar");
    server.ok(&["diff", &format!("{id}@2"), "--path", "/root/w", "--tar", tar.to_str().unwrap()]);
    let unpacked = std::process::Command::new("tar").arg("-tf").arg(&tar).output().unwrap();
    assert!(text(&unpacked.stdout).contains("up/b\n"), "{}", text(&unpacked.stdout));

    let child = server.ok(&["fork", "--at", "good", id]);
    assert_eq!(server.ok(&["exec", "-c", "cd /root/w; cat *", child.trim()]), "x\none\n");
    assert_eq!(server.ok(&["exec", "-c", "cat /root/w/kept", id]), "two\n", "the sandbox itself did not go back");
    server.ok(&["rm", child.trim()]);
    assert!(server.refused(&["fork", "--at", "99", id]).contains("no such checkpoint"));

    assert!(
        server.ok(&["rewind", id, "--to", "good"]).contains("is at checkpoint 2; the previous state is checkpoint 6")
    );
    assert_eq!(server.ok(&["exec", "-c", "cd /root/w; cat *", id]), "x\none\n");
    assert!(server.refused(&["rewind", id, "--to", "99"]).contains("no such checkpoint"));
    assert!(server.refused(&["diff", &format!("{id}@nothing"), id]).contains("no such checkpoint"));
    assert!(server.refused(&["diff", "00000000-0000-0000-0000-000000000000", id]).contains("neither"));
    server.ok(&["rm", id]);
}
