//! `--ca`: certificates that this process, the programs that it starts and the sandboxes trust besides those of the system.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use sandling_wire::{Home, private_directory};

pub const CA_VARIABLE: &str = "SANDLING_CA";
const BUNDLE_VARIABLE: &str = "SSL_CERT_FILE";
/// Where distributions keep the certificates of the system: Debian, Fedora, SUSE.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// Makes this process and its children trust the certificates in a file. Must be called before any thread starts.
///
/// Rust, OpenSSL and GnuTLS programs take one bundle from the environment. So the home gets a bundle with all certificates.
pub fn add(ca: &Path) -> anyhow::Result<()> {
    let ca = std::path::absolute(ca)?;
    let added = read(&ca)?;
    let named = std::env::var_os(BUNDLE_VARIABLE).map(PathBuf::from);
    let mut trusted = match named.into_iter().chain(SYSTEM.map(PathBuf::from)).find(|path| path.exists()) {
        Some(path) => fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?,
        None => String::new(),
    };
    // A server that this process starts gets both variables.
    if !trusted.contains(added.trim()) {
        trusted = [trusted.trim_end(), "\n", &added].concat();
    }
    let home = Home::from_environment().context("neither SANDLING_HOME nor HOME is set; set one of them")?;
    let bundle = home.tls().join("trusted.pem");
    write(&home, &bundle, &trusted).with_context(|| format!("cannot write {}", bundle.display()))?;
    for (name, value) in [(BUNDLE_VARIABLE, &bundle), ("NODE_EXTRA_CA_CERTS", &bundle), (CA_VARIABLE, &ca)] {
        // SAFETY: `main` calls this function before it starts a thread, so no other thread reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

/// The certificates in a file.
pub fn read(ca: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(ca).with_context(|| format!("cannot read the certificates in {}", ca.display()))?;
    ensure!(text.contains("-----BEGIN CERTIFICATE-----"), "{} has no certificates in PEM format", ca.display());
    Ok(text)
}

fn write(home: &Home, bundle: &Path, text: &str) -> std::io::Result<()> {
    home.prepare_root()?;
    private_directory(&home.tls())?;
    // Another process may read the bundle at the same time.
    let new = bundle.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, bundle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_private() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::new(root.path().join("home"));
        let bundle = home.tls().join("trusted.pem");
        write(&home, &bundle, "certificates").unwrap();
        assert_eq!(fs::read_to_string(&bundle).unwrap(), "certificates");
        assert!(home.wide_modes().is_empty(), "{:?}", home.wide_modes());
    }
}
