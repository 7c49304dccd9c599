//! The private server that is attacked, with its own home, and its sandboxes.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use sandling_vmm::accelerator::AcceleratorChoice;
use sandling_vmm::jail::MachineDir;
use sandling_wire::{Home, TOKEN_VARIABLE};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::http::{Answer, Call};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// A sandbox ends after this even if this command is killed.
const TTL_SECONDS: u64 = 900;
/// The part of loopback that stands for the public internet.
pub const INTERNET: &str = "127.66.0.0/16";
/// A variable of the server that no guest may see.
pub const CANARY_VARIABLE: &str = "SANDLING_ATTACK_CANARY";

pub struct Server {
    pub address: SocketAddr,
    /// The token of the operator.
    pub operator: String,
    pub canary: String,
    home: Home,
    template: String,
    child: Mutex<Child>,
}

/// A workspace and a token for it.
#[derive(Debug, Clone)]
pub struct Tenant {
    pub workspace: String,
    pub token: String,
}

/// A sandbox of one tenant.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub id: String,
    pub token: String,
    address: SocketAddr,
}

/// How a command in a sandbox ended.
#[derive(Debug)]
pub struct Ended {
    pub exit_code: i64,
    pub reason: String,
    pub stdout: String,
    pub stderr: String,
}

impl Server {
    pub async fn start(
        home: Home,
        accelerator: AcceleratorChoice,
        template: String,
        name_server: SocketAddr,
    ) -> anyhow::Result<Self> {
        home.prepare().context("cannot create a home")?;
        let (operator, canary) = (format!("attack-{}", random_hex()?), random_hex()?);
        let log = home.root().with_file_name("server.log");
        let output = File::create(&log)?;
        let accelerator = match accelerator {
            AcceleratorChoice::Auto => "auto",
            AcceleratorChoice::Kvm => "kvm",
            AcceleratorChoice::Tcg => "tcg",
        };
        let child = Command::new(std::env::current_exe()?)
            .args(["--accelerator", accelerator, "serve", "--listen", "127.0.0.1:0", "--standbys", "0"])
            .args(["--idle-exit", "120", "--network-open", INTERNET, "--name-server", &name_server.to_string()])
            .env(sandling_wire::HOME_VARIABLE, home.root())
            .env(sandling_wire::TEMPLATES_VARIABLE, home.templates())
            .env(TOKEN_VARIABLE, &operator)
            .env(CANARY_VARIABLE, &canary)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C in our terminal must not reach the server before its sandboxes are removed.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let child = Mutex::new(child);
        let address = wait_for_address(&log).await?;
        Ok(Self { address, operator, canary, home, template, child })
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The template of all sandboxes.
    pub fn template(&self) -> &str {
        &self.template
    }

    pub async fn call(&self, token: &str, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Answer> {
        let call = Call::new(method, path).bearer(token);
        match body {
            Some(body) => call.json(&body),
            None => call,
        }
        .send(self.address)
        .await
    }

    /// The same, but a refusal is an error.
    pub async fn must(&self, token: &str, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let answer = self.call(token, method, path, body).await?;
        ensure!((200..300).contains(&answer.status), "{path}: {}: {}", answer.brief(), answer.text());
        Ok(answer.json())
    }

    pub async fn tenant(&self, workspace: &str) -> anyhow::Result<Tenant> {
        let body = json!({ "name": workspace });
        self.must(&self.operator, Method::POST, "/v1/workspaces", Some(body)).await?;
        let token = self.token(workspace, "admin").await?;
        Ok(Tenant { workspace: workspace.to_owned(), token })
    }

    /// A new token of a workspace.
    pub async fn token(&self, workspace: &str, scope: &str) -> anyhow::Result<String> {
        let (path, body) = (format!("/v1/workspaces/{workspace}/tokens"), json!({ "label": "attack", "scope": scope }));
        let made = self.must(&self.operator, Method::POST, &path, Some(body)).await?;
        made["token"].as_str().map(str::to_owned).context("the response has no token")
    }

    pub async fn sandbox(&self, tenant: &Tenant, settings: Value) -> anyhow::Result<Sandbox> {
        let mut body = json!({ "template": self.template, "ttl_seconds": TTL_SECONDS });
        if let (Some(body), Value::Object(settings)) = (body.as_object_mut(), settings) {
            body.extend(settings);
        }
        let made = self.must(&tenant.token, Method::POST, "/v1/sandboxes", Some(body)).await?;
        let id = made["id"].as_str().context("the response has no id")?.to_owned();
        Ok(Sandbox { id, token: tenant.token.clone(), address: self.address })
    }

    /// The processes of a sandbox's machine: QEMU and its supervisor.
    pub fn processes(&self, sandbox: &Sandbox) -> anyhow::Result<(i32, i32)> {
        let record = MachineDir::new(self.machine_directory(&sandbox.id)?).record();
        let record: Value = serde_json::from_slice(&fs::read(record)?)?;
        let pid = |name: &str| record[name]["pid"].as_i64().map(|pid| pid as i32);
        pid("qemu").zip(pid("keeper")).context("machine.json has no process ids")
    }

    fn machine_directory(&self, id: &str) -> anyhow::Result<PathBuf> {
        let directories = fs::read_dir(self.home.sandboxes())?.flatten().map(|entry| entry.path());
        let of_sandbox = |path: &PathBuf| path.to_string_lossy().ends_with(id) && path.join("machine.json").exists();
        directories.into_iter().find(of_sandbox).with_context(|| format!("there is no directory of sandbox {id}"))
    }

    /// Stops the server. Its machines outlive it.
    pub async fn stop(self) {
        let mut child = self.child.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(STOP_LIMIT, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    }
}

impl Sandbox {
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Answer> {
        let call = Call::new(method, format!("/v1/sandboxes/{}{path}", self.id)).bearer(&self.token);
        match body {
            Some(body) => call.json(&body),
            None => call,
        }
        .send(self.address)
        .await
    }

    pub async fn shell(&self, line: &str, limit: Duration) -> anyhow::Result<Ended> {
        self.exec(json!({ "cmd": line, "timeout_seconds": limit.as_secs() })).await
    }

    pub async fn python(&self, code: &str, limit: Duration) -> anyhow::Result<Ended> {
        self.exec(json!({ "code": code, "language": "python", "timeout_seconds": limit.as_secs() })).await
    }

    /// Starts a command that outlives the request.
    pub async fn start(&self, line: &str) -> anyhow::Result<()> {
        let answer = self.call(Method::POST, "/exec", Some(json!({ "cmd": line, "detached": true }))).await?;
        ensure!((200..300).contains(&answer.status), "{}", answer.brief());
        Ok(())
    }

    async fn exec(&self, request: Value) -> anyhow::Result<Ended> {
        let answer = self.call(Method::POST, "/exec", Some(request)).await?;
        let body = answer.json();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let Some(exit_code) = body["exit_code"].as_i64() else { bail!("{}: {}", answer.brief(), answer.text()) };
        Ok(Ended { exit_code, reason: text("reason"), stdout: text("stdout"), stderr: text("stderr") })
    }

    pub async fn remove(&self) {
        let _ = self.call(Method::DELETE, "", None).await;
    }
}

/// Ends every machine of a home whose server has ended.
pub async fn end_machines(home: &Home) {
    for entry in fs::read_dir(home.sandboxes()).into_iter().flatten().flatten() {
        let _ = sandling_vmm::machine::kill_leftover(&MachineDir::new(entry.path())).await;
    }
}

async fn wait_for_address(log: &Path) -> anyhow::Result<SocketAddr> {
    let given_up = Instant::now() + START_LIMIT;
    loop {
        let said = fs::read_to_string(log).unwrap_or_default();
        let line = said.lines().find_map(|line| line.strip_prefix("sandling listens on http://"));
        if let Some(address) = line.and_then(|text| text.trim().parse().ok()) {
            return Ok(address);
        }
        ensure!(Instant::now() < given_up, "the server did not start within {} s: {said}", START_LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn random_hex() -> anyhow::Result<String> {
    let mut bytes = [0; 20];
    std::io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
