//! The servers that a build may reach: its package mirrors.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use hyper::Uri;
use serde::{Deserialize, Serialize};

use crate::tool::{self, Tool};

/// How a client asks the proxy for a server: with a request for an `http://` URL, or with CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Mirror {
    pub scheme: Scheme,
    pub host: String,
    pub port: u16,
}

impl Mirror {
    pub fn of_url(url: &str) -> Option<Self> {
        let url: Uri = url.parse().ok()?;
        let (scheme, port) = match url.scheme_str()? {
            "http" => (Scheme::Http, 80),
            "https" => (Scheme::Https, 443),
            _ => return None,
        };
        Some(Self { scheme, host: plain_host(url.host()?), port: url.port_u16().unwrap_or(port) })
    }

    /// The server that a request to the proxy names.
    pub fn of_request(method: &hyper::Method, url: &Uri) -> Option<Self> {
        match method == hyper::Method::CONNECT {
            true => Some(Self { scheme: Scheme::Https, host: plain_host(url.host()?), port: url.port_u16()? }),
            false => Self::of_url(&url.to_string()).filter(|mirror| mirror.scheme == Scheme::Http),
        }
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

fn plain_host(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase()
}

/// A registry of packages that are not Debian's.
pub(super) struct Registry {
    /// The scripts that need it.
    hooks: &'static [&'static str],
    /// The variable that names the registry, for the host's program and for the one in the tree.
    pub variable: &'static str,
    program: &'static str,
    setting: &'static str,
    default: &'static str,
    /// Where the default registry has its files.
    files: Option<&'static str>,
}

pub(super) const REGISTRIES: [Registry; 2] = [
    Registry {
        hooks: &["customize-2-node.sh", "customize-3-npm.sh"],
        variable: "npm_config_registry",
        program: "npm",
        setting: "registry",
        default: "https://registry.npmjs.org/",
        files: None,
    },
    Registry {
        hooks: &["customize-4-pip.sh"],
        variable: "PIP_INDEX_URL",
        program: "pip3",
        setting: "global.index-url",
        default: "https://pypi.org/simple",
        files: Some("https://files.pythonhosted.org/"),
    },
];

impl Registry {
    pub fn is_needed(&self, hooks: &Path) -> bool {
        self.hooks.iter().any(|hook| hooks.join(hook).exists())
    }

    /// The registry that the host's program uses.
    pub fn url(&self) -> String {
        let variables = [self.variable.to_owned(), self.variable.to_ascii_uppercase()];
        let variable = variables.iter().find_map(|name| std::env::var(name).ok());
        // A host without the program, or without the setting, has no registry of its own.
        let configured = || {
            tool::find(self.program)?;
            let said = Tool::new(self.program).args(["config", "get", self.setting]).capture().ok()?;
            said.lines().next_back().map(|line| line.trim().to_owned())
        };
        let chosen = variable.or_else(configured).filter(|url| Mirror::of_url(url).is_some());
        chosen.unwrap_or_else(|| self.default.to_owned())
    }

    pub fn mirrors(&self, url: &str) -> impl Iterator<Item = Mirror> {
        let index = Mirror::of_url(url);
        let files = self.files.filter(|_| index == Mirror::of_url(self.default)).and_then(Mirror::of_url);
        index.into_iter().chain(files)
    }
}

/// The mirrors that a `sources.list` names.
pub(super) fn debian_mirrors(sources: &str) -> BTreeSet<Mirror> {
    sources.split_whitespace().filter_map(Mirror::of_url).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(mirrors: impl IntoIterator<Item = Mirror>) -> Vec<String> {
        mirrors.into_iter().map(|mirror| mirror.to_string()).collect()
    }

    #[test]
    fn sources_name_the_mirrors() {
        let sources = "deb [signed-by=/x.gpg] http://deb.debian.org/debian/ bookworm main\n\
                       deb https://me:secret@Mirror.Example:8443/debian bookworm main\n";
        assert_eq!(names(debian_mirrors(sources)), ["deb.debian.org:80", "mirror.example:8443"]);
    }

    #[test]
    fn the_public_index_has_its_files_elsewhere() {
        let [_, pip] = REGISTRIES;
        assert_eq!(names(pip.mirrors(pip.default)), ["pypi.org:443", "files.pythonhosted.org:443"]);
        assert_eq!(names(pip.mirrors("http://pypi.lan:3141/root/simple")), ["pypi.lan:3141"]);
    }

    #[test]
    fn a_request_names_one_server() {
        let asked = |method: hyper::Method, url: &str| Mirror::of_request(&method, &url.parse().unwrap());
        let http = asked(hyper::Method::GET, "http://deb.debian.org/debian/x").unwrap();
        assert_eq!((http.scheme, http.port), (Scheme::Http, 80));
        let https = asked(hyper::Method::CONNECT, "[2001:db8::1]:443").unwrap();
        assert_eq!((https.scheme, https.host.as_str()), (Scheme::Https, "2001:db8::1"));
        assert_eq!(asked(hyper::Method::GET, "/debian/x"), None);
        assert_eq!(asked(hyper::Method::GET, "https://deb.debian.org/"), None);
    }
}
