//! Tokens: what they may not do, and what is left of them after they were revoked.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Response};
use serde_json::{Value, json};

use super::http::{Answer, Call};
use super::server::Server;
use super::trial::Trial;
use super::world::{Ready, World};

/// How long a stream may outlive its token.
const END_LIMIT: Duration = Duration::from_secs(6);
/// The port of E2B's file and process API in a sandbox.
const ENVD_PORT: &str = "49983";

pub async fn without_token(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let id = &ready.sandbox.id;
    let unknown = format!("sdl_{}", "0".repeat(40));
    for path in ["/v1/me", "/v1/sandboxes", &format!("/v1/sandboxes/{id}"), "/v1/audit", "/metrics", "/sandboxes"] {
        for (what, token) in [("no token", ""), ("an unknown token", unknown.as_str())] {
            let call = Call::new(Method::GET, path);
            let call = if token.is_empty() { call } else { call.bearer(token) };
            expect_refused(trial, format!("GET {path} with {what}"), &call.send(ready.server.address).await?);
        }
    }
    let exec = Call::new(Method::POST, format!("/v1/sandboxes/{id}/exec")).json(&json!({ "cmd": "id" }));
    expect_refused(trial, "running a command with no token", &exec.send(ready.server.address).await?);
    let envd = envd_files(id, "nothing").send(ready.server.address).await?;
    expect_refused(trial, "reading a file through E2B's API with a wrong token", &envd);
    Ok(())
}

pub async fn scopes(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let (server, workspace) = (&ready.server, ready.attacker.workspace.as_str());
    let read = server.token(workspace, "read").await?;
    let run = server.token(workspace, "run").await?;
    let admin = &ready.attacker.token;
    let exec = format!("/v1/sandboxes/{}/exec", ready.sandbox.id);
    let operator = json!({ "label": "x", "scope": "operator" });
    for (scope, token, method, path, body) in [
        ("read", &read, Method::POST, "/v1/sandboxes", Some(json!({}))),
        ("read", &read, Method::POST, exec.as_str(), Some(json!({ "cmd": "id" }))),
        ("read", &read, Method::DELETE, &*format!("/v1/sandboxes/{}", ready.sandbox.id), None),
        ("read", &read, Method::GET, "/v1/audit", None),
        ("run", &run, Method::POST, "/v1/me/tokens", Some(json!({ "label": "x", "scope": "admin" }))),
        ("run", &run, Method::PUT, "/v1/network", Some(json!({ "mode": "open" }))),
        ("admin", admin, Method::GET, "/v1/workspaces", None),
        ("admin", admin, Method::GET, "/metrics", None),
        ("admin", admin, Method::POST, "/v1/me/tokens", Some(operator)),
    ] {
        let answer = server.call(token, method.clone(), path, body).await?;
        expect_refused(trial, format!("{method} {path} with the scope {scope}"), &answer);
    }
    Ok(())
}

fn expect_refused(trial: &mut Trial, tried: impl Into<String>, answer: &Answer) {
    trial.record([401, 403].contains(&answer.status), tried, answer.brief());
}

/// A token that is made and revoked.
struct Doomed<'a> {
    token: String,
    server: &'a Server,
    workspace: &'a str,
}

impl<'a> Doomed<'a> {
    async fn new(ready: &'a Ready) -> anyhow::Result<Self> {
        let workspace = ready.attacker.workspace.as_str();
        Ok(Self { token: ready.server.token(workspace, "run").await?, server: &ready.server, workspace })
    }

    async fn revoke(&self) -> anyhow::Result<()> {
        let path = format!("/v1/workspaces/{}/tokens/{}", self.workspace, &self.token[..12]);
        let answer = self.server.call(&self.server.operator, Method::DELETE, &path, None).await?;
        ensure!((200..300).contains(&answer.status), "revoking the token: {}", answer.brief());
        Ok(())
    }

    fn e2b_key(&self) -> String {
        format!("e2b_{}", self.token.bytes().map(|byte| format!("{byte:02x}")).collect::<String>())
    }
}

pub async fn revoked(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let doomed = Doomed::new(ready).await?;
    let sandbox = format!("/v1/sandboxes/{}", ready.sandbox.id);
    let ways = |token: &str| {
        let key = doomed.e2b_key();
        vec![
            ("the API", Call::new(Method::GET, &sandbox).bearer(token)),
            (
                "a command",
                Call::new(Method::POST, format!("{sandbox}/exec")).bearer(token).json(&json!({"cmd": "true"})),
            ),
            ("PandaStack's dialect", Call::new(Method::GET, "/v1/sandboxes").bearer(&format!("pds_{token}"))),
            ("E2B's dialect", Call::new(Method::GET, "/sandboxes").header("x-api-key", key)),
        ]
    };
    for (what, call) in ways(&doomed.token) {
        let answer = call.send(ready.server.address).await?;
        ensure!(answer.status == 200, "{what} does not work with a new token: {}", answer.brief());
    }
    doomed.revoke().await?;
    for (what, call) in ways(&doomed.token) {
        expect_refused(trial, format!("{what} with a revoked token"), &call.send(ready.server.address).await?);
    }
    Ok(())
}

/// Responses and sockets that are open when their token is revoked.
pub async fn streams(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let doomed = Doomed::new(ready).await?;
    let (id, at) = (&ready.sandbox.id, ready.server.address);
    let output = Call::new(Method::POST, format!("/v1/sandboxes/{id}/exec/stream"))
        .bearer(&doomed.token)
        .json(&json!({ "cmd": "for i in $(seq 300); do echo tick; sleep 0.1; done" }));
    let events = Call::new(Method::GET, "/v1/events?follow=1").bearer(&doomed.token);
    let terminal = Call::new(Method::GET, format!("/v1/sandboxes/{id}/exec/pty"))
        .bearer(&doomed.token)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "MDEyMzQ1Njc4OWFiY2RlZg==");
    let output = opened(output, at, 200).await.context("the output of a command")?;
    let events = opened(events, at, 200).await.context("the events of the workspace")?;
    let terminal = opened(terminal, at, 101).await.context("a terminal")?;
    doomed.revoke().await?;
    for (what, response) in [("the output of a command", output), ("the events of the workspace", events)] {
        let ended = tokio::time::timeout(END_LIMIT, drain(response)).await.is_ok();
        record_end(trial, what, ended);
    }
    let upgraded = hyper::upgrade::on(terminal).await?;
    let mut socket = hyper_util::rt::TokioIo::new(upgraded);
    let mut nowhere = tokio::io::sink();
    let read = tokio::io::copy(&mut socket, &mut nowhere);
    let ended = tokio::time::timeout(END_LIMIT, read).await.is_ok();
    record_end(trial, "a terminal", ended);
    Ok(())
}

fn record_end(trial: &mut Trial, what: &str, ended: bool) {
    let happened = if ended { "it ended".to_owned() } else { format!("still open after {} s", END_LIMIT.as_secs()) };
    trial.record(ended, format!("{what}, open when its token was revoked"), happened);
}

async fn opened(call: Call, at: SocketAddr, status: u16) -> anyhow::Result<Response<Incoming>> {
    let response = call.open(at).await?;
    ensure!(response.status().as_u16() == status, "status {}", response.status());
    Ok(response)
}

async fn drain(response: Response<Incoming>) {
    let mut body = response.into_body();
    while let Some(Ok(_)) = body.frame().await {}
}

/// Credentials that the server derived from a token.
pub async fn derived(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let doomed = Doomed::new(ready).await?;
    let (server, at) = (&ready.server, ready.server.address);
    let port = super::previews::show_server(ready).await?;
    let path = format!("/v1/sandboxes/{}/preview-token", ready.sandbox.id);
    let preview = server.must(&doomed.token, Method::POST, &path, Some(json!({ "port": port }))).await?;
    let preview = format!("/v1/p/{}/", preview["token"].as_str().context("the response has no preview token")?);
    let (id, access) = e2b_sandbox(server, &doomed).await?;
    let ways = || {
        [
            ("a preview token", Call::new(Method::GET, &preview)),
            ("the access token of an E2B sandbox", envd_files(&id, &access)),
        ]
    };
    for (what, call) in ways() {
        let answer = call.send(at).await?;
        ensure!(answer.status == 200, "{what} does not work while its token does: {}", answer.brief());
    }
    doomed.revoke().await?;
    for (what, call) in ways() {
        let answer = call.send(at).await?;
        let refused = (400..500).contains(&answer.status);
        trial.record(refused, format!("{what} after its API token was revoked"), answer.brief());
    }
    server.call(&ready.attacker.token, Method::DELETE, &format!("/v1/sandboxes/{id}"), None).await?;
    Ok(())
}

fn envd_files(id: &str, access: &str) -> Call {
    Call::new(Method::GET, "/files?path=/etc/hostname&username=root")
        .header("e2b-sandbox-id", id)
        .header("e2b-sandbox-port", ENVD_PORT)
        .header("x-access-token", access)
}

/// A sandbox of E2B's dialect, and its access token.
async fn e2b_sandbox(server: &Server, doomed: &Doomed<'_>) -> anyhow::Result<(String, String)> {
    let body = json!({ "templateID": server.template(), "timeout": 300, "secure": true });
    let call = Call::new(Method::POST, "/sandboxes").header("x-api-key", doomed.e2b_key()).json(&body);
    let answer = call.send(server.address).await?;
    let made = answer.json();
    let text = |name: &str| made[name].as_str().map(str::to_owned);
    let pair = text("sandboxID").zip(text("envdAccessToken"));
    pair.with_context(|| format!("cannot create an E2B sandbox: {}: {}", answer.brief(), brief(&made)))
}

fn brief(value: &Value) -> String {
    value.to_string().chars().take(200).collect()
}
