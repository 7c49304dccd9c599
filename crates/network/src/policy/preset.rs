//! Presets: the hosts that common tools need.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::name::HostName;

/// A tool or a service whose hosts are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    Pypi,
    Npm,
    Crates,
    Debian,
    Github,
    Go,
    Maven,
    Rubygems,
    Huggingface,
    Conda,
}

/// The text is not a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "unknown preset; the presets are pypi, npm, crates, debian, github, go, maven, rubygems, huggingface and conda"
)]
pub struct NoPreset;

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 10] = [
        Preset::Pypi,
        Preset::Npm,
        Preset::Crates,
        Preset::Debian,
        Preset::Github,
        Preset::Go,
        Preset::Maven,
        Preset::Rubygems,
        Preset::Huggingface,
        Preset::Conda,
    ];

    /// The preset's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::Pypi => "pypi",
            Preset::Npm => "npm",
            Preset::Crates => "crates",
            Preset::Debian => "debian",
            Preset::Github => "github",
            Preset::Go => "go",
            Preset::Maven => "maven",
            Preset::Rubygems => "rubygems",
            Preset::Huggingface => "huggingface",
            Preset::Conda => "conda",
        }
    }

    /// The hosts, without wildcards. A wildcard would allow data to leak out through labels.
    pub fn hosts(self) -> &'static [&'static str] {
        match self {
            Preset::Pypi => &["pypi.org", "files.pythonhosted.org"],
            Preset::Npm => &["registry.npmjs.org"],
            Preset::Crates => &["crates.io", "index.crates.io", "static.crates.io"],
            Preset::Debian => &["deb.debian.org", "security.debian.org", "cdn-fastly.deb.debian.org"],
            Preset::Github => &[
                "github.com",
                "api.github.com",
                "codeload.github.com",
                "raw.githubusercontent.com",
                "objects.githubusercontent.com",
                "release-assets.githubusercontent.com",
                "github-releases.githubusercontent.com",
                "media.githubusercontent.com",
            ],
            Preset::Go => &["proxy.golang.org", "sum.golang.org"],
            Preset::Maven => &["repo.maven.apache.org", "repo1.maven.org"],
            Preset::Rubygems => &["rubygems.org", "index.rubygems.org"],
            Preset::Huggingface => &[
                "huggingface.co",
                "cdn-lfs.huggingface.co",
                "cdn-lfs.hf.co",
                "cdn-lfs-us-1.hf.co",
                "cdn-lfs-eu-1.hf.co",
                "cas-bridge.xethub.hf.co",
                "cas-server.xethub.hf.co",
                "transfer.xethub.hf.co",
            ],
            Preset::Conda => &["conda.anaconda.org", "repo.anaconda.com"],
        }
    }

    /// Whether `name` is one of its hosts.
    pub fn covers(self, name: &HostName) -> bool {
        self.hosts().contains(&name.as_str())
    }
}

impl FromStr for Preset {
    type Err = NoPreset;

    fn from_str(text: &str) -> Result<Preset, NoPreset> {
        Preset::ALL.into_iter().find(|preset| preset.as_str().eq_ignore_ascii_case(text)).ok_or(NoPreset)
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_of_a_preset_is_a_name_it_covers() {
        for preset in Preset::ALL {
            assert_eq!(preset.as_str().parse(), Ok(preset));
            for host in preset.hosts() {
                let name = host.parse().unwrap();
                let covering = Preset::ALL.into_iter().filter(|preset| preset.covers(&name));
                // A host of two presets would be learned as either of them.
                assert_eq!(covering.collect::<Vec<_>>(), [preset], "{host}");
            }
        }
    }
}
