//! A server in its own process, with a temporary home.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Options;
use crate::client::Client;
use crate::footprint::Footprint;

const TOKEN: &str = "the-token-of-the-load";
/// How long a server may take to become idle: it may create a standby under emulation, on a busy host.
const QUIET_WITHIN: Duration = Duration::from_secs(120);
/// It is idle when nothing has changed for this long.
const QUIET_FOR: Duration = Duration::from_secs(5);

pub struct Server {
    process: Child,
    address: SocketAddr,
    home: TempDir,
}

impl Server {
    pub async fn start(options: &Options) -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        let mut process = Command::new(&options.sandling)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("SANDLING_HOME", home.path())
            .env("SANDLING_TEMPLATES", std::path::absolute(&options.templates)?)
            .env("SANDLING_TOKEN", TOKEN)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} does not start", options.sandling.display()))?;
        let mut lines = BufReader::new(process.stdout.take().context("its output is ours")?).lines();
        let line = lines.next_line().await?.context("the server ended before it said where it listens")?;
        let address = line.rsplit_once("//").and_then(|(_, address)| address.parse().ok());
        let address = address.with_context(|| format!("no address in {line:?}"))?;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let server = Self { process, address, home };
        // Removes the limits, which are not measured here.
        let limits = json!({
            "sandboxes": null, "cpu": null, "memory_mb": null, "disk_mb": null, "creates_per_minute": null,
            "requests_per_second": null, "open_requests": null,
        });
        let unlimited = server.client().call(Method::PUT, "/v1/workspaces/default/quota", Some(&limits)).await?;
        ensure!(unlimited.status == 200, "{unlimited:?}");
        Ok(server)
    }

    pub fn client(&self) -> Client {
        Client::new(self.address, TOKEN)
    }

    /// What it uses when it is idle.
    pub async fn settled_footprint(&self) -> anyhow::Result<Footprint> {
        let pid = self.process.id().context("the server runs")?;
        let begun = Instant::now();
        let mut last = Footprint::of(pid, self.home.path());
        let mut since = Instant::now();
        while since.elapsed() < QUIET_FOR {
            ensure!(begun.elapsed() < QUIET_WITHIN, "the server does not become quiet: {last:?}");
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = Footprint::of(pid, self.home.path());
            if (now.processes, now.directories) != (last.processes, last.directories) {
                since = Instant::now();
            }
            last = now;
        }
        Ok(last)
    }

    /// Stops it. None of its machines may be left.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.process.id().context("the server runs")?;
        let asked = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
        ensure!(asked.success(), "it could not be asked to end");
        let status = self.process.wait().await?;
        ensure!(status.success(), "the server ended with {status}");
        let left = std::fs::read_dir(self.home.path().join("sandboxes"))?.count();
        ensure!(left == 0, "{left} directories of machines were left behind");
        Ok(())
    }
}
