//! Tokens, quotas, the audit log and templates.

use std::process::Output;

use super::server::{Server, text};

fn with_token(server: &Server, token: &str, arguments: &[&str]) -> Output {
    server.command(arguments).env("SANDLING_TOKEN", token).output().unwrap()
}

#[test]
fn listening_beyond_loopback_needs_a_token() {
    let home = tempfile::TempDir::new().unwrap();
    let serve = |listen: &str, token: Option<&str>| {
        let mut command = std::process::Command::new(crate::SANDLING);
        command
            .args(["serve", "--insecure", "--listen", listen])
            .env("SANDLING_HOME", home.path())
            .env_remove("SANDLING_TOKEN");
        command.envs(token.map(|token| ("SANDLING_TOKEN", token))).output().unwrap()
    };
    for (listen, token) in [("0.0.0.0:0", None), ("[::]:0", None), ("192.0.2.1:0", None), ("0.0.0.0:0", Some(""))] {
        let refused = serve(listen, token);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{listen}: {}", text(&refused.stdout));
        assert!(text(&refused.stderr).contains("SANDLING_TOKEN"), "{listen}: {}", text(&refused.stderr));
    }
    assert!(!home.path().join("server").exists(), "the server announced an address");
    // With a token it gets as far as binding the address, which does not belong to this host.
    let tried = serve("192.0.2.1:0", Some("a-token-of-my-own"));
    assert!(!text(&tried.stderr).contains("SANDLING_TOKEN"), "{}", text(&tried.stderr));
}

#[test]
fn a_token_works_within_its_scope_until_it_is_revoked() {
    let server = Server::shared();
    let token = server.ok(&["token", "create", "reader", "--scope", "read", "--days", "1"]).trim().to_owned();
    assert_eq!(with_token(&server, &token, &["ls"]).status.code(), Some(0));
    let denied = with_token(&server, &token, &["create"]);
    assert_eq!(denied.status.code(), Some(2));
    assert!(text(&denied.stderr).contains("run"), "{}", text(&denied.stderr));
    let listed = server.json(&["token", "ls", "--json"]);
    let entry = listed.as_array().unwrap().iter().find(|token| token["name"] == "reader").unwrap();
    let prefix = entry["prefix"].as_str().unwrap();
    assert!(token.starts_with(prefix));
    let table = server.ok(&["token", "ls"]);
    assert!(table.contains(prefix) && !table.contains(&token), "{table}");
    server.ok(&["token", "rm", prefix]);
    let revoked = with_token(&server, &token, &["ls"]);
    assert_eq!(revoked.status.code(), Some(2));
    assert!(text(&revoked.stderr).contains("SANDLING_TOKEN"), "{}", text(&revoked.stderr));
    assert!(server.refused(&["token", "rm", "sdl_00000000"]).contains("not found"));
    assert!(server.refused(&["token", "ls", "--workspace", "nobody"]).contains("not found"));
}

#[test]
fn a_quota_is_shown_changed_and_enforced() {
    let server = Server::start();
    assert!(server.ok(&["quota"]).contains("sandboxes"));
    let set = server.json(&["quota", "--set", "sandboxes=0", "--set", "memory_mb=none", "--json"]);
    assert_eq!((&set["limits"]["sandboxes"], &set["limits"]["memory_mb"]), (&0.into(), &serde_json::Value::Null));
    assert!(set["limits"]["cpu"].is_number(), "other limits must not change: {set}");
    assert!(server.refused(&["create", "-t", "base"]).contains("sandling quota"));
    assert!(server.refused(&["run", "-t", "base", "-c", "1"]).contains("sandling quota"));
    assert!(server.refused(&["quota", "--set", "ram=1"]).contains("memory_mb"));
    // The audit log has every attempt with its result.
    let table = server.ok(&["audit"]);
    for word in ["quota.set", "sandbox.create", "refused: quota_exceeded"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let entries = server.json(&["audit", "--json", "--limit", "1"]);
    let number = entries[0]["number"].as_i64().unwrap();
    assert_eq!(entries.as_array().unwrap().len(), 1);
    assert_eq!(server.json(&["audit", "--json", "--after", &number.to_string()]), serde_json::json!([]));
    assert!(server.refused(&["audit", "--recording", &number.to_string()]).contains("not found"));
}

#[test]
fn template_commands_use_the_server() {
    let server = Server::shared();
    let table = server.ok(&["template", "ls"]);
    assert!(table.contains("base") && table.contains("MiB"), "{table}");
    let listed = server.json(&["template", "ls", "--json"]);
    assert!(listed.as_array().unwrap().iter().any(|template| template["name"] == "base" && template["ready"] == true));
    assert_eq!(server.json(&["template", "inspect", "base"])["category"], "built-in");
    // Operations on files run locally, because the server is on this machine.
    assert!(server.json(&["template", "inspect", "--verify", "base"])["recipe"].is_object());
    assert!(server.refused(&["template", "rm", "base"]).contains("built-in"));
    assert!(server.refused(&["template", "inspect", "nope"]).contains("not found"));
    assert!(server.refused(&["template", "build", "../x"]).contains("../x"));
    let named = ["template", "build", "base"];
    let refused = server.command(&named).env("SANDLING_API", server.address()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("own machine"), "{}", text(&refused.stderr));
}
