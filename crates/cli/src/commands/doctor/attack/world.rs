//! Everything that attacks share. Made when an attack first needs it, and removed at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, anyhow};
use sandling_image::ImageStore;
use sandling_vmm::accelerator::AcceleratorChoice;
use sandling_wire::Home;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::internet::Internet;
use super::jail::{Ran, run_probe};
use super::server::{Sandbox, Server, Tenant, end_machines};

/// The template of the attacked sandboxes, if it is built.
const TEMPLATE: &str = "base";

pub struct World {
    accelerator: AcceleratorChoice,
    scratch: TempDir,
    program: PathBuf,
    home: Home,
    probes: AtomicU32,
    server: OnceCell<Result<Ready, String>>,
}

/// The server, the servers around it, and two tenants with sandboxes.
pub struct Ready {
    pub server: Server,
    pub internet: Internet,
    pub attacker: Tenant,
    pub neighbor: Tenant,
    /// A sandbox of the attacker with no network.
    pub sandbox: Sandbox,
    /// A sandbox of the attacker that may reach one name. Attacks change its routes, so it is good for nothing else.
    pub online: Sandbox,
    /// The neighbor's sandbox, with no network.
    pub witness: Sandbox,
}

impl World {
    pub fn new(accelerator: AcceleratorChoice) -> anyhow::Result<Self> {
        let own = Home::from_environment().context("neither SANDLING_HOME nor HOME is set; set one of them")?;
        // A short name, because the home contains Unix sockets.
        let scratch = tempfile::Builder::new().prefix("attack.").tempdir().context("cannot create a directory")?;
        let home = Home::new(scratch.path().join("home")).with_templates(own.templates().to_owned());
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        Ok(Self { accelerator, scratch, program, home, probes: AtomicU32::new(0), server: OnceCell::new() })
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The program that runs in the probe's jail.
    pub fn probe_path(&self) -> &Path {
        &self.program
    }

    pub async fn probe(&self, attempts: &[String]) -> anyhow::Result<Ran> {
        let number = self.probes.fetch_add(1, Ordering::Relaxed);
        let work = self.scratch.path().join(format!("probe-{number}"));
        let (program, attempts) = (self.program.clone(), attempts.to_vec());
        tokio::task::spawn_blocking(move || run_probe(&work, &program, &attempts)).await?
    }

    /// The running server with its sandboxes.
    pub async fn ready(&self) -> anyhow::Result<&Ready> {
        let made = self.server.get_or_init(|| async { self.make().await.map_err(|error| format!("{error:#}")) }).await;
        made.as_ref().map_err(|error| anyhow!("the private server is not ready: {error}"))
    }

    async fn make(&self) -> anyhow::Result<Ready> {
        let template = self.template()?;
        let internet = Internet::start().await.context("cannot start servers on loopback")?;
        let server = Server::start(self.home.clone(), self.accelerator, template, internet.name_server()).await?;
        let attacker = server.tenant("attacker").await?;
        let neighbor = server.tenant("neighbor").await?;
        let network = json!({ "network": { "mode": "allow", "allow": internet.allow_list() } });
        let sandbox = server.sandbox(&attacker, json!({})).await.context("cannot create a sandbox")?;
        let online = server.sandbox(&attacker, network).await.context("cannot create a second sandbox")?;
        let witness = server.sandbox(&neighbor, json!({})).await.context("cannot create a neighbor's sandbox")?;
        Ok(Ready { server, internet, attacker, neighbor, sandbox, online, witness })
    }

    fn template(&self) -> anyhow::Result<String> {
        let templates = ImageStore::open(self.home.templates())?.list()?;
        let built = templates.into_iter().filter(|found| found.image.is_ok()).map(|found| found.name.to_string());
        let built: Vec<_> = built.collect();
        let preferred = built.iter().find(|name| *name == TEMPLATE).or(built.first());
        preferred.cloned().context("no template is built; run `sandling template build base` first")
    }

    /// Ends the server and its machines, and removes the home.
    pub async fn close(self) -> anyhow::Result<()> {
        if let Some(Ok(ready)) = self.server.into_inner() {
            ready.server.stop().await;
        }
        end_machines(&self.home).await;
        self.scratch.close().context("cannot remove the private home")
    }
}
