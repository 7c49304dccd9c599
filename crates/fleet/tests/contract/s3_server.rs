//! An S3 server on loopback, with its objects in memory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

const READY_WITHIN: Duration = Duration::from_secs(60);

pub struct S3Server {
    process: Child,
    address: String,
}

impl S3Server {
    /// Starts a server with one bucket.
    pub fn start(bucket: &str) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let process = Command::new(program())
            .args(["-H", "127.0.0.1", "-p", &address.port().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("moto is missing: run `. scripts/s3_server.sh && install_s3_server`")?;
        let mut server = Self { process, address: address.to_string() };
        let deadline = Instant::now() + READY_WITHIN;
        while server.make_bucket(bucket).is_err() {
            if let Some(status) = server.process.try_wait()? {
                bail!("moto ended with {status}");
            }
            if Instant::now() > deadline {
                bail!("moto did not answer within a minute");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What a client needs in its environment.
    pub fn variables(&self) -> [(&'static str, &'static str); 3] {
        [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "us-east-1")]
    }

    fn make_bucket(&self, bucket: &str) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "PUT /{bucket} HTTP/1.0\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", self.address)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if !answer.lines().next().is_some_and(|status| status.contains(" 200 ")) {
            bail!("moto made no bucket: {answer}");
        }
        Ok(())
    }
}

/// As in `scripts/s3_server.sh`.
fn program() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache"))).unwrap_or_default();
    variable("SANDLING_TEST_S3").unwrap_or_else(|| cache().join("sandling-test/moto-5.2.5/bin/moto_server"))
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
