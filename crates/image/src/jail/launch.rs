//! The caller's side: how mmdebstrap is started in its jail.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::entry::ARGUMENT;
use super::mirror::{Mirror, REGISTRIES, debian_mirrors};
use crate::apt;
use crate::error::{BuildError, io_at};
use crate::tool::Tool;
use crate::workspace::Workspace;

/// Variables that name certificates of the host.
const CERTIFICATES: [&str; 5] =
    ["SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "npm_config_cafile", "PIP_CERT"];

/// What the launcher is told, besides the command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    /// The only directory of the host that the build can write to.
    pub workspace: PathBuf,
    /// An empty directory in the workspace, which becomes the root directory.
    pub root: PathBuf,
    pub mirrors: Vec<Mirror>,
    /// Other files of the host that the build can read: certificates.
    pub readable: Vec<PathBuf>,
    /// The only variables of the launcher that the build sees.
    pub variables: Vec<String>,
}

/// mmdebstrap in a jail, with the host's settings for reaching the mirrors in a `sources.list`. `hooks` has the scripts.
pub(crate) fn mmdebstrap(sources: &str, workspace: &Workspace, hooks: &Path) -> Result<Tool, BuildError> {
    let (proxies, options): (Vec<_>, Vec<_>) = apt::host_options()?.into_iter().partition(|option| is_proxy(option));
    let mut mirrors = debian_mirrors(sources);
    let mut registries = Vec::new();
    for registry in REGISTRIES.iter().filter(|registry| registry.is_needed(hooks)) {
        let url = registry.url();
        mirrors.extend(registry.mirrors(&url));
        registries.push((registry.variable, url));
    }
    let named = CERTIFICATES.iter().filter_map(|name| std::env::var(name).ok());
    let named = named.chain(options.iter().filter_map(|option| Some(value(option)?.to_owned())));
    let spec = Spec {
        workspace: workspace.dir().to_owned(),
        root: workspace.share("jail", 0o755)?,
        mirrors: mirrors.into_iter().collect(),
        readable: named.map(PathBuf::from).filter(|path| path.is_absolute() && path.exists()).collect(),
        variables: CERTIFICATES
            .iter()
            .copied()
            .chain(registries.iter().map(|(name, _)| *name))
            .map(str::to_owned)
            .collect(),
    };
    let spec = serde_json::to_string(&spec).map_err(|error| io_at("describe", workspace.dir())(error.into()))?;
    let mut tool =
        Tool::with_path("mmdebstrap", workspace.launcher().to_owned()).args([ARGUMENT, &spec, "--mode=root"]);
    for (name, url) in registries {
        tool = tool.env(name, url);
    }
    // The launcher's proxy continues to the host's.
    for (scheme, variables) in [("http", ["http_proxy", "HTTP_PROXY"]), ("https", ["https_proxy", "HTTPS_PROXY"])] {
        let prefix = format!("acquire::{scheme}::proxy ");
        if let Some(proxy) = proxies.iter().rfind(|option| option.to_ascii_lowercase().starts_with(&prefix)) {
            let proxy = value(proxy).filter(|proxy| *proxy != "DIRECT").unwrap_or_default();
            tool = variables.iter().fold(tool, |tool, name| tool.env(name, proxy));
        }
    }
    Ok(tool.args(options.iter().map(|option| format!("--aptopt={option}"))))
}

/// Whether an option of apt says through which proxy to reach a mirror.
fn is_proxy(option: &str) -> bool {
    let option = option.to_ascii_lowercase();
    option.starts_with("acquire::http::proxy") || option.starts_with("acquire::https::proxy")
}

/// The value in a line like `Acquire::http::Timeout "30";`.
fn value(option: &str) -> Option<&str> {
    option.split_once('"')?.1.strip_suffix("\";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_from_proxies() {
        assert!(is_proxy("Acquire::http::Proxy \"http://proxy.lan:3142\";"));
        assert!(is_proxy("Acquire::HTTPS::Proxy-Auto-Detect \"/usr/bin/detect\";"));
        assert!(!is_proxy("Acquire::http::Timeout \"30\";"));
        assert_eq!(value("Acquire::https::CaInfo \"/etc/x.pem\";"), Some("/etc/x.pem"));
    }
}
