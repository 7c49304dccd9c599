//! A run's sandbox, in this process or on a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Method;
use sandling_agent::{Node, ProjectTree};
use sandling_engine::{RunSpec, Sandbox};
use sandling_protocol::Program;
use sandling_wire::ExecRequest;
use serde_json::Value;

use super::files::{Files, absolute};
use crate::client::{Client, ClientError, field, query};
use crate::options::{INSTALL_SECONDS, Run};

const CHUNK_SIZE: usize = 256 * 1024;
const INSTALL_TIMEOUT: Duration = Duration::from_secs(INSTALL_SECONDS);
/// The certificates that this machine trusts, because its PyPI may be a mirror.
const HOST_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const AUTHORITIES: &str = "sandling-authorities.pem";
/// The most that is read back for `--out`.
const MAX_ARCHIVE: usize = 512 * 1024 * 1024;
/// A sandbox whose TLS is inspected has set `PIP_CERT` itself.
const PIP: &str = r#"
authorities=/run/sandling-authorities.pem
[ -n "$PIP_CERT" ] || ! [ -e $authorities ] || export PIP_CERT=$authorities
exec python3 -m pip install --quiet --no-input --disable-pip-version-check "$@"
"#;
/// Installs for every user, which newer versions of pip refuse to do without being told. Older ones ignore the variables.
const PIP_SETTINGS: [(&str, &str); 2] = [("PIP_BREAK_SYSTEM_PACKAGES", "1"), ("PIP_ROOT_USER_ACTION", "ignore")];

#[derive(Clone, Copy)]
pub enum Guest<'a> {
    Local(&'a Arc<Sandbox>),
    Remote { client: &'a Client, id: &'a str },
}

impl Guest<'_> {
    /// Copies the files into the sandbox and installs the packages.
    pub async fn prepare(self, options: &Run, files: Option<&Files>) -> anyhow::Result<()> {
        let archives = files.map(Files::archives).transpose()?.unwrap_or_default();
        for (directory, archive) in archives {
            self.unpack(&directory, archive).await?;
        }
        if options.installs_packages() { self.install(options).await } else { Ok(()) }
    }

    async fn install(self, options: &Run) -> anyhow::Result<()> {
        if let Some(package) = options.pip.iter().find(|package| package.starts_with('-')) {
            bail!("--pip takes a package and not the option {package}");
        }
        let mut command = ["sh", "-c", PIP, "pip"].map(str::to_owned).to_vec();
        if let Some(archive) = authorities()? {
            self.unpack("/run", archive).await?;
        }
        let mut shown = options.pip.clone();
        for file in &options.requirements {
            command.extend(["-r".to_owned(), absolute(file)?.display().to_string()]);
            shown.push(format!("the packages in {}", file.display()));
        }
        command.extend(options.pip.iter().cloned());
        if !options.json {
            eprintln!("sandling: installing {}", shown.join(", "));
        }
        let (exit_code, output) = self.pip(command, options).await?;
        if exit_code != 0 {
            bail!("pip could not install the packages (exit code {exit_code}); nothing was run:\n{}", output.trim());
        }
        Ok(())
    }

    /// Writes the changed files to `--out`.
    pub async fn bring_back(self, options: &Run, files: Option<&Files>) -> anyhow::Result<()> {
        let (Some(out), Some(files)) = (&options.out, files) else { return Ok(()) };
        let archive = self.pack(&files.root.display().to_string()).await?;
        let count = files.bring_back(&archive, out)?;
        if !options.json {
            let word = if count == 1 { "file" } else { "files" };
            eprintln!("sandling: {count} changed or new {word} in {}", out.display());
        }
        Ok(())
    }

    async fn unpack(self, directory: &str, archive: Vec<u8>) -> anyhow::Result<()> {
        match self {
            Self::Local(sandbox) => {
                let upload = sandbox.write_archive(directory)?;
                for chunk in archive.chunks(CHUNK_SIZE) {
                    if upload.send(chunk).await.is_err() {
                        // `finish` says why.
                        break;
                    }
                }
                Ok(upload.finish().await?)
            }
            Self::Remote { client, id } => {
                let body = Full::from(archive).map_err(|never| match never {}).boxed_unsync();
                Ok(client.send(Method::PUT, &tar(id, directory), body).await?)
            }
        }
    }

    async fn pack(self, directory: &str) -> anyhow::Result<Vec<u8>> {
        let mut archive = Vec::new();
        match self {
            Self::Local(sandbox) => {
                let mut download = sandbox.read_archive(directory)?;
                while let Some(bytes) = download.next().await? {
                    archive.extend(bytes);
                    if archive.len() > MAX_ARCHIVE {
                        bail!("{directory} has more than {} MiB, so nothing is copied back", MAX_ARCHIVE >> 20);
                    }
                }
            }
            Self::Remote { client, id } => {
                let response = client.get_raw(&tar(id, directory)).await?;
                let body = Limited::new(response.into_body(), MAX_ARCHIVE).collect().await;
                archive.extend(body.map_err(ClientError::broken)?.to_bytes());
            }
        }
        Ok(archive)
    }

    /// Runs pip to its end. Returns its exit code and all of its output.
    async fn pip(self, args: Vec<String>, options: &Run) -> anyhow::Result<(i32, String)> {
        let settings = PIP_SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env: BTreeMap<_, _> = settings.into_iter().chain(options.env.iter().cloned()).collect();
        match self {
            Self::Local(sandbox) => {
                let mut spec = RunSpec { env, timeout: Some(INSTALL_TIMEOUT), ..RunSpec::new(Program::Argv(args)) };
                sandbox.info().settings.process.fill(&mut spec);
                spec.user = Some("root".to_owned());
                let ran = sandbox.run(spec)?.collect().await?;
                let output = [ran.stdout, ran.stderr].concat();
                Ok((ran.exit.code, String::from_utf8_lossy(&output).into_owned()))
            }
            Self::Remote { client, id } => {
                let request = ExecRequest {
                    args: Some(args),
                    env: Some(env),
                    user: Some("root".to_owned()),
                    timeout_seconds: Some(INSTALL_TIMEOUT.as_secs_f64()),
                    ..ExecRequest::default()
                };
                let ran: Value = client.post(&format!("/v1/sandboxes/{id}/exec"), &request).await?;
                let code = ran["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(-1);
                Ok((code, field(&ran, "stdout")? + &field(&ran, "stderr")?))
            }
        }
    }
}

/// An archive with the certificates that this machine trusts.
fn authorities() -> anyhow::Result<Option<Vec<u8>>> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let Ok(bundle) = std::fs::read(named.unwrap_or_else(|| HOST_AUTHORITIES.into())) else { return Ok(None) };
    let node = Node::File { bytes: bundle, executable: false };
    let tree = ProjectTree([(AUTHORITIES.to_owned(), node)].into());
    Ok(Some(tree.to_archive()?))
}

fn tar(id: &str, directory: &str) -> String {
    format!("/v1/sandboxes/{id}/fs/tar{}", query(&[("path", Some(directory.to_owned()))]))
}
