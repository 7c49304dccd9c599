//! One member of etcd on loopback, with its data in a temporary directory.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use sandling_fleet::{Engine, EtcdLedger, Ledger};

pub struct EtcdServer {
    process: Child,
    url: String,
    _data: tempfile::TempDir,
}

impl EtcdServer {
    pub async fn start() -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let [url, peer_url] = [free_url(), free_url()];
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
        EtcdLedger::plain(Engine::first(vec![self.url.clone()]), Duration::from_secs(10))
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

fn free_url() -> String {
    format!("http://127.0.0.1:{}", free_ports(1))
}

/// The first of several ports in a row that nothing listens on. The kernel gives none of them to an outgoing connection,
/// which could take a port before its server does. Each call and each process tries other ones.
pub fn free_ports(count: u16) -> u16 {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let number =
            std::process::id().wrapping_mul(50).wrapping_add(CALLS.fetch_add(u32::from(count), Ordering::Relaxed));
        let first = u16::try_from(FIRST + number % PORTS).expect("they are below 32,768");
        if (first..first + count).all(is_free) {
            return first;
        }
    }
}
