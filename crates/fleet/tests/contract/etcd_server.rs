//! One member of etcd on loopback, with its data in a temporary directory.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use sandling_fleet::{EtcdLedger, Ledger};

pub struct EtcdServer {
    process: Child,
    url: String,
    _data: tempfile::TempDir,
}

impl EtcdServer {
    pub async fn start() -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let [url, peer_url] = [free_url()?, free_url()?];
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(data.path())
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("etcd is missing: install Debian's etcd-server (`apt-get install etcd-server`)")?;
        let mut server = Self { process, url, _data: data };
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// Without the scheme.
    #[allow(dead_code, reason = "only the command line's tests need it")]
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub fn ledger(&self) -> EtcdLedger {
        EtcdLedger::plain(vec![self.url.clone()], Duration::from_secs(10))
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let ledger = self.ledger();
        for _ in 0..600 {
            if let Some(status) = self.process.try_wait()? {
                anyhow::bail!("etcd ended with {status}");
            }
            if ledger.get("ready").await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("etcd did not answer within a minute")
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_url() -> anyhow::Result<String> {
    Ok(format!("http://{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?))
}
