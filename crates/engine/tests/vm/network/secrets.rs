//! Secrets, seen from a real guest: used and never there.

use std::sync::Arc;

use sandling_engine::{EndReason, Engine, ForkSpec, NetworkChange, RunSpec, Sandbox, SnapshotSpec};
use sandling_network::policy::{Policy, TlsMode};
use sandling_protocol::Language;

use super::world::{World, allow, placements};
use crate::harness::shell;
use crate::isolated;

const VALUE: &str = "hunter2-the-real-one";
const WORKSPACE: &str = "default";

/// What a request with the placeholder gets, and what the guest sees of the answer.
fn curl(host: &str, path: &str) -> String {
    format!("curl -s -m 60 -H \"Authorization: Bearer $API_KEY\" https://{host}{path}; echo \" $?\"")
}

/// What a request of a guest brings to the server as its key.
async fn brought(world: &World, sandbox: &Arc<Sandbox>, path: &str) -> String {
    shell(sandbox, &curl("api.example.com", path).replace("curl -s", "curl -sk")).await;
    let line = format!("GET {path} ");
    let head = world.requests().into_iter().find(|head| head.contains(&line)).expect("it was reached");
    let (_, key) = head.split_once("Authorization: Bearer ").expect("it has a key");
    key.lines().next().unwrap_or_default().to_owned()
}

/// Whether a secret's value is anywhere in the files of a home.
fn is_in(home: &std::path::Path) -> bool {
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && std::fs::read(entry.path())
                    .is_ok_and(|bytes| bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes()))
            {
                return true;
            }
        }
    }
    false
}

isolated! {
    async fn a_secret_is_used_and_never_there() {
        let world = World::new().await;
        let hosts = || vec!["api.example.com".parse().unwrap()];
        let engine = world.engine.engine.clone();
        engine.networks().set_secret(WORKSPACE, "API_KEY", VALUE.to_owned().into(), hosts(), placements()).unwrap();
        let sandbox = world.sandbox(&["*.example.com"], &["API_KEY"]).await;

        // By curl with the sandbox's variables, by curl without any, by Python and by git.
        let ran = shell(&sandbox, &curl("api.example.com", "/curl")).await;
        assert!(ran.stdout.ends_with(" 0\n") && ran.stdout.contains("/curl"), "{}{}", ran.stdout, ran.stderr);
        assert!(world.heard(&format!("Authorization: Bearer {VALUE}")), "{:?}", world.requests());
        assert!(!ran.stdout.contains(VALUE), "the server repeats it, the guest must not see it: {}", ran.stdout);
        let ran = shell(&sandbox, "env -i curl -s -m 60 -o /dev/null -w '%{http_code}' https://api.example.com/plain").await;
        assert_eq!(ran.stdout, "200", "{}", ran.stderr);
        let python = "import os, urllib.request as u; \
            print(u.urlopen('https://api.example.com/python?key=' + os.environ['API_KEY'], timeout=60).status)";
        assert_eq!(crate::harness::python(&sandbox, python).await.stdout, "200\n");
        assert!(world.heard(&format!("/python?key={VALUE}")), "{:?}", world.requests());
        let ran = shell(&sandbox, "git ls-remote https://api.example.com/repository 2>&1").await;
        assert!(world.heard("/repository/info/refs"), "{}", ran.stdout);

        // Not to another host, and not without TLS.
        shell(&sandbox, &curl("www.example.com", "/elsewhere").replace("curl -s", "curl -sk")).await;
        let plain = shell(&sandbox, &curl("api.example.com", "/plain").replace("https", "http")).await;
        assert!(!plain.stdout.contains("Authorization"), "{}", plain.stdout);
        let values = world.requests().iter().filter(|head| head.contains(VALUE)).count();
        assert_eq!(values, 2, "{:?}", world.requests());

        // Nothing of it in the guest, in the files of the home, or in a snapshot.
        let placeholder = shell(&sandbox, "echo $API_KEY").await.stdout;
        assert!(placeholder.starts_with("sandling_secret_"), "{placeholder}");
        engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap();
        assert!(!is_in(world.engine.home.path()));

        // A child has it only if asked for, with the authority that its guest trusts already.
        let with = ForkSpec { children: 1, secrets: true, ..ForkSpec::default() };
        for (fork, has_it) in [(with, true), (ForkSpec { children: 1, ..ForkSpec::default() }, false)] {
            let child = engine.fork(&sandbox, fork).await.unwrap().remove(0).sandbox;
            let path = format!("/child-{has_it}");
            shell(&child, &curl("api.example.com", &path).replace("curl -s", "curl -sk")).await;
            let heard = world.requests().into_iter().find(|head| head.contains(&path)).expect("it was reached");
            assert_eq!(heard.contains(VALUE), has_it, "{heard}");
            child.end(EndReason::Requested).await.unwrap();
        }

        // It is there after a sleep; then every request's host is compared with the name in the greeting.
        sandbox.hibernate().await.unwrap();
        sandbox.wake().await.unwrap();
        assert!(shell(&sandbox, &curl("api.example.com", "/after")).await.stdout.ends_with(" 0\n"));
        let policy = Policy { tls: TlsMode::Inspected, ..allow(&["*.example.com"]) };
        sandbox.change_network(NetworkChange { policy: policy.into(), ..NetworkChange::default() }).await.unwrap();
        let line = "for host in other.com www.example.com; do curl -s -m 60 -o /dev/null -w '%{http_code} ' \
            -H \"Host: $host\" https://www.example.com/$host; done";
        assert_eq!(shell(&sandbox, line).await.stdout, "403 200 ");
        assert!(!world.heard("GET /other.com"));

        // Given to one that runs, and taken from it.
        let later = world.sandbox_of("code-interpreter", &["*.example.com"], &[]).await;
        let secrets = |names: &[&str]| {
            let secrets = Some(names.iter().map(|name| (*name).to_owned()).collect());
            later.change_network(NetworkChange { secrets, ..NetworkChange::default() })
        };
        assert!(secrets(&["NO_SUCH_KEY"]).await.is_err());
        secrets(&["API_KEY"]).await.unwrap();
        let ran = shell(&later, &curl("api.example.com", "/later")).await;
        assert!(ran.stdout.ends_with(" 0\n") && !ran.stdout.contains(VALUE), "{}{}", ran.stdout, ran.stderr);
        assert!(world.requests().iter().any(|head| head.contains("/later") && head.contains(VALUE)), "{:?}", world.requests());
        // By an interpreter of Node's that was warm before.
        let code = "fetch('https://api.example.com/node', { headers: { authorization: 'Bearer ' + process.env.API_KEY } })\
            .then((answer) => console.log(answer.status), (problem) => console.log(problem.cause))";
        assert_eq!(crate::harness::run(&later, RunSpec::code(Language::Node, code)).await.stdout, "200\n");
        assert!(world.requests().iter().any(|head| head.contains("/node") && head.contains(VALUE)), "{:?}", world.requests());
        secrets(&[]).await.unwrap();
        shell(&later, &curl("api.example.com", "/taken").replace("curl -s", "curl -sk")).await;
        let taken = world.requests().into_iter().find(|head| head.contains("/taken"));
        assert!(!taken.is_some_and(|head| head.contains(VALUE)));
        later.hibernate().await.unwrap();
        let asleep = secrets(&["API_KEY"]).await.unwrap_err();
        assert!(asleep.to_string().ends_with("it was not given API_KEY"), "{asleep}");

        // Gone at once.
        assert!(engine.networks().remove_secret(WORKSPACE, "API_KEY").unwrap());
        shell(&sandbox, &curl("api.example.com", "/revoked")).await;
        let late = world.requests().into_iter().find(|head| head.contains("/revoked"));
        assert!(!late.is_some_and(|head| head.contains(VALUE)));
        drop(engine);
        world.engine.close().await;
    }

    async fn what_was_revoked_does_not_come_back_with_its_name() {
        let world = World::new().await;
        let engine = world.engine.engine.clone();
        let store = |engine: &Engine, value: &str| {
            let hosts = vec!["api.example.com".parse().unwrap()];
            engine.networks().set_secret(WORKSPACE, "API_KEY", value.to_owned().into(), hosts, placements()).unwrap();
        };
        store(&engine, VALUE);
        let running = world.sandbox(&["*.example.com"], &["API_KEY"]).await;
        let asleep = world.sandbox(&["*.example.com"], &["API_KEY"]).await;
        let given = ForkSpec { children: 1, secrets: true, ..ForkSpec::default() };
        let child = engine.fork(&running, given).await.unwrap().remove(0).sandbox;
        asleep.hibernate().await.unwrap();

        // Replaced, it is what all of them have.
        store(&engine, "the-second-value");
        for (sandbox, path) in [(&running, "/replaced"), (&child, "/replaced-in-the-child")] {
            assert_eq!(brought(&world, sandbox, path).await, "the-second-value");
        }

        assert!(engine.networks().remove_secret(WORKSPACE, "API_KEY").unwrap());
        assert_eq!(running.effective_policy().revoked, ["API_KEY"]);
        store(&engine, "the-third-value");
        let old = shell(&running, "printf %s \"$API_KEY\"").await.stdout;
        assert!(old.starts_with("sandling_secret_"), "{old}");
        assert_eq!(brought(&world, &running, "/stored-anew").await, old);
        asleep.wake().await.unwrap();
        assert!(brought(&world, &asleep, "/woken").await.starts_with("sandling_secret_"));
        assert_eq!(brought(&world, &child, "/stored-anew-in-the-child").await, old);
        running.hibernate().await.unwrap();
        drop((engine, child, asleep));
        let (world, running) = world.restart(running).await;
        running.wake().await.unwrap();
        assert_eq!(brought(&world, &running, "/restarted").await, old);
        assert_eq!(running.effective_policy().revoked, ["API_KEY"]);

        // Given again, it is used again, by who knows its new placeholder.
        let secrets = Some(vec!["API_KEY".to_owned()]);
        running.change_network(NetworkChange { secrets, ..NetworkChange::default() }).await.unwrap();
        assert!(running.effective_policy().revoked.is_empty());
        assert_eq!(brought(&world, &running, "/given-again").await, "the-third-value");
        let line = curl("api.example.com", "/by-the-old-one").replace("$API_KEY", &old);
        shell(&running, &line).await;
        assert!(!world.requests().iter().any(|head| head.contains("/by-the-old-one") && head.contains("third")));
        store(&world.engine.engine, "the-fourth-value");
        assert_eq!(brought(&world, &running, "/replaced-again").await, "the-fourth-value");
        drop(running);
        world.engine.close().await;
    }
}
