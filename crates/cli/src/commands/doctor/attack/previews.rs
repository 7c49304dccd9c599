//! Previews: servers in a sandbox, reached through the API. Their code is hostile, too.

use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::json;

use super::http::Call;
use super::trial::Trial;
use super::world::{Ready, World};

const PORT: u16 = 3456;
const START_LIMIT: Duration = Duration::from_secs(30);

/// A server that answers with the request as it arrived.
const SHOW_REQUEST: &str = "import http.server
class Show(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = (self.path + '\\n' + str(self.headers)).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(('', 3456), Show).serve_forever()
";

/// Starts the server, once, and returns its port.
pub async fn show_server(ready: &Ready) -> anyhow::Result<u16> {
    let path = format!("/v1/sandboxes/{}/proxy/{PORT}/", ready.sandbox.id);
    let ask = || Call::new(Method::GET, &path).bearer(&ready.sandbox.token).send(ready.server.address);
    if ask().await?.status == 200 {
        return Ok(PORT);
    }
    let write = format!("cat > /root/show.py <<'END'\n{SHOW_REQUEST}END\n");
    ready.sandbox.shell(&write, START_LIMIT).await?;
    ready.sandbox.start("python3 /root/show.py").await?;
    for _ in 0..150 {
        if ask().await?.status == 200 {
            return Ok(PORT);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    anyhow::bail!("a server in the sandbox cannot be reached: {}", ask().await?.brief())
}

async fn preview_token(ready: &Ready, paths: Option<&[&str]>) -> anyhow::Result<String> {
    let path = format!("/v1/sandboxes/{}/preview-token", ready.sandbox.id);
    let mut body = json!({ "port": show_server(ready).await? });
    if let Some(paths) = paths {
        body["paths"] = json!(paths);
    }
    let made = ready.server.must(&ready.sandbox.token, Method::POST, &path, Some(body)).await?;
    made["token"].as_str().map(str::to_owned).context("the response has no preview token")
}

/// No credential of ours may reach a server in a sandbox, in whatever header, cookie or query it came.
pub async fn credentials(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let preview = preview_token(ready, None).await?;
    let token = &ready.sandbox.token;
    let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
    let secrets =
        [("the API token", token.as_str()), ("the same in hexadecimal", hex.as_str()), ("the preview token", &preview)];
    let query = format!("?kept=1&access_token={token}&sandling_token={preview}");
    for (way, path) in [
        ("by path", format!("/v1/sandboxes/{}/proxy/{PORT}/{query}", ready.sandbox.id)),
        ("by preview token", format!("/v1/p/{preview}/{query}")),
    ] {
        let call = Call::new(Method::GET, path)
            .bearer(token)
            .header("x-api-key", format!("e2b_{hex}"))
            .header("x-other", token.as_str())
            .header("cookie", format!("sandling_preview={preview}; theirs=1"))
            .header("x-theirs", "kept");
        let answer = call.send(ready.server.address).await?;
        let text = answer.text();
        ensure!(answer.status == 200 && text.contains("kept=1") && text.contains("theirs=1"), "{}", answer.brief());
        for (what, secret) in secrets {
            let leaked = text.contains(secret);
            let happened = if leaked { "the server saw it" } else { "removed" };
            trial.record(!leaked, format!("{what} in a request {way}"), happened);
        }
    }
    Ok(())
}

/// A preview token for one path, and other spellings of other paths.
pub async fn paths(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let token = preview_token(ready, Some(&["/pub"])).await?;
    let ask = |path: &str| Call::new(Method::GET, format!("/v1/p/{token}{path}")).send(ready.server.address);
    let control = ask("/pub/page").await?;
    ensure!(control.status == 200, "the allowed path does not work: {}", control.brief());
    for path in [
        "/priv",
        "/",
        "/public",
        "/pub/../priv",
        "/pub/..%2fpriv",
        "/pub/..%5cpriv",
        "/pub/%2e%2e/priv",
        "/pub/..;/priv",
        "/pub/..;a=b/priv",
        "/pub%2f..%2fpriv",
        "//priv",
        "/pub/%252e%252e/priv",
        "/./priv",
    ] {
        let answer = ask(path).await?;
        trial.record(answer.status != 200, format!("GET {path} with a token for /pub"), answer.brief());
    }
    Ok(())
}

/// Ports need a token, and a token opens only its own port.
pub async fn closed(world: &World, trial: &mut Trial) -> anyhow::Result<()> {
    let ready = world.ready().await?;
    let token = preview_token(ready, None).await?;
    let (id, at) = (&ready.sandbox.id, ready.server.address);
    let proxy = |port: u16| Call::new(Method::GET, format!("/v1/sandboxes/{id}/proxy/{port}/"));
    let host = format!("{PORT}-{id}.localhost");
    let placed = Call::new(Method::GET, "/").header("e2b-sandbox-id", id).header("e2b-sandbox-port", PORT.to_string());
    for (what, call) in [
        ("by path without a token", proxy(PORT)),
        ("by host name without a token", Call::new(Method::GET, "/").header("host", host)),
        ("by E2B's headers without a token", placed),
        ("with another tenant's token", proxy(PORT).bearer(&ready.neighbor.token)),
        ("of another server with a preview token", proxy(PORT + 1).header("x-sandling-preview-token", &token)),
    ] {
        let answer = call.send(at).await?;
        trial.record((400..500).contains(&answer.status), format!("the port {what}"), answer.brief());
    }
    Ok(())
}
