//! A server behind a company's proxy, which has a certificate authority of its own.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::network::{AUTHORITIES, command, furnished, ok, sandling, started};
use crate::isolated;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vm/served/proxy.py");
const PROXY: &str = "http://127.0.0.1:3128";
/// Where the simulated internet is.
const SERVERS: &str = "93.184.216.34";

async fn start_proxy() -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut proxy = Command::new("python3");
    proxy.args([PROGRAM, "3128", SERVERS]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut proxy = proxy.spawn().unwrap();
    let mut said = BufReader::new(proxy.stdout.take().unwrap()).lines();
    assert_eq!(said.next_line().await.unwrap().unwrap(), "ready");
    (proxy, said)
}

isolated! {
    async fn a_sandbox_behind_a_proxy_reaches_and_trusts_what_its_policy_allows() {
        let (_log, home) = furnished().await;
        let (_proxy, mut asked) = start_proxy().await;
        let authority = home.path().join(AUTHORITIES);
        let arguments = ["--ca", authority.to_str().unwrap(), "serve", "--listen", "127.0.0.1:0", "--standbys", "0"];
        let mut serving = command(&home, &[&arguments[..], &["--network-proxy", PROXY]].concat());
        let (mut server, _said) = started(&home, &mut serving).await;

        let id = ok(&home, &["create", "--template", "base", "--allow", "files.example.com"]).await;
        let line = "curl -sS -m 60 -o /dev/null -w '%{http_code}' https://files.example.com/ && curl -sS -m 60 http://files.example.com/x";
        let fetched = sandling(&home, &["exec", "-c", line, &id]).await;
        let shown = String::from_utf8_lossy(&fetched.stderr).into_owned();
        assert!(fetched.status.success(), "{shown}");
        assert!(fetched.stdout.starts_with(b"200"), "{shown}");
        assert_eq!(asked.next_line().await.unwrap().unwrap(), "CONNECT files.example.com:443 HTTP/1.1");
        assert_eq!(asked.next_line().await.unwrap().unwrap(), "GET http://files.example.com/x HTTP/1.1");

        // The program itself, as the client of another server.
        let mut listing = command(&home, &["--ca", authority.to_str().unwrap(), "ls"]);
        listing.env("SANDLING_API", "https://sandling.example.com").env("SANDLING_TOKEN", "sdl_x").env("HTTPS_PROXY", PROXY);
        let listed = listing.output().await.unwrap();
        assert_eq!(asked.next_line().await.unwrap().unwrap(), "CONNECT sandling.example.com:443 HTTP/1.1");
        let said = String::from_utf8_lossy(&listed.stderr).into_owned();
        assert!(!said.contains("certificate") && !said.contains("unreachable"), "{said}");
        ok(&home, &["rm", &id]).await;
        server.kill().await.unwrap();
    }
}
